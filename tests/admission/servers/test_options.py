"""The options of the servers: where they listen, how they are reached, whom they trust, and who trusts them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
import pathlib
import socket
import ssl
import sys
import urllib.parse
from typing import Any

import aiohttp
import pytest

import kopf
from kopf._admission.servers import certificates, tls_contexts
from kopf._admission.servers.certificate_sources import MissingDependencyError
from kopf._serving.listening import open_sockets
from kopf._values.reviews import WebhookClientConfig
from tests.admission.servers.serving import (
    Reviewer,
    get_bundle,
    get_port,
    make_review,
    send,
    serving,
    trust,
)
from tests.authorities import Authority, Files
from tests.patience import wait_until
from tests.ports import find_free_port

LOCAL_SERVERS = {
    kopf.WebhookK3dServer: "host.k3d.internal",
    kopf.WebhookMinikubeServer: "host.minikube.internal",
    kopf.WebhookDockerDesktopServer: "host.docker.internal",
}
CHOSEN = {"host": "other.example.com", "addr": "127.0.0.1", "path": "/x", "extra_sans": ["extra.example.com"]}


def get_names(config: WebhookClientConfig) -> set[str]:
    pem = get_bundle(config).encode()
    return set(certificates.read(pem, b"").names)


async def is_reachable(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def get_other_address() -> str:
    """Get an address of this machine that is not a loopback one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no other addresses than those of the loopback")
        address: str = sock.getsockname()[0]
        return address


# --- where to listen, how to be reached ---


async def test_defaults() -> None:
    server = kopf.WebhookServer()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", 9443))
        except OSError:
            pytest.skip("the default port is used by somebody else on this machine")
    async with serving(server) as running:
        assert running.configs[0]["url"] == "https://localhost:9443"
        assert get_names(running.configs[0]) == {"localhost"}
        assert (await send(running.configs[0]))[0] == 200
        assert not await is_reachable(get_other_address(), 9443)


async def test_the_port() -> None:
    port = find_free_port()
    async with serving(kopf.WebhookServer(port=port)) as running:
        assert running.configs[0]["url"] == f"https://localhost:{port}"
        assert (await send(running.configs[0]))[0] == 200


async def test_any_free_port_is_the_same_for_all_addresses() -> None:
    async with serving(kopf.WebhookServer(port=0)) as running:
        port = get_port(running.configs[0])
        for info in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM):
            assert await is_reachable(str(info[4][0]), port)


