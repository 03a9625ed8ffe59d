"""
Approved requests for certificates are signed, if the server is the signer that they are for.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import pathlib
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kopf_cluster import LocalCluster
from tests.cluster.access.test_certificates import WHOAMI, ask
from tests.cluster.conftest import Client, Obj

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
KEY = ec.generate_private_key(ec.SECP256R1())
USAGES = ["digital signature", "key encipherment", "client auth"]


def make_request(
    name: str = "jane",
    group: str = "devs",
    *,
    signer: str = CLIENT,
    key: Any = KEY,
    names: tuple[str, ...] = (),
    **spec: Any,
) -> Obj:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, name)])
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return {
        "metadata": {"name": "one"},
        "spec": {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": USAGES, **spec},
    }


async def approve(client: Client, request: Obj, kind: str = "Approved") -> None:
    await client.create(REQUESTS, request)
    condition = {"type": kind, "status": "True", "reason": "Test"}
    await client.patch(f"{REQUESTS}/one/approval", {"status": {"conditions": [condition]}})


async def wait_for_certificate(cluster: LocalCluster) -> x509.Certificate:
    request = await cluster.aio.wait_for("csr", "one", lambda obj: obj["status"]["certificate"])
    return x509.load_pem_x509_certificate(base64.b64decode(request["status"]["certificate"]))


async def test_certificates_of_clients_are_good_for_the_api(
    cluster: LocalCluster,
    client: Client,
    tmp_path: pathlib.Path,
) -> None:
    await approve(client, make_request(expirationSeconds=3600))
    certificate = await wait_for_certificate(cluster)
    assert certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC) <= datetime.timedelta(seconds=3600)
    [usage] = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert usage == ExtendedKeyUsageOID.CLIENT_AUTH

    config = yaml.safe_load(cluster.make_kubeconfig("nobody"))
    pem = KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    config["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(certificate.public_bytes(serialization.Encoding.PEM)).decode(),
        "client-key-data": base64.b64encode(pem).decode(),
    }
    _, review = await ask(cluster, yaml.safe_dump(config), "POST", WHOAMI, tmp_path)
    assert review["status"]["userInfo"] == {"username": "jane", "groups": ["devs", "system:authenticated"]}
    [condition] = (await client.get(f"{REQUESTS}/one"))["status"]["conditions"]
    assert condition["type"] == "Approved"


async def test_certificates_of_kubelets_have_the_names_of_the_request(cluster: LocalCluster, client: Client) -> None:
    await approve(
        client,
        make_request(
            "system:node:a",
            "system:nodes",
            signer=SERVING,
            names=("a", "a.local"),
            usages=["digital signature", "server auth"],
            key=rsa.generate_private_key(65537, 2048),
        ),
    )
    certificate = await wait_for_certificate(cluster)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a", "a.local"]
    [usage] = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert usage == ExtendedKeyUsageOID.SERVER_AUTH


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (make_request(usages=["digital signature"]), "usages"),
        (make_request(usages=[*USAGES, "server auth"]), "usages"),
        (make_request(group="system:masters"), "system:masters"),
        (make_request(signer=KUBELET), "system:nodes"),
        (make_request("a", "system:nodes", signer=SERVING, usages=["server auth"]), "system:node:"),
    ],
)
async def test_what_the_signers_do_not_sign_has_failed(
    cluster: LocalCluster,
    client: Client,
    request_: Obj,
    why: str,
) -> None:
    await approve(client, request_)
    failed = await cluster.aio.wait_for("csr", "one", "condition=Failed")
    condition = failed["status"]["conditions"][1]
    assert (condition["type"], condition["reason"]) == ("Failed", "SignerValidationFailure")
    assert why in condition["message"]
    assert "certificate" not in failed["status"]


@pytest.mark.parametrize(
    ("signer", "decision"),
    [
        ("example.com/other", "Approved"),
        (CLIENT, "Denied"),
        ("kubernetes.io/legacy-x", "Approved"),
    ],
)
async def test_others_are_left_alone(cluster: LocalCluster, client: Client, signer: str, decision: str) -> None:
    await approve(client, make_request(signer=signer), decision)
    await asyncio.sleep(0.2)
    status = (await client.get(f"{REQUESTS}/one"))["status"]
    assert [item["type"] for item in status["conditions"]] == [decision]
    assert "certificate" not in status
