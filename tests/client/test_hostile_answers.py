"""What the server, or whoever is on the way to it, can answer; and what is said of that, with no secrets."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import re
import traceback
from typing import Any

import pytest
import yaml
from aiohttp import web

from kopf._client.auth.credentials import ConnectionInfo, LoginError, redact
from kopf._client.auth.kubeconfig import login_with_kubeconfig, read_kubeconfigs
from kopf._client.auth.vault import Vault
from kopf._client.errors import APIClientError, APIError, APINetworkError, APIServerError, make_error
from kopf._client.http.api import APIClient
from kopf._client.http.connections import Connection
from kopf._settings.settings import NetworkingSettings, OperatorSettings
from tests.client.proxying import HttpProxy
from tests.client.scripted import ScriptedServer, reply
from tests.client.test_kubeconfig import PEM, make_config, write

SECRET = "S3cr3t"


# ------------------------------------------------------------------ redirects


def _redirect(status: int, url: str) -> Any:
    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": f"{url}/other?token={SECRET}"})

    return respond


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
async def test_redirects_are_not_followed(server: ScriptedServer, api: APIClient, method: str, status: int) -> None:
    server.on(f"{method} /x", _redirect(status, server.url))
    with pytest.raises(APIError, match="Redirects are not followed; this one is to 'http.*/other'") as info:
        await api.request(method, "/x", payload={"secret": SECRET} if method != "GET" else None, backoffs=())
    assert info.value.status == status
    assert not isinstance(info.value, APIClientError | APIServerError)
    assert SECRET not in str(info.value)
    assert len(server.requests) == 1


async def test_redirects_of_streams_are_not_followed(server: ScriptedServer, api: APIClient) -> None:
    server.on("WATCH /x", _redirect(302, server.url))
    with pytest.raises(APIError, match="Redirects are not followed"):
        async for _ in api.stream("/x", params={"watch": "true"}):
            pass
    assert len(server.requests) == 1


# ------------------------------------------------------------------ pages for people


PAGE = "<!DOCTYPE html>\n<html><title>Log in, please</title>" + "x" * 10_000


async def _show_page(request: web.Request) -> web.StreamResponse:
    return web.Response(text=PAGE, content_type="text/html")


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
async def test_pages_are_no_answers(
    server: ScriptedServer, api: APIClient, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    """They come from whatever is on the way, e.g. where one has to log in; mostly, not for long."""
    server.on(f"{method} /x", _show_page, reply({"a": 1}))
    assert await api.request(method, "/x", payload=None if method == "GET" else {}, backoffs=(0,)) == b'{"a": 1}'
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    expected = rf"{method} {server.url}/x: .* an HTML page for people: <!DOCTYPE html> <html><title>Log in, please<"
    assert re.search(expected, warning.getMessage())
    assert len(warning.getMessage()) < 700
    assert warning.exc_info is None


async def test_pages_instead_of_streams(server: ScriptedServer, api: APIClient) -> None:
    server.on("WATCH /x", _show_page)
    with pytest.raises(APINetworkError, match="not from Kubernetes.*Log in, please"):
        async for _ in api.stream("/x", params={"watch": "true"}):
            pass


# ------------------------------------------------------------------ bodies of errors


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 3000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"kind":"Status","details":' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'{"kind":"Status","details":5,"code":"x","reason":{},"message":[1]}',
        b"\xff\xfe\x00",
        b"\x1b[2J\n" * 10_000,
        b'{"kind":"Status","details":{"causes":5,"retryAfterSeconds":"x"},"code":{}}',
    ],
    ids=lambda body: repr(body[:40]),
)
@pytest.mark.parametrize("status", [302, 400, 410, 429, 500])
def test_bodies_of_errors(body: bytes, status: int) -> None:
    error = make_error(status=status, method="GET", path="/", headers={}, body=body)
    assert error.status == status
    assert len(str(error)) < 1000
    assert isinstance(error.details, dict)
    assert error.reason is None or isinstance(error.reason, str)
    assert error.code is None or isinstance(error.code, int)


# ------------------------------------------------------------------ secrets in URLs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://user:S3cr3t@host:3128/x", "http://***@host:3128/x"),
        ("url=URL('https://user:S3c@r3t@host')", "url=URL('https://***@host')"),
        ("http://host/a@b mailto:x@y", "http://host/a@b mailto:x@y"),
        ("http://user:S3'cr\"3t@host", "http://***@host"),
    ],
)
def test_redaction(text: str, expected: str) -> None:
    assert redact(text) == expected


USERINFOS = [f"user:{prefix}{SECRET}/x" for prefix in ("", "'", "\"'", "/", " ", "@", "#", "?", "\n")]


@pytest.mark.parametrize("userinfo", USERINFOS)
@pytest.mark.parametrize("scheme", ["http://", "socks5://", "ftp://", "//", ""])
async def test_secrets_are_not_shown_by_the_credentials(
    caplog: pytest.LogCaptureFixture, scheme: str, userinfo: str
) -> None:
    proxy_url = f"{scheme}{userinfo}@proxy"
    info = ConnectionInfo(server=f"https://{userinfo}@host", proxy_url=proxy_url, token=SECRET, insecure=True)
    assert SECRET not in repr(info)
    assert "proxy" in repr(info)
    text = ""
    try:
        await Connection(info, NetworkingSettings()).session.close()
    except ValueError as e:
        text = "".join(traceback.format_exception(e))
    assert SECRET not in text
    assert SECRET not in caplog.text


async def test_secrets_of_proxies_are_not_in_the_errors(settings: OperatorSettings) -> None:
    proxy, vault = HttpProxy(credentials=("user", "other")), Vault(settings)
    async with proxy.serve():
        url = proxy.url.replace("other", SECRET)
        vault.populate([ConnectionInfo(server=f"https://user:{SECRET}@host", proxy_url=url, insecure=True)])
        with pytest.raises(APINetworkError, match="407") as info:
            await APIClient(vault, settings).get("/x", backoffs=())
        await vault.close()
    assert SECRET not in "".join(traceback.format_exception(info.value))


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\n : \r\n\r\n"], ids=repr)
@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_secrets_are_not_in_the_errors_when_the_proxy_is_none(
    settings: OperatorSettings, scheme: str, answer: bytes
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port, vault = server.sockets[0].getsockname()[1], Vault(settings)
    proxy_url = f"http://user:{SECRET}@127.0.0.1:{port}"
    userinfo = f"user:{SECRET}@"
    info = ConnectionInfo(server=f"{scheme}://{userinfo}host", proxy_url=proxy_url, insecure=True)
    async with server:
        vault.populate([info])
        with pytest.raises(APINetworkError) as caught:
            await APIClient(vault, settings).get("/x", backoffs=())
        await vault.close()
    cause = caught.value.__cause__
    assert cause is not None
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(cause.__cause__)


# ------------------------------------------------------------------ kubeconfigs


@pytest.mark.parametrize(
    "text",
    [
        f"users:\n- name: x\n  user: {{token: {SECRET}: x}}\n",
        f"token: '{SECRET}",
        f"\t{SECRET}",
        f"a: &{SECRET} [*b]",
        f"a: !{SECRET} b",
        f"{SECRET}: 2020-99-99\nb: 2020-99-99",
        f"? [{SECRET}]\n: {{}}\n? {{}}\n: a",
        f"{SECRET}: \x00",
        "[" * 3000 + SECRET,
        f"*{SECRET}",
    ],
    ids=repr,
)
def test_errors_of_syntax_show_no_secrets(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(LoginError, match="kubeconfig .* (is not valid YAML|is not a mapping)") as info:
        read_kubeconfigs([str(path)])
    assert SECRET not in "".join(traceback.format_exception(info.value)).replace(text, "")


def test_errors_of_syntax_say_where(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config"
    path.write_text(f"users:\n- name: x\n  user: {{token: {SECRET}: x}}\n")
    with pytest.raises(LoginError, match=r"is not valid YAML: line 3, column \d+\.$"):
        read_kubeconfigs([str(path)])


@pytest.mark.parametrize("value", ["false", "true", "no", 1, 0, [], {}])
def test_verification_is_switched_off_by_booleans_only(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    config = write(tmp_path / "config", make_config({"insecure-skip-tls-verify": value}))
    monkeypatch.setenv("KUBECONFIG", str(config))
    with pytest.raises(LoginError, match="'insecure-skip-tls-verify' that is not true or false, but"):
        login_with_kubeconfig()
    if not isinstance(value, bool):
        with pytest.raises(ValueError, match="must be a boolean"):
            ConnectionInfo(server="https://host", insecure=value)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("key", ["certificate-authority", "certificate-authority-data"])
def test_verification_is_not_switched_off_with_an_authority(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    cluster = {"insecure-skip-tls-verify": True, key: PEM.decode()}
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "config", make_config(cluster))))
    with pytest.raises(LoginError, match="both a certificate authority and"):
        login_with_kubeconfig()


async def test_insecure_connections_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    info = ConnectionInfo(server=f"https://user:{SECRET}@insecure-host", insecure=True)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await Connection(info, NetworkingSettings()).session.close()
    assert len([text for text in caplog.messages if "insecure-host" in text and "is not verified" in text]) == 1
    assert SECRET not in caplog.text


EXEC: dict[str, Any] = {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}


USERS: list[dict[str, Any]] = [
    {"token": 5},
    {"token": [SECRET]},
    {"tokenFile": {}},
    {"client-key-data": 5},
    {"client-certificate": []},
    {"username": {}, "password": SECRET},
    {"auth-provider": "x"},
    {"auth-provider": {"name": []}},
    {"exec": "x"},
    {"exec": []} | {"token": 1},
    {"exec": {"command": 5}},
    {"exec": {"command": ["x"]}},
    {"exec": {**EXEC, "args": "x"}},
    {"exec": {**EXEC, "args": 5}},
    {"exec": {**EXEC, "args": ["\0"]}},
    {"exec": {**EXEC, "env": 5}},
    {"exec": {**EXEC, "env": "x"}},
    {"exec": {**EXEC, "env": [5]}},
    {"exec": {**EXEC, "env": [{"name": "x"}]}},
    {"exec": {**EXEC, "env": [{"value": SECRET}]}},
    {"exec": {**EXEC, "env": [{"name": "a=b", "value": SECRET}]}},
    {"exec": {**EXEC, "interactiveMode": []}},
    {"exec": {**EXEC, "apiVersion": {}}},
    {"exec": {**EXEC, "env": [{"name": "x", "value": f"{SECRET}\0"}]}},
]


@pytest.mark.parametrize(
    "config",
    [
        {"users": [{"name": "usr", "user": "text"}]},
        {"users": "text"},
        {"users": 5},
        {"users": [5]},
        {"users": [{}]},
        {"users": [{"name": ["x"]}]},
        {"users": [{"name": {}}]},
        {"clusters": {"cls": {}}},
        {"contexts": [[]]},
        {"current-context": {}},
        {"current-context": ["ctx"]},
        {"contexts": [{"name": "ctx", "context": {"cluster": [], "user": {}}}]},
        {"clusters": [{"name": "cls", "cluster": {"server": 5}}]},
        {"clusters": [{"name": "cls", "cluster": [5]}]},
        {"clusters": [{"name": "cls", "cluster": {"server": "https://host", "certificate-authority": 5}}]},
        *({"users": [{"name": "usr", "user": user}]} for user in USERS),
    ],
    ids=str,
)
def test_malformed_kubeconfigs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump({**make_config(), **config}))
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(LoginError) as info:
        login_with_kubeconfig()
    assert SECRET not in "".join(traceback.format_exception(info.value))