def test_free_ports_that_are_taken_at_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody listens at that port of the second address only: another port is chosen for both."""
    info = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    with socket.create_server(("127.0.0.2", 0)) as other:
        taken = other.getsockname()[1]
        chosen = iter([taken])  # by the system, for the first address
        real_bind = socket.socket.bind

        def bind(sock: socket.socket, address: Any) -> None:
            host, port = address
            real_bind(sock, (host, port or next(chosen, 0)))

        monkeypatch.setattr("socket.socket.bind", bind)
        monkeypatch.setattr(
            "socket.getaddrinfo", lambda *_, **__: [(*info, ("127.0.0.1", 0)), (*info, ("127.0.0.2", 0))]
        )
        first, second = open_sockets("any", 0)
        with first, second:
            assert first.getsockname()[1] == second.getsockname()[1] != taken


async def test_a_busy_port_is_explained() -> None:
    async with serving(kopf.WebhookServer(port=0)) as running:
        port = get_port(running.configs[0])
        with pytest.raises(OSError, match=rf"cannot listen at localhost, port {port}: .*in use.* port="):
            async with serving(kopf.WebhookServer(port=port)):
                pass


@pytest.mark.parametrize(
    ("cls", "options", "url", "others", "is_open"),
    [
        (kopf.WebhookServer, {"addr": "127.0.0.1"}, "https://127.0.0.1:{}", [], False),
        # Neither URLs nor certificates can have 0.0.0.0.
        (kopf.WebhookServer, {"addr": "0.0.0.0"}, "https://127.0.0.1:{}", [], True),
        (kopf.WebhookServer, {"host": "x.example.com"}, "https://x.example.com:{}", ["localhost"], True),
        (
            kopf.WebhookServer,
            {"addr": "127.0.0.1", "host": "x.example.com"},
            "https://x.example.com:{}",
            ["127.0.0.1"],
            False,
        ),
        *((cls, {}, f"https://{host}:{{}}", ["localhost"], True) for cls, host in LOCAL_SERVERS.items()),
        *(
            (cls, CHOSEN, "https://other.example.com:{}/x", ["127.0.0.1", "extra.example.com"], False)
            for cls in LOCAL_SERVERS
        ),
    ],
    ids=lambda arg: getattr(arg, "__name__", str(arg)),
)
async def test_addresses_and_hosts(
    cls: type[kopf.WebhookServer], options: dict[str, Any], url: str, others: list[str], is_open: bool
) -> None:
    async with serving(cls(port=0, **options)) as running:
        config = running.configs[0]
        assert config["url"] == url.format(get_port(config))
        assert get_names(config) == {urllib.parse.urlsplit(url.format(1)).hostname, *others}
        assert (await send(config))[0] == 200
        assert await is_reachable(get_other_address(), get_port(config)) is is_open


async def test_an_address_of_ipv6() -> None:
    if not await is_ipv6_supported():
        pytest.skip("there is no IPv6 on this machine")
    async with serving(kopf.WebhookServer(addr="::1", port=0)) as running:
        config = running.configs[0]
        assert config["url"] == f"https://[::1]:{get_port(config)}"
        assert get_names(config) == {"::1"}
        assert await is_reachable("::1", get_port(config))


async def is_ipv6_supported() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("path", ["root/path", "/root/path", "/root/path/"])
async def test_the_path(path: str) -> None:
    reviewer = Reviewer()
    async with serving(kopf.WebhookServer(port=0, path=path), reviewer) as running:
        config = running.configs[0]
        assert urllib.parse.urlsplit(config["url"] or "").path == "/root/path"
        assert (await send(config, path="/handler1"))[0] == 200
        assert (await send({**config, "url": f"https://localhost:{get_port(config)}/handler1"}))[0] == 404
    assert [call["webhook"] for call in reviewer.calls] == ["handler1"]


async def test_insecure_servers() -> None:
    async with serving(kopf.WebhookServer(insecure=True, port=0)) as running:
        config = running.configs[0]
        assert config == {"url": f"http://localhost:{get_port(config)}"}
        assert (await send(config))[0] == 200


async def test_nothing_listens_after_the_end() -> None:
    async with serving(kopf.WebhookServer(port=0)) as running:
        port = get_port(running.configs[0])
    assert not await is_reachable("127.0.0.1", port)


async def test_it_is_already_listening_when_it_gives_the_config() -> None:
    server = kopf.WebhookServer(port=0)
    async with server:
        config = await anext(server(Reviewer()))
        assert (await send(config))[0] == 200
    assert not await is_reachable("127.0.0.1", get_port(config))


# --- generated certificates ---


async def test_additional_names() -> None:
    server = kopf.WebhookServer(port=0, extra_sans=["example.com", "10.0.0.1", "0.0.0.0"])
    async with serving(server) as running:
        assert get_names(running.configs[0]) == {"localhost", "example.com", "10.0.0.1"}


async def test_the_ca_bundle_is_dumped(tmp_path: pathlib.Path) -> None:
    async with serving(kopf.WebhookServer(port=0, cadump=tmp_path / "ca.pem")) as running:
        config = running.configs[0]
        assert (tmp_path / "ca.pem").read_text() == get_bundle(config)
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        assert (await send(config, context=context))[0] == 200


async def test_generated_keys_are_encrypted_and_decrypted() -> None:
    async with serving(kopf.WebhookServer(port=0, password="secret")) as running:
        assert (await send(running.configs[0]))[0] == 200


async def test_others_are_not_trusted() -> None:
    async with serving(kopf.WebhookServer(port=0)) as first, serving(kopf.WebhookServer(port=0)) as second:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await send(first.configs[0], context=trust(second.configs[0]))


async def test_wrong_names_are_not_trusted() -> None:
    async with serving(kopf.WebhookServer(port=0)) as running:
        config = running.configs[0]
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await send({**config, "url": f"https://other.example.com:{get_port(config)}"})


def connect_untrustingly(port: int) -> None:
    """Connect as most clients do: they tell the server what they do not like. Those of asyncio just leave."""
    context = ssl.create_default_context()
    with socket.create_connection(("127.0.0.1", port)) as sock, context.wrap_socket(sock, server_hostname="localhost"):
        pass


@pytest.fixture
def _fresh_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of a process that has seen no handshake yet, and of a minute that does not end amid the test."""
    monkeypatch.setattr(tls_contexts.logger, "_seen", {})
    monkeypatch.setattr(tls_contexts.logger, "_interval", math.inf)


