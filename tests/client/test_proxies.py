"""Proxies: connections through them, and the errors when it is not possible."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yarl

from kopf._client.auth.credentials import ConnectionInfo, LoginError
from kopf._client.auth.vault import Vault
from kopf._client.errors import APINetworkError
from kopf._client.http.aiohttp_session import open_aiohttp_session
from kopf._client.http.api import APIClient
from kopf._settings.settings import OperatorSettings
from tests.authorities import Authority
from tests.client.proxying import HttpProxy, Proxy, SocksProxy
from tests.client.scripted import ScriptedServer, line, obj, reply, stream
from tests.patience import PATIENCE

NAME = "kubernetes.internal"
"""A name that only the proxies can resolve."""

HOSTS = {NAME: "127.0.0.1"}


@pytest.fixture
def vault(empty_vault: Vault) -> Vault:
    return empty_vault


@pytest.fixture
async def secure_server(authority: Authority) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    await server.start(authority.make_server_context(NAME))
    yield server
    await server.stop()


def rename(url: str) -> str:
    return str(yarl.URL(url).with_host(NAME))


@pytest.mark.parametrize("cls", [HttpProxy, SocksProxy])
@pytest.mark.parametrize("credentials", [None, ("user", "p@ss")])
async def test_requests_and_streams_over_tls(
    cls: type[Proxy],
    credentials: tuple[str, str] | None,
    authority: Authority,
    secure_server: ScriptedServer,
    vault: Vault,
    api: APIClient,
) -> None:
    proxy = cls(HOSTS, credentials)
    async with proxy.serve():
        url = str(yarl.URL(proxy.url.replace("p@ss", "p%40ss")))
        server = rename(secure_server.url)
        vault.populate([ConnectionInfo(server=server, ca_data=authority.pem, proxy_url=url, token="t")])
        secure_server.on("GET /x", reply({"a": 1}))
        secure_server.on("WATCH /w", stream(line("ADDED", obj("a", 1))))
        assert await api.get("/x") == b'{"a": 1}'
        async with contextlib.aclosing(api.stream("/w", params={"watch": "true"})) as batches:
            assert len([lines async for lines in batches if lines]) == 1
        await vault.close()
    assert proxy.requests == [f"{NAME}:{yarl.URL(server).port}"] * len(proxy.requests)
    assert proxy.requests
    assert secure_server.requests[0].headers["Authorization"] == "Bearer t"
    assert "Proxy-Authorization" not in secure_server.requests[0].headers


async def test_proxies_over_tls(
    authority: Authority, secure_server: ScriptedServer, vault: Vault, api: APIClient
) -> None:
    proxy = HttpProxy(HOSTS)
    async with proxy.serve(authority.make_server_context("127.0.0.1")):
        assert proxy.url.startswith("https://")
        server = rename(secure_server.url)
        vault.populate([ConnectionInfo(server=server, ca_data=authority.pem, proxy_url=proxy.url)])
        secure_server.on("GET /x", reply())
        await api.get("/x")
        await vault.close()
    assert len(proxy.requests) == 1


@pytest.mark.parametrize("cls", [HttpProxy, SocksProxy])
async def test_servers_without_tls(cls: type[Proxy], server: ScriptedServer, vault: Vault, api: APIClient) -> None:
    proxy = cls(HOSTS)
    async with proxy.serve():
        vault.populate([ConnectionInfo(server=rename(server.url), proxy_url=proxy.url)])
        server.on("GET /x", reply())
        await api.get("/x")
        await vault.close()
    assert len(proxy.requests) == 1


async def test_names_of_certificates_behind_proxies(
    authority: Authority, secure_server: ScriptedServer, vault: Vault, api: APIClient
) -> None:
    proxy = HttpProxy()
    async with proxy.serve():
        info = ConnectionInfo(
            server=secure_server.url, ca_data=authority.pem, proxy_url=proxy.url, tls_server_name=NAME
        )
        vault.populate([info])
        secure_server.on("GET /x", reply())
        await api.get("/x")
        await vault.close()
    assert len(proxy.requests) == 1


async def test_names_of_certificates_behind_socks(vault: Vault) -> None:
    info = ConnectionInfo(server="https://host", proxy_url="socks5://host", tls_server_name="name")
    with pytest.raises(LoginError, match="The TLS server name cannot be used with SOCKS proxies"):
        vault.populate([info])


async def test_distrusted_servers_behind_socks(secure_server: ScriptedServer, vault: Vault, api: APIClient) -> None:
    proxy = SocksProxy(HOSTS)
    async with proxy.serve():
        info = ConnectionInfo(server=rename(secure_server.url), ca_data=Authority().pem, proxy_url=proxy.url)
        vault.populate([info])
        with pytest.raises(APINetworkError, match="certificate verify failed.* check certificate-authority"):
            await api.get("/x")
        await vault.close()


@pytest.mark.parametrize(
    ("cls", "message"), [(HttpProxy, "407.* The proxy refuses the request. Add the user"), (SocksProxy, "[Aa]uth")]
)
async def test_refusals_of_proxies(
    cls: type[Proxy], message: str, authority: Authority, secure_server: ScriptedServer, vault: Vault, api: APIClient
) -> None:
    proxy = cls(HOSTS, ("user", "password"))
    async with proxy.serve():
        url = str(yarl.URL(proxy.url).with_password("wrong"))
        vault.populate([ConnectionInfo(server=rename(secure_server.url), ca_data=authority.pem, proxy_url=url)])
        with pytest.raises(APINetworkError, match=message):
            await api.get("/x")
        await vault.close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "socks5://127.0.0.1:1"])
async def test_absent_proxies(url: str, vault: Vault, api: APIClient) -> None:
    vault.populate([ConnectionInfo(server="https://host", proxy_url=url)])
    with pytest.raises(APINetworkError, match=r"GET https://host/x: .*proxy") as info:
        await api.get("/x")
    assert "127.0.0.1:1" in str(info.value)


async def test_unreachable_servers_behind_socks(vault: Vault, api: APIClient) -> None:
    proxy = SocksProxy()
    async with proxy.serve():
        vault.populate([ConnectionInfo(server="https://127.0.0.1:1", proxy_url=proxy.url)])
        with pytest.raises(APINetworkError, match=r"GET https://127.0.0.1:1/x: .*unreachable"):
            await api.get("/x")
        await vault.close()


@pytest.mark.parametrize("scheme", ["", "http", "socks5"])
async def test_interrupted_handshakes_leave_nothing_behind(scheme: str, vault: Vault, api: APIClient) -> None:
    """Those who exit in the middle of it, do not have to wait, and the connection is closed."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.setblocking(False)
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        proxy_url = f"{scheme}://{address}" if scheme else None
        vault.populate([ConnectionInfo(server=f"https://{address}", insecure=True, proxy_url=proxy_url)])
        for _ in range(5):
            task = asyncio.create_task(api.get("/x"))
            connection, _ = await asyncio.get_running_loop().sock_accept(mute)
            with connection:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(task, PATIENCE)


