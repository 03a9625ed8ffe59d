"""In-cluster servers: behind a service, with the certificates that all replicas share in a secret."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import pathlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from kopf._admission.servers import certificates
from kopf._client.auth import service_account
from kopf._client.errors import APINotFoundError
from kopf._client.http.api import APIClient
from kopf._values import codec
from kopf._values.reviews import WebhookClientConfig
from kopf_cluster import LocalCluster
from tests.admission.servers.inside import inside_operator
from tests.admission.servers.serving import Reviewer, Serving, get_bundle, send, serving
from tests.authorities import Authority
from tests.patience import wait_until
from tests.ports import find_free_port

SECRETS = "/api/v1/namespaces/default/secrets"
SECRET = f"{SECRETS}/my-operator-webhook-certs"


class Server(kopf.WebhookServiceServer):
    """The same server, but those who test it have no time."""

    PROPAGATION_DELAY = 0.1


class ShortLivedServer(Server):
    """Its certificates live for seconds: a renewal every 4 seconds, one of which is for the announcement."""

    CERTIFICATE_LIFETIME = datetime.timedelta(seconds=6)


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as cluster:
        yield cluster


def make_server(cls: type[kopf.WebhookServiceServer] = Server, **options: Any) -> kopf.WebhookServiceServer:
    return cls(
        "my-operator",
        namespace="default",
        **{
            "addr": "127.0.0.1",
            "port": find_free_port(),
            "file_check_interval": 0.1,
            **options,
        },
    )


async def call(config: WebhookClientConfig, server: kopf.WebhookServiceServer, path: str = "") -> int:
    """Call the server as API servers do: by the name of the service, though not through the service."""
    target = config["service"]
    assert target is not None
    url = f"https://{target['name']}.{target['namespace']}.svc:{server.port}{(target['path'] or '').rstrip('/')}"
    status, _ = await send({**config, "url": url}, path=path)
    return status


async def read_secret(api: APIClient, path: str = SECRET) -> dict[str, Any]:
    secret: dict[str, Any] = codec.decode(await api.get(path))
    return secret


def decode(secret: dict[str, Any], key: str) -> bytes:
    return base64.b64decode(secret["data"][key])


def encode(**data: bytes) -> dict[str, str]:
    return {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}


# --- the service ---


async def test_the_config_is_of_the_service(cluster: LocalCluster) -> None:
    async with inside_operator(cluster), serving(make_server()) as running:
        config = running.configs[0]
        assert config["service"] == {"namespace": "default", "name": "my-operator", "port": 443, "path": "/"}
        assert "url" not in config
        names = certificates.read(get_bundle(config).encode(), b"").names
        assert names == ("my-operator.default.svc",)


async def test_options(cluster: LocalCluster) -> None:
    server = make_server(service_port=8443, path="/hooks/", extra_sans=["example.com"], secret="other")
    reviewer = Reviewer()
    async with inside_operator(cluster) as api, serving(server, reviewer) as running:
        config = running.configs[0]
        assert config["service"] == {"namespace": "default", "name": "my-operator", "port": 8443, "path": "/hooks"}
        assert set(certificates.read(get_bundle(config).encode(), b"").names) == {
            "my-operator.default.svc",
            "example.com",
        }
        assert await call(config, server, "/handler1") == 200
        assert await read_secret(api, f"{SECRETS}/other")
        with pytest.raises(APINotFoundError):
            await read_secret(api)
    assert reviewer.calls[0]["webhook"] == "handler1"


async def test_all_addresses_are_listened_at_by_default(cluster: LocalCluster) -> None:
    async with inside_operator(cluster), serving(make_server(addr=None)) as running:
        assert running.configs
        with socket.socket() as sock, pytest.raises(OSError, match="in use"):
            sock.bind(("0.0.0.0", running._server.port))  # type: ignore[attr-defined]


async def test_the_namespace_of_the_pod(
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "namespace").write_text("default\n")
    monkeypatch.setattr(service_account, "SERVICE_ACCOUNT_PATH", str(tmp_path))
    server = Server("my-operator", addr="127.0.0.1", port=0)
    async with inside_operator(cluster), serving(server) as running:
        target = running.configs[0]["service"]
        assert target is not None
        assert target["namespace"] == "default"


async def test_the_namespace_must_be_known(
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_account, "SERVICE_ACCOUNT_PATH", str(tmp_path))
    async with inside_operator(cluster):
        with pytest.raises(ValueError, match="add namespace="):
            async with serving(Server("my-operator")):
                pass


async def test_files_instead_of_the_secret(cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    files = Authority().write(tmp_path / "tls", "my-operator.default.svc")
    server = make_server(certfile=files.certificate, pkeyfile=files.key, cafile=files.ca)
    async with inside_operator(cluster) as api, serving(server) as running:
        assert await call(running.configs[0], server) == 200
        assert not codec.decode(await api.get(SECRETS))["items"]


async def test_it_works_only_inside_of_operators() -> None:
    with pytest.raises(LookupError, match="only inside of a running operator"):
        async with serving(make_server()):
            pass


async def test_the_cluster_calls_it_by_the_name_of_the_service(cluster: LocalCluster) -> None:
    server, reviewer = make_server(), Reviewer()
    assert server.port is not None
    cluster.register_service("default", "my-operator", "127.0.0.1", server.port)
    async with inside_operator(cluster) as api, serving(server, reviewer) as running:
        await configure(api, running.configs[0])
        await api.post("/api/v1/namespaces/default/configmaps", payload={"metadata": {"name": "cm1"}})
    assert [call["webhook"] for call in reviewer.calls] == ["handler1"]


async def configure(api: APIClient, config: WebhookClientConfig) -> None:
    """Tell the cluster about the webhook, which must not fail; or change it."""
    target = config["service"]
    assert target is not None
    client_config = {**config, "service": {**target, "path": "/handler1"}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    webhook = {
        "name": "handler1.kopf.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": client_config,
        "rules": [rule],
        "failurePolicy": "Fail",
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    try:
        await api.patch(f"{path}/test", payload={"webhooks": [webhook]})
    except APINotFoundError:
        await api.post(path, payload={"metadata": {"name": "test"}, "webhooks": [webhook]})


# --- the secret ---


async def test_the_secret_is_made(cluster: LocalCluster) -> None:
    server = make_server()
    async with inside_operator(cluster) as api, serving(server) as running:
        secret = await read_secret(api)
        assert secret["type"] == "kubernetes.io/tls"
        assert secret["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "kopf"}
        assert secret["data"].keys() == {"tls.crt", "tls.key", "ca.crt"}
        assert decode(secret, "tls.crt") == decode(secret, "ca.crt") == get_bundle(running.configs[0]).encode()
        assert b"PRIVATE KEY" in decode(secret, "tls.key")
        assert await call(running.configs[0], server) == 200


async def test_replicas_and_restarts_use_the_same_certificate(cluster: LocalCluster) -> None:
    servers = [make_server() for _ in range(2)]
    async with inside_operator(cluster) as api:
        async with serving(servers[0]) as first, serving(servers[1]) as second:
            assert first.configs == second.configs
            assert await call(first.configs[0], servers[1]) == 200
        before = await read_secret(api)
        async with serving(make_server()) as third:
            assert third.configs == first.configs
        assert await read_secret(api) == before  # nothing is written when nothing changes


async def test_many_replicas_start_at_once(cluster: LocalCluster) -> None:
    servers = [make_server() for _ in range(10)]
    async with inside_operator(cluster), contextlib.AsyncExitStack() as stack:
        running = await asyncio.gather(*(stack.enter_async_context(serving(server)) for server in servers))
        assert all(one.configs == running[0].configs for one in running)
        for server in servers:
            assert await call(running[0].configs[0], server) == 200
    assert cluster.counters["create", "secrets", 201] == 1


async def test_replicas_renew_the_certificate_together_and_lose_nothing(cluster: LocalCluster) -> None:
    """The policy of failures is to fail, and each review is sent to any of the replicas."""
    servers = [make_server(ShortLivedServer) for _ in range(3)]
    async with inside_operator(cluster) as api, contextlib.AsyncExitStack() as stack:
        running = await asyncio.gather(*(stack.enter_async_context(serving(server)) for server in servers))
        await configure(api, running[0].configs[0])
        following = [asyncio.create_task(follow(api, one)) for one in running]
        load = asyncio.create_task(create_objects(cluster, api, [server.port or 0 for server in servers]))
        try:
            await asyncio.gather(*(one.wait_for_configs(3) for one in running))
            await wait_until(lambda: len({get_bundle(one.configs[-1]) for one in running}) <= 1)
            secret = await read_secret(api)
            assert get_bundle(running[0].configs[-1]).encode() == decode(secret, "ca.crt")
            for server in servers:
                assert await call(running[0].configs[-1], server) == 200
        finally:
            for task in [*following, load]:
                task.cancel()
            outcomes = await asyncio.gather(*following, load, return_exceptions=True)
        assert [outcome for outcome in outcomes if not isinstance(outcome, asyncio.CancelledError)] == []
    assert cluster.counters["create", "configmaps", 201] > 10
    assert not [key for key in cluster.counters if key[0] == "create" and key[1] == "configmaps" and key[2] >= 400]
    # Each of the steps is written only once, whoever does it.
    assert cluster.counters["patch", "secrets", 200] <= 5


async def follow(api: APIClient, running: Serving) -> None:
    """Change the configuration with every new config, as operators do."""
    known = len(running.configs)
    while True:
        await running.wait_for_configs(known + 1)
        known = len(running.configs)
        await configure(api, running.configs[-1])


async def create_objects(cluster: LocalCluster, api: APIClient, ports: list[int]) -> None:
    number = 0
    while True:
        number += 1
        cluster.register_service("default", "my-operator", "127.0.0.1", ports[number % len(ports)])
        await api.post("/api/v1/namespaces/default/configmaps", payload={"metadata": {"name": f"cm{number}"}})
        await asyncio.sleep(0.05)


async def test_certificates_of_others_are_used_and_followed(cluster: LocalCluster) -> None:
    """E.g. those of cert-manager."""
    authority = Authority()
    certificate, key = authority.sign("my-operator.default.svc")
    server = make_server()
    async with inside_operator(cluster) as api:
        await api.post(
            SECRETS,
            payload={
                "metadata": {"name": "my-operator-webhook-certs"},
                "type": "kubernetes.io/tls",
                "data": encode(tls_crt=certificate, tls_key=key, ca_crt=authority.pem),
            },
        )
        async with serving(server) as running:
            assert get_bundle(running.configs[0]).encode() == authority.pem
            assert await call(running.configs[0], server) == 200
            renewed = Authority("renewed")
            certificate, key = renewed.sign("my-operator.default.svc")
            await api.patch(SECRET, payload={"data": encode(tls_crt=certificate, tls_key=key, ca_crt=renewed.pem)})
            await running.wait_for_configs(3)
            assert get_bundle(running.configs[1]).encode() == authority.pem + renewed.pem
            assert get_bundle(running.configs[2]).encode() == renewed.pem
            assert await call(running.configs[2], server) == 200
        secret = await read_secret(api)
        assert decode(secret, "tls.crt") == certificate
        assert "labels" not in secret["metadata"]


async def test_certificates_of_others_with_no_authority(cluster: LocalCluster) -> None:
    certificate, key = Authority().sign("my-operator.default.svc")
    async with inside_operator(cluster) as api:
        await api.post(
            SECRETS,
            payload={
                "metadata": {"name": "my-operator-webhook-certs"},
                "data": encode(tls_crt=certificate, tls_key=key),
            },
        )
        async with serving(make_server()) as running:
            assert "caBundle" not in running.configs[0]


async def test_empty_secrets_are_filled(cluster: LocalCluster) -> None:
    """They can be deployed in advance, so that operators need no permission to create secrets."""
    async with inside_operator(cluster) as api:
        await api.post(
            SECRETS,
            payload={
                "metadata": {"name": "my-operator-webhook-certs"},
                "type": "kubernetes.io/tls",
                "data": {"tls.crt": "", "tls.key": ""},
            },
        )
        server = make_server()
        async with serving(server) as running:
            assert await call(running.configs[0], server) == 200
        assert decode(await read_secret(api), "tls.crt")


async def test_deleted_secrets_are_made_anew(cluster: LocalCluster) -> None:
    server = make_server()
    async with inside_operator(cluster) as api, serving(server) as running:
        await api.delete(SECRET)
        await running.wait_for_configs(2)
        assert await call(running.configs[-1], server) == 200
        assert decode(await read_secret(api), "tls.crt")


@pytest.mark.parametrize(
    "data",
    [
        {"tls.crt": "Z2FyYmFnZQ=="},
        {"next.crt": "Z2FyYmFnZQ=="},
    ],
    ids=json.dumps,
)
async def test_broken_secrets_are_made_anew(
    cluster: LocalCluster,
    data: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with inside_operator(cluster) as api:
        async with serving(make_server()) as running:
            pass
        await api.patch(SECRET, payload={"data": data})
        server = make_server()
        async with serving(server) as running:
            assert await call(running.configs[0], server) == 200
    assert "are broken, and are replaced" in caplog.text


async def test_other_names_need_another_certificate(cluster: LocalCluster) -> None:
    async with inside_operator(cluster):
        async with serving(make_server()) as first:
            pass
        server = make_server(extra_sans=["example.com"])
        async with serving(server) as second:
            bundle = get_bundle(second.configs[0])
            assert bundle.startswith(get_bundle(first.configs[0]))  # other replicas can still use it
            assert bundle != get_bundle(first.configs[0])
            assert await call(second.configs[0], server) == 200
        async with serving(make_server()) as third:
            assert third.configs == second.configs


async def test_outages_of_the_api_do_no_harm(cluster: LocalCluster, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()
    async with inside_operator(cluster), serving(server) as running:
        cluster.faults.inject(500, resource="secrets")
        await wait_until(lambda: "uses the previous ones" in caplog.text)
        assert await call(running.configs[0], server) == 200
    assert len(running.configs) == 1


async def test_lost_answers_do_no_harm(cluster: LocalCluster) -> None:
    cluster.faults.inject(action="lose-answer", verb="create", resource="secrets", times=1)
    server = make_server()
    async with inside_operator(cluster), serving(server) as running:
        assert await call(running.configs[0], server) == 200


async def test_an_absent_namespace_fails_the_start(cluster: LocalCluster) -> None:
    async with inside_operator(cluster):
        with pytest.raises(APINotFoundError):
            async with serving(Server("my-operator", namespace="absent", port=0)):
                pass


# --- permissions ---


async def test_missing_permissions_are_explained() -> None:
    async with LocalCluster(authorization="rbac") as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x", "namespace": "default"}})
        token = cluster.create_token("default", "x")
        async with inside_operator(cluster, token):
            with pytest.raises(PermissionError, match="Permit the verbs 'get', 'create', 'patch' on 'secrets'"):
                async with serving(make_server()):
                    pass


async def test_documented_permissions_are_enough() -> None:
    """Those in the manifests of the documentation."""
    async with LocalCluster(authorization="rbac") as cluster:
        meta = {"namespace": "default", "name": "x"}
        cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        cluster.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": meta,
                "rules": [
                    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
                    {
                        "apiGroups": [""],
                        "resources": ["secrets"],
                        "resourceNames": ["my-operator-webhook-certs"],
                        "verbs": ["get", "patch"],
                    },
                ],
            }
        )
        cluster.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"},
                "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "x"}],
            }
        )
        async with inside_operator(cluster, cluster.create_token("default", "x")):
            async with serving(make_server()) as first:
                pass
            async with serving(make_server(extra_sans=["example.com"])) as second:
                assert first.configs != second.configs