@pytest.mark.usefixtures("_fresh_log")
async def test_failed_handshakes_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(kopf.WebhookServer(port=0)) as running:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(connect_untrustingly, get_port(running.configs[0]))
        await wait_until(lambda: "The TLS handshake of the webhook server with a client has failed: " in caplog.text)
        assert "UNKNOWN_CA" in caplog.text
        with pytest.raises(aiohttp.ClientError):  # HTTP where there is only HTTPS
            await send({"url": f"http://localhost:{get_port(running.configs[0])}"})
        assert (await send(running.configs[0]))[0] == 200
    assert "Traceback" not in caplog.text


@pytest.mark.usefixtures("_fresh_log")
async def test_failed_handshakes_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(kopf.WebhookServer(port=0)) as running:
        for _ in range(25):
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.to_thread(connect_untrustingly, get_port(running.configs[0]))
        assert (await send(running.configs[0]))[0] == 200
    assert 1 <= len([message for message in caplog.messages if "TLS handshake" in message]) <= 20


async def test_the_missing_library_is_explained_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kopf._admission.servers.certificates", None)
    monkeypatch.delattr("kopf._admission.servers.certificates")
    with pytest.raises(MissingDependencyError, match=r"pip install 'kopf\[dev\]'.*certfile=.*insecure=True"):
        async with serving(kopf.WebhookServer(port=0)):
            pass


async def test_the_missing_library_is_not_needed_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    files: Files,
) -> None:
    monkeypatch.setitem(sys.modules, "kopf._admission.servers.certificates", None)
    monkeypatch.delattr("kopf._admission.servers.certificates")
    server = kopf.WebhookServer(port=0, certfile=files.certificate, pkeyfile=files.key, cafile=files.ca)
    async with serving(server) as running:
        assert (await send(running.configs[0]))[0] == 200
    async with serving(kopf.WebhookServer(port=0, insecure=True)) as running:
        assert (await send(running.configs[0]))[0] == 200


# --- certificates from elsewhere ---


@pytest.fixture
def files(authority: Authority, tmp_path: pathlib.Path) -> Files:
    return authority.write(tmp_path / "tls", "localhost")


async def test_files(files: Files) -> None:
    server = kopf.WebhookServer(port=0, certfile=files.certificate, pkeyfile=str(files.key), cafile=files.ca)
    async with serving(server) as running:
        assert get_bundle(running.configs[0]).encode() == files.ca.read_bytes()
        assert (await send(running.configs[0]))[0] == 200


