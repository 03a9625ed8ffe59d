"""TLS: whom the client trusts, whom it introduces itself as, and what if that changes while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import ssl
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.errors import APINetworkError
from kopf._client.http.api import APIClient
from kopf._settings.settings import OperatorSettings
from tests.authorities import Authority
from tests.client.scripted import Responder, ScriptedServer, never, reply


@pytest.fixture
def vault(empty_vault: Vault) -> Vault:
    return empty_vault


@contextlib.asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    await server.start(context)
    try:
        yield server
    finally:
        await server.stop()


def replace(path: pathlib.Path, content: bytes) -> None:
    """Replace the file at once, as the kubelet does."""
    temporary = path.with_suffix(".new")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def meet(people: list[str], *, status: int = 200) -> Responder:
    """Note whose the certificate of the client is."""

    async def respond(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        people.append(dict(pair for pairs in subject for pair in pairs)["commonName"])
        return web.json_response({}, status=status)

    return respond


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
async def test_the_server_is_verified(authority: Authority, vault: Vault, api: APIClient, scheme: str) -> None:
    async with serving(authority.make_server_context("127.0.0.1")) as server:
        server.on("GET /x", reply())
        vault.populate([ConnectionInfo(server=server.url.replace("https", scheme), ca_data=authority.pem)])
        await api.get("/x")


async def test_unknown_authorities(authority: Authority, vault: Vault, api: APIClient) -> None:
    async with serving(authority.make_server_context("127.0.0.1")) as server:
        vault.populate([ConnectionInfo(server=server.url, ca_data=Authority().pem)])
        with pytest.raises(APINetworkError, match=r"certificate verify failed.* check certificate-authority in the"):
            await api.get("/x")


async def test_other_names_are_refused_until_specified(authority: Authority, vault: Vault, api: APIClient) -> None:
    async with serving(authority.make_server_context("kubernetes.example.com")) as server:
        server.on("GET /x", reply(), reply())
        info = ConnectionInfo(server=server.url, ca_data=authority.pem)
        vault.populate([info])
        with pytest.raises(APINetworkError, match=r"for other names: check the address, or set tls-server-name"):
            await api.get("/x")
        vault.populate([dataclasses.replace(info, tls_server_name="kubernetes.example.com", priority=1)])
        await api.get("/x")
        vault.populate([ConnectionInfo(server=server.url, insecure=True, priority=2)])
        await api.get("/x")


async def test_sloppy_certificates(vault: Vault, api: APIClient, settings: OperatorSettings) -> None:
    authority = Authority(sloppy=True)
    async with serving(authority.make_server_context("127.0.0.1")) as server:
        server.on("GET /x", reply(), reply())
        settings.networking.strict_x509 = True
        info = ConnectionInfo(server=server.url, ca_data=authority.pem)
        vault.populate([info])
        with pytest.raises(APINetworkError, match=r"do not follow RFC 5280 .* settings.networking.strict_x509 = False"):
            await api.get("/x")

        # Credentials of one cluster can differ from the setting for all of them.
        vault.populate([dataclasses.replace(info, strict_x509=False, priority=1)])
        await api.get("/x")
        settings.networking.strict_x509 = False
        vault.populate([dataclasses.replace(info, priority=2)])
        await api.get("/x")


@pytest.mark.parametrize("strict", [True, False])
def test_strictness_by_the_setting_and_by_python(authority: Authority, strict: bool) -> None:
    info = ConnectionInfo(server="https://host", ca_data=authority.pem)
    default = ssl.create_default_context().verify_flags & ssl.VERIFY_X509_STRICT
    assert info.as_ssl_context().verify_flags & ssl.VERIFY_X509_STRICT == default
    flags = info.as_ssl_context(strict_x509=strict).verify_flags
    assert bool(flags & ssl.VERIFY_X509_STRICT) is strict
    own = dataclasses.replace(info, strict_x509=not strict).as_ssl_context(strict_x509=strict).verify_flags
    assert bool(own & ssl.VERIFY_X509_STRICT) is not strict


async def test_renewed_authorities_are_noticed_at_once(
    authority: Authority, vault: Vault, api: APIClient, tmp_path: pathlib.Path
) -> None:
    """The server has got a certificate of the new authority, and the file is replaced: the next request succeeds."""
    path = tmp_path / "ca.crt"
    path.write_bytes(authority.pem)
    async with serving(authority.make_server_context("127.0.0.1")) as server:
        server.on("GET /x", reply())
        info = ConnectionInfo(server=server.url, ca_path=path)
        vault.populate([info])
        await api.get("/x")
    renewed = Authority()
    async with serving(renewed.make_server_context("127.0.0.1")) as server:
        server.on("GET /x", reply(), reply())
        info = dataclasses.replace(info, server=server.url, priority=1)
        vault.populate([info])
        with pytest.raises(APINetworkError, match="certificate verify failed"):
            await api.get("/x")
        replace(path, renewed.pem)
        await api.get("/x")
        await api.get("/x")


@pytest.mark.fastforward
async def test_renewed_client_certificates_are_noticed_in_time(
    authority: Authority, vault: Vault, api: APIClient, tmp_path: pathlib.Path
) -> None:
    """New requests go by the new certificate, those in flight are not disturbed."""
    certificate, key, ca = tmp_path / "client.crt", tmp_path / "client.key", tmp_path / "ca.crt"
    ca.write_bytes(authority.pem)
    for path, content in zip((certificate, key), authority.sign("person"), strict=True):
        path.write_bytes(content)
    async with serving(authority.make_server_context("127.0.0.1", clients=authority)) as server:
        people: list[str] = []
        server.on("GET /x", meet(people), meet(people), meet(people))
        server.on("GET /slow", never)
        vault.populate(
            [ConnectionInfo(server=server.url, ca_path=ca, certificate_path=certificate, private_key_path=key)]
        )
        await api.get("/x")
        slow = asyncio.create_task(api.get("/slow", timeout=1000))
        await server.until("GET /slow", 1)

        new_certificate, new_key = authority.sign("same-person")
        replace(certificate, new_certificate)  # but not the key yet
        await asyncio.sleep(61)
        await api.get("/x")
        replace(key, new_key)
        await asyncio.sleep(61)
        await api.get("/x")
        assert people == ["person", "person", "same-person"]
        assert not slow.done()
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)


async def test_refused_client_certificates_are_renewed(
    authority: Authority, vault: Vault, api: APIClient, tmp_path: pathlib.Path
) -> None:
    """They are not given up if there are new ones in the same files."""
    both = tmp_path / "client.pem"
    both.write_bytes(b"".join(authority.sign("expired-person")))
    async with serving(authority.make_server_context("127.0.0.1", clients=authority)) as server:
        people: list[str] = []
        server.on("GET /x", meet(people), meet(people, status=401), meet(people))
        vault.populate([ConnectionInfo(server=server.url, ca_data=authority.pem, certificate_path=both)])
        await api.get("/x")
        replace(both, b"".join(authority.sign("renewed-person")))
        await api.get("/x")
        assert people == ["expired-person", "expired-person", "renewed-person"]


async def test_vanished_files_are_not_a_problem(
    authority: Authority, vault: Vault, api: APIClient, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(authority.pem)
    async with serving(authority.make_server_context("127.0.0.1")) as server:
        server.on("GET /x", reply())
        vault.populate([ConnectionInfo(server=server.url, ca_path=path)])
        path.unlink()
        connection = await vault.acquire()
        assert not vault.renew(connection)
        vault.release(connection)
        await api.get("/x")
