"""Tokens of service accounts."""

from __future__ import annotations

import asyncio
import base64
import json
import pathlib
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from kopf_cluster import LocalCluster
from tests.cluster.conftest import CONFIG_MAPS, Client, Reply, causes, make_config_map
from tests.cluster.webhooks import allow, serve_hooks

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


async def use(client: Client, token: str) -> Reply:
    return await client.call("GET", CONFIG_MAPS, headers={"Authorization": f"Bearer {token}"})


async def make_account(client: Client, name: str = "worker") -> Any:
    return await client.create(ACCOUNTS, {"metadata": {"name": name}})


async def request_token(client: Client, **spec: Any) -> Reply:
    return await client.call("POST", f"{ACCOUNTS}/worker/token", json={"spec": spec})


async def test_tokens_on_request(client: Client) -> None:
    assert (await request_token(client)).status == 404
    account = await make_account(client)
    reply = await request_token(client, expirationSeconds=700)
    assert reply.status == 201
    assert reply.body["spec"]["expirationSeconds"] == 700
    token = reply.body["status"]["token"]
    assert (await use(client, token)).status == 200
    assert (await use(client, token + "x")).status == 401
    # Schemes are case-insensitive, and old clients write it so.
    assert (await client.call("GET", CONFIG_MAPS, headers={"Authorization": f"bearer {token}"})).status == 200
    assert (await client.call("GET", CONFIG_MAPS, headers={"Authorization": token})).status == 403
    reviewed = await client.create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
    assert reviewed["status"]["authenticated"] is True
    assert reviewed["status"]["user"]["username"] == "system:serviceaccount:default:worker"
    assert reviewed["status"]["user"]["uid"] == account["metadata"]["uid"]
    assert causes(await request_token(client, expirationSeconds=60)) == [
        ("spec.expirationSeconds", "FieldValueInvalid")
    ]
    assert (await request_token(client, expirationSeconds="long")).status == 400


async def test_tokens_can_be_verified_by_others(client: Client, cluster: LocalCluster) -> None:
    account = await make_account(client)
    token = (await request_token(client, audiences=["vault"], expirationSeconds=700)).body["status"]["token"]
    issuer = await client.get("/.well-known/openid-configuration")
    assert issuer == {
        "issuer": "https://kubernetes.default.svc",
        "jwks_uri": f"{cluster.url}/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }
    reply = await client.call("GET", issuer["jwks_uri"])
    assert reply.headers["Content-Type"] == "application/jwk-set+json"
    [key] = json.loads(reply.body)["keys"]

    signed, _, signature = token.rpartition(".")
    header, claims = (json.loads(decode(part)) for part in signed.split("."))
    assert header == {"alg": "ES256", "kid": key["kid"]}
    x, y, r, s = (
        int.from_bytes(part, "big")
        for part in (decode(key["x"]), decode(key["y"]), decode(signature)[:32], decode(signature)[32:])
    )
    ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key().verify(
        encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256())
    )
    assert (claims["iss"], claims["aud"]) == (issuer["issuer"], ["vault"])
    assert claims["sub"] == "system:serviceaccount:default:worker"
    assert claims["exp"] - claims["iat"] == 700
    assert claims["kubernetes.io"] == {
        "namespace": "default",
        "serviceaccount": {"name": "worker", "uid": account["metadata"]["uid"]},
    }


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


async def test_tokens_for_others_are_not_for_the_api(client: Client) -> None:
    await make_account(client)
    token = (await request_token(client, audiences=["vault"])).body["status"]["token"]
    assert (await use(client, token)).status == 401
    for audience, expected in (("vault", True), ("other", False)):
        reviewed = await client.create(
            "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token, "audiences": [audience]}}
        )
        assert reviewed["status"]["authenticated"] is expected


async def test_tokens_end_with_their_accounts(client: Client, cluster: LocalCluster) -> None:
    await make_account(client)
    token = cluster.create_token("default", "worker")
    assert (await use(client, token)).status == 200
    await cluster.restart_async()
    assert (await use(client, token)).status == 200
    await client.delete(f"{ACCOUNTS}/worker")
    assert (await use(client, token)).status == 401
    await make_account(client)  # another one of the same name
    assert (await use(client, token)).status == 401
    with pytest.raises(LookupError, match="no service account 'nobody'"):
        cluster.create_token("default", "nobody")


@pytest.mark.parametrize(
    ("kind", "path"), [("Secret", "/api/v1/namespaces/default/secrets"), ("Node", "/api/v1/nodes")]
)
async def test_tokens_end_with_what_they_are_bound_to(client: Client, kind: str, path: str) -> None:
    await make_account(client)
    bound = {"apiVersion": "v1", "kind": kind, "name": "one"}
    reply = await request_token(client, boundObjectRef=bound)
    assert (reply.status, reply.body["message"]) == (404, f'{kind.lower()}s "one" not found')
    await client.create(path, {"metadata": {"name": "one"}})
    token = (await request_token(client, boundObjectRef=bound)).body["status"]["token"]
    assert (await use(client, token)).status == 200
    await client.delete(f"{path}/one")
    assert (await use(client, token)).status == 401
    reply = await request_token(client, boundObjectRef={"apiVersion": "v1", "kind": "ConfigMap", "name": "one"})
    assert (reply.status, reply.body["message"]) == (400, "cannot bind token to object of type /v1, Kind=ConfigMap")


async def test_webhooks_are_told_who_asks(client: Client, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    async with serve_hooks(tmp_path) as hooks:
        cluster.apply(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "hooks"},
                "webhooks": [
                    {
                        "name": "hook.example.com",
                        "clientConfig": hooks.on("/", allow),
                        "sideEffects": "None",
                        "admissionReviewVersions": ["v1"],
                        "rules": [
                            {
                                "apiGroups": [""],
                                "apiVersions": ["v1"],
                                "resources": ["configmaps"],
                                "operations": ["CREATE"],
                            }
                        ],
                    }
                ],
            }
        )
        await make_account(client)
        headers = {"Authorization": f"Bearer {cluster.create_token('default', 'worker')}"}
        assert (await client.call("POST", CONFIG_MAPS, json=make_config_map(), headers=headers)).status == 201
        assert (await client.call("POST", CONFIG_MAPS, json=make_config_map("two"))).status == 201
    users = [request["userInfo"] for request in hooks.requests()]
    assert [user["username"] for user in users] == ["system:serviceaccount:default:worker", "kubernetes-admin"]
    assert "system:serviceaccounts:default" in users[0]["groups"]


@pytest.mark.fastforward
async def test_tokens_expire(client: Client, cluster: LocalCluster) -> None:
    await make_account(client)
    token = cluster.create_token("default", "worker", lifetime=100)
    await asyncio.sleep(99)
    assert (await use(client, token)).status == 200
    await asyncio.sleep(1)
    assert (await use(client, token)).status == 401


@pytest.mark.parametrize(
    ("name", "groups", "known"),
    [
        ("jane", ["devs"], ["devs", "system:authenticated"]),
        (
            "system:serviceaccount:default:operator",
            [],
            ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        ),
    ],
)
async def test_fixed_tokens(
    cluster: LocalCluster, client: Client, name: str, groups: list[str], known: list[str]
) -> None:
    cluster.add_token("secret", name, groups)
    await cluster.restart_async()
    review = await client.call(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        headers={"Authorization": "Bearer secret"},
        json={"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    assert review.body["status"]["userInfo"] == {"username": name, "groups": known}
    assert (await client.call("GET", "/api/v1", headers={"Authorization": "Bearer other"})).status == 401