async def test_the_key_in_the_file_of_the_certificate(authority: Authority, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "both.pem"
    path.write_bytes(b"".join(authority.sign("localhost")))
    async with serving(kopf.WebhookServer(port=0, certfile=path, cadata=authority.pem)) as running:
        assert base64.b64decode(running.configs[0]["caBundle"] or "") == authority.pem
        assert (await send(running.configs[0]))[0] == 200


async def test_encrypted_keys(tmp_path: pathlib.Path) -> None:
    files = Authority().write(tmp_path / "tls", "localhost", password="secret")
    options: dict[str, Any] = {"certfile": files.certificate, "pkeyfile": files.key, "cafile": files.ca}
    async with serving(kopf.WebhookServer(port=0, password="secret", **options)) as running:
        assert (await send(running.configs[0]))[0] == 200
    with pytest.raises(ValueError, match="do not fit together"):
        async with serving(kopf.WebhookServer(port=0, password="wrong", **options)):
            pass
    with pytest.raises(ValueError, match="encrypted, but there is no password="):
        async with serving(kopf.WebhookServer(port=0, **options)):
            pass


async def test_the_default_trust_chain_without_a_ca(files: Files, tmp_path: pathlib.Path) -> None:
    server = kopf.WebhookServer(port=0, certfile=files.certificate, pkeyfile=files.key, cadump=tmp_path / "dump.pem")
    async with serving(server) as running:
        assert "caBundle" not in running.configs[0]
        assert not (tmp_path / "dump.pem").exists()
        assert (await send(running.configs[0], context=ssl.create_default_context(cafile=files.ca)))[0] == 200


async def test_the_dump_is_the_exact_copy_of_the_ca(files: Files, tmp_path: pathlib.Path) -> None:
    files.ca.write_bytes(b"# comment\n" + files.ca.read_bytes() + b"\n\n")
    server = kopf.WebhookServer(
        port=0, certfile=files.certificate, pkeyfile=files.key, cafile=files.ca, cadump=tmp_path / "dump.pem"
    )
    async with serving(server) as running:
        assert (tmp_path / "dump.pem").read_bytes() == files.ca.read_bytes()
        assert get_bundle(running.configs[0]).encode() == files.ca.read_bytes()


async def test_both_kinds_of_the_ca_are_joined(files: Files, authority: Authority) -> None:
    second = Authority("second")
    server = kopf.WebhookServer(
        port=0, certfile=files.certificate, pkeyfile=files.key, cafile=files.ca, cadata=second.pem
    )
    async with serving(server) as running:
        assert get_bundle(running.configs[0]).encode() == second.pem + authority.pem


async def test_a_ca_of_a_generated_certificate_is_warned_of(
    authority: Authority,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(kopf.WebhookServer(port=0, cadata=authority.pem, cadump=tmp_path / "dump.pem")) as running:
        assert get_bundle(running.configs[0]).encode() == authority.pem
        assert (tmp_path / "dump.pem").read_bytes() == authority.pem
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await send(running.configs[0])
    assert "API servers are told to trust another authority" in caplog.text


async def test_a_ready_made_context(authority: Authority, files: Files) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    async with serving(kopf.WebhookServer(port=0, context=context, cafile=files.ca)) as running:
        assert get_bundle(running.configs[0]).encode() == authority.pem
        assert (await send(running.configs[0]))[0] == 200
    assert context.verify_mode == ssl.CERT_NONE


async def test_a_ready_made_context_with_other_options(files: Files, tmp_path: pathlib.Path) -> None:
    client = Authority("clients").write(tmp_path / "client", "client")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    reviewer = Reviewer()
    server = kopf.WebhookServer(
        port=0,
        context=context,
        certfile=files.certificate,
        pkeyfile=files.key,
        cafile=files.ca,
        verify_cafile=client.ca,
    )
    async with serving(server, reviewer) as running:
        peer = trust(running.configs[0], certfile=client.certificate, keyfile=client.key)
        assert (await send(running.configs[0], context=peer))[0] == 200
    assert reviewer.calls[0]["sslpeer"]["issuer"] == ((("commonName", "clients"),),)


# --- client certificates ---


@pytest.fixture
def clients() -> Authority:
    return Authority("clients")


async def send_with_certificate(config: WebhookClientConfig, authority: Authority, directory: pathlib.Path) -> int:
    files = authority.write(directory / "client", "client.example.com")
    context = trust(config, certfile=files.certificate, keyfile=files.key)
    status, _ = await send(config, make_review(), context=context)
    return status


async def test_client_certificates_are_not_asked_for_by_default(tmp_path: pathlib.Path, clients: Authority) -> None:
    reviewer = Reviewer()
    async with serving(kopf.WebhookServer(port=0), reviewer) as running:
        assert await send_with_certificate(running.configs[0], clients, tmp_path) == 200
    assert reviewer.calls[0]["sslpeer"] is None


@pytest.mark.parametrize("option", ["file", "text", "der", "directory"])
async def test_client_certificates_are_verified(option: str, tmp_path: pathlib.Path, clients: Authority) -> None:
    (tmp_path / "ca.pem").write_bytes(clients.pem)
    choices: dict[str, dict[str, Any]] = {
        "file": {"verify_cafile": tmp_path / "ca.pem"},
        "text": {"verify_cadata": clients.pem.decode()},
        "der": {"verify_cadata": clients.der},
        "directory": {"verify_capath": make_directory(tmp_path / "certs", clients)},
    }
    reviewer = Reviewer()
    async with serving(kopf.WebhookServer(port=0, **choices[option]), reviewer) as running:
        config = running.configs[0]
        assert await send_with_certificate(config, clients, tmp_path) == 200
        assert (await send(config))[0] == 200  # it is optional
        with pytest.raises(aiohttp.ClientError):
            await send_with_certificate(config, Authority("others"), tmp_path)
    sslpeer = reviewer.calls[0]["sslpeer"]
    assert sslpeer["subject"] == ((("commonName", "client.example.com"),), (("emailAddress", "example@kopf.dev"),))
    assert sslpeer["issuer"] == ((("commonName", "clients"),),)
    assert {"version", "serialNumber", "notBefore", "notAfter"} <= sslpeer.keys()
    assert reviewer.calls[1]["sslpeer"] is None


def make_directory(path: pathlib.Path, authority: Authority) -> pathlib.Path:
    """Make a directory of hashed certificates, as OpenSSL wants it."""
    path.mkdir()
    (path / "ca.pem").write_bytes(authority.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(path / "ca.pem")
    openssl_hash = get_subject_hash(authority)
    (path / f"{openssl_hash:08x}.0").write_bytes(authority.pem)
    return path


def get_subject_hash(authority: Authority) -> int:
    """Calculate the hash of ``openssl x509 -hash``: SHA-1 of the canonical encoding of the name."""
    name = b"clients"  # canonical: UTF-8, in lower case, with no spaces around
    attribute = b"\x06\x03\x55\x04\x03" + b"\x0c" + bytes([len(name)]) + name
    sequence = b"\x30" + bytes([len(attribute)]) + attribute
    return int.from_bytes(hashlib.sha1(b"\x31" + bytes([len(sequence)]) + sequence).digest()[:4], "little")


async def test_client_certificates_can_be_required(tmp_path: pathlib.Path, clients: Authority) -> None:
    server = kopf.WebhookServer(port=0, verify_mode=ssl.CERT_REQUIRED, verify_cadata=clients.pem.decode())
    async with serving(server) as running:
        assert await send_with_certificate(running.configs[0], clients, tmp_path) == 200
        with pytest.raises(aiohttp.ClientError):
            await send(running.configs[0])


async def test_client_certificates_can_be_left_alone(tmp_path: pathlib.Path, clients: Authority) -> None:
    reviewer = Reviewer()
    server = kopf.WebhookServer(port=0, verify_mode=ssl.CERT_NONE, verify_cadata=clients.pem.decode())
    async with serving(server, reviewer) as running:
        assert await send_with_certificate(running.configs[0], Authority("others"), tmp_path) == 200
    assert reviewer.calls[0]["sslpeer"] is None


async def test_the_ca_bundle_is_for_clients_too_if_there_is_nothing_else(
    tmp_path: pathlib.Path,
    clients: Authority,
) -> None:
    files = clients.write(tmp_path / "tls", "localhost")
    options: dict[str, Any] = {"certfile": files.certificate, "pkeyfile": files.key, "cafile": files.ca}
    reviewer = Reviewer()
    async with serving(kopf.WebhookServer(port=0, **options), reviewer) as running:
        assert await send_with_certificate(running.configs[0], clients, tmp_path) == 200
    assert reviewer.calls[0]["sslpeer"] is not None
    others = Authority("others")
    async with serving(kopf.WebhookServer(port=0, verify_cadata=others.pem.decode(), **options)) as running:
        with pytest.raises(aiohttp.ClientError):
            await send_with_certificate(running.configs[0], clients, tmp_path)


@pytest.mark.parametrize(
    ("options", "cls", "error"),
    [
        ({"addr": "192.0.2.1"}, OSError, "cannot listen at 192.0.2.1"),
        *[
            ({"certfile": "cert.pem", "pkeyfile": "key.pem", option: "absent.pem"}, FileNotFoundError, r"absent\.pem")
            for option in ("certfile", "pkeyfile", "cafile", "verify_cafile")
        ],
        ({"certfile": "cert.pem", "pkeyfile": "../others/key.pem"}, ValueError, "do not fit together"),
        ({"pkeyfile": "key.pem"}, ValueError, "no certfile="),
        ({"verify_mode": ssl.CERT_REQUIRED}, ValueError, "nothing to verify them with"),
        ({"verify_cadata": "not a certificate"}, ValueError, "to verify the clients with"),
    ],
    ids=str,
)
async def test_what_cannot_be_served_is_explained(
    files: Files,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    cls: type[Exception],
    error: str,
) -> None:
    Authority().write(tmp_path / "others", "localhost")
    monkeypatch.chdir(files.ca.parent)
    with pytest.raises(cls, match=error):
        async with serving(kopf.WebhookServer(port=0, **options)):
            pass
