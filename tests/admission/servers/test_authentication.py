"""Authentication of API servers, step by step as documented: with real openssl & curl, and in Python."""

from __future__ import annotations

import asyncio
import json
import pathlib
import shutil
import ssl
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.admission.servers.serving import connect, make_review, wait_until_served
from tests.authorities import Authority
from tests.behaviour.conftest import make_crd
from tests.behaviour.running import Calls, Operator
from tests.patience import PATIENCE

pytestmark = pytest.mark.fastforward("exit")

TOOLS_MISSING = "{} is not installed, but this test drives the real one"
SUBJECT = ((("commonName", "Example Common Name"),), (("emailAddress", "example@kopf.dev"),))


def find_tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(TOOLS_MISSING.format(name))
    return path


async def run(*command: str | pathlib.Path, cwd: pathlib.Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    return stdout.decode()


@pytest.fixture
async def cluster(cluster: LocalCluster) -> LocalCluster:
    """The same as always, but the resource has a short name as in the documentation."""
    crd = make_crd("KopfExample", "kopfexamples", status=False)
    crd["spec"]["names"]["shortNames"] = ["kex"]
    cluster.apply(crd)
    return cluster


@pytest.fixture
async def show_auth(calls: Calls) -> None:
    @kopf.on.validate("kex", id="show_auth")
    def show_auth(headers: kopf.Headers, sslpeer: kopf.SSLPeer, warnings: list[str], **_: Any) -> None:
        calls.append((headers, sslpeer))
        names = {key: value for ((key, value),) in sslpeer.get("subject", ())}
        warnings.append(f"SSL peer is {names.get('commonName')}.")


def serve(operator: Operator, server: kopf.WebhookServer) -> None:
    operator.set("admission.managed", "auto.kopf.dev")
    operator.set("admission.server", server)


async def test_with_openssl_and_curl(
    operator: Operator,
    show_auth: None,
    calls: Calls,
    tmp_path: pathlib.Path,
    port: int,
) -> None:
    openssl, curl = find_tool("openssl"), find_tool("curl")
    await run(
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-keyout",
        "client-key.pem",
        "-out",
        "client-cert.pem",
        "-days",
        "365",
        "-nodes",
        "-subj",
        "/CN=Example Common Name/emailAddress=example@kopf.dev",
        cwd=tmp_path,
    )
    (tmp_path / "review.json").write_text(json.dumps(make_review(), indent=2))
    serve(operator, kopf.WebhookServer(cafile=tmp_path / "client-cert.pem", port=port))
    await operator.launch()
    await wait_until_served(port)

    output = await run(
        curl,
        "--insecure",
        "--cert",
        "client-cert.pem",
        "--key",
        "client-key.pem",
        f"https://ussser:passsw@localhost:{port}",
        "--json",
        "@review.json",
        cwd=tmp_path,
    )
    assert json.loads(output) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "1ca13837-ad60-4c9e-abb8-86f29d6c0e84",
            "allowed": True,
            "warnings": ["SSL peer is Example Common Name."],
        },
    }
    headers, sslpeer = calls[0]
    assert headers["Host"] == f"localhost:{port}"
    assert headers["Authorization"] == "Basic dXNzc2VyOnBhc3Nzdw=="
    assert headers["Content-Type"] == "application/json"
    assert sslpeer["subject"] == sslpeer["issuer"] == SUBJECT
    assert sslpeer.keys() >= {"subject", "issuer", "version", "serialNumber", "notBefore", "notAfter"}

    output = await run(curl, "--insecure", f"https://localhost:{port}", "--json", "@review.json", cwd=tmp_path)
    assert json.loads(output)["response"]["warnings"] == ["SSL peer is None."]
    assert calls[1][1] == {}
    assert "Authorization" not in calls[1][0]


async def test_debugging_with_curl(operator: Operator, show_auth: None, tmp_path: pathlib.Path, port: int) -> None:
    curl = find_tool("curl")
    (tmp_path / "review.json").write_text(json.dumps(make_review()))
    serve(operator, kopf.WebhookServer(cadump=tmp_path / "selfsigned.pem", port=port))
    await operator.launch()
    await wait_until_served(port)
    for options in (["--insecure"], ["--cacert", "selfsigned.pem"], ["--http1.0", "--cacert", "selfsigned.pem"]):
        output = await run(curl, *options, f"https://localhost:{port}", "--json", "@review.json", cwd=tmp_path)
        assert json.loads(output)["response"]["allowed"] is True
    with pytest.raises(AssertionError, match="certificate"):
        await run(curl, f"https://localhost:{port}", "--json", "@review.json", cwd=tmp_path)


async def test_in_python(operator: Operator, show_auth: None, calls: Calls, tmp_path: pathlib.Path, port: int) -> None:
    authority = Authority("Example CA")
    files = authority.write(tmp_path / "client", "client")
    serve(operator, kopf.WebhookServer(cafile=files.ca, port=port))
    await operator.launch()
    await wait_until_served(port)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(files.certificate, files.key)
    headers = {"Authorization": "Bearer abc"}
    url = f"https://localhost:{port}"
    async with connect(ssl=context) as session, session.post(url, json=make_review(), headers=headers) as response:
        answer = await response.json()
    assert answer["response"]["warnings"] == ["SSL peer is client."]
    headers, sslpeer = calls[0]
    assert headers["Authorization"] == "Bearer abc"
    assert sslpeer["issuer"] == ((("commonName", "Example CA"),),)


async def test_in_python_without_tls(operator: Operator, show_auth: None, calls: Calls, port: int) -> None:
    operator.set("admission.server", kopf.WebhookServer(insecure=True, port=port))
    await operator.launch()
    await wait_until_served(port)
    async with connect() as session:
        for path, status in [("", 200), ("/show_auth", 200), ("/absent", 404)]:
            async with session.post(f"http://localhost:{port}{path}", json=make_review()) as response:
                assert response.status == status
        async with session.post(f"http://localhost:{port}", json={"kind": "Other"}) as response:
            assert response.status == 400
    assert [sslpeer for _, sslpeer in calls] == [{}, {}]