@pytest.mark.parametrize("environment", [True, False])
async def test_proxies_of_the_environment(
    environment: bool,
    server: ScriptedServer,
    vault: Vault,
    api: APIClient,
    settings: OperatorSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.networking.trust_env = environment
    proxy = HttpProxy()
    async with proxy.serve():
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        vault.populate([ConnectionInfo(server=server.url)])
        server.on("GET /x", reply())
        await api.get("/x")
        await vault.close()
    assert len(proxy.requests) == (1 if environment else 0)


@pytest.mark.parametrize("url", ["ftp://host", "host:3128", "http://", "socks5://"])
async def test_unknown_kinds_of_proxies(url: str, vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LoginError, match=r"The proxy '.*' (is not a URL of any known kind|has no host)"):
        vault.populate([ConnectionInfo(server="https://host", proxy_url=url)])


async def test_socks_without_the_library(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def fake_import(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "aiohttp_socks":
            raise ModuleNotFoundError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fake_import)
    error = r"SOCKS proxy 'socks5://u:\*\*\*@host:1080' needs the library aiohttp-socks: pip install 'kopf\[socks\]'"
    with pytest.raises(LoginError, match=error):
        vault.populate([ConnectionInfo(server="https://host", proxy_url="socks5://u:secret@host:1080")])


@pytest.mark.parametrize(
    ("url", "port"), [("socks5://host", 1080), ("socks5h://host:1", 1), ("socks4://host", 1080), ("socks4a://h", 1080)]
)
async def test_kinds_of_socks(url: str, port: int) -> None:
    session = open_aiohttp_session(ConnectionInfo(server="https://host", proxy_url=url), {}, None, trust_env=False)
    assert session.raw._default_proxy is None
    assert session.raw.connector._proxy_port == port  # type: ignore[union-attr]
    await session.close()
