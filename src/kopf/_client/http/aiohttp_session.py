"""
Sessions of ``aiohttp``: for proxies, and for sessions that login handlers have made.

The library supports HTTP proxies itself, with ``CONNECT`` for TLS. SOCKS (RFC 1928) needs an optional library. The
proxy always resolves host names, as with kubectl: local names mean nothing behind it.

The library takes 8 MiB of memory, so it is imported only for such sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any

import aiohttp
import yarl
from aiohttp.connector import Connection
from multidict import CIMultiDict, CIMultiDictProxy

from kopf._client.auth.credentials import ConnectionInfo, redact_url
from kopf._client.http.direct_session import KEEPALIVE_TIMEOUT
from kopf._client.http.transport import (
    ConnectTimeoutError,
    Limits,
    Response,
    SilenceError,
    TransportError,
    UnreachableError,
)

Errors = tuple[type[Exception], ...]

ERRORS: Errors = (aiohttp.ClientError, OSError)
"""All errors that the network can cause."""

_LARGE_BODY = 2**20  # aiohttp complains of larger bodies if they are not streamed


_FAREWELL_TIMEOUT = 1.0
"""The longest time of goodbyes, in seconds: a server that does not respond must not delay the exit."""


_HTTP_SCHEMES = ("http", "https")
_SOCKS_SCHEMES = {"socks4": "SOCKS4", "socks4a": "SOCKS4", "socks5": "SOCKS5", "socks5h": "SOCKS5"}
_SOCKS_PORT = 1080


def _parse(proxy_url: str) -> yarl.URL:
    """Parse the URL. The errors of the library quote parts of passwords, so they are neither shown nor chained."""
    with contextlib.suppress(ValueError):
        if not any(char.isspace() for char in proxy_url):  # the library would drop or encode them
            return yarl.URL(proxy_url)
    raise ValueError(
        f"The proxy {redact_url(proxy_url)!r} is not a proper URL. Encode special characters of its user & password: "
        "e.g. '/' is '%2F', '@' is '%40'."
    )


def _make_socks_connector(url: yarl.URL, context: ssl.SSLContext | bool) -> tuple[aiohttp.BaseConnector, Errors]:
    """Make the connector to the proxy. Return it with its own classes of errors."""
    try:
        import aiohttp_socks
    except ImportError as exc:
        raise ValueError(
            f"The SOCKS proxy {_show(url)} needs the library aiohttp-socks: pip install 'kopf[socks]'."
        ) from exc
    if not url.host:
        raise ValueError(f"The proxy {_show(url)} has no host.")
    connector = aiohttp_socks.ProxyConnector(
        proxy_type=aiohttp_socks.ProxyType[_SOCKS_SCHEMES[url.scheme]],
        host=url.host,
        port=url.explicit_port or _SOCKS_PORT,
        username=url.user,
        password=url.password,
        rdns=True,
        limit=0,
        ssl=context,
        keepalive_timeout=KEEPALIVE_TIMEOUT,
    )
    return connector, (aiohttp_socks.ProxyError, aiohttp_socks.ProxyConnectionError, aiohttp_socks.ProxyTimeoutError)


def _drop_secrets(exc: Exception) -> None:
    """
    Remove the credentials from the request that the error knows: all tracebacks show it, as a cause.

    It can be the request to the proxy, if the proxy refuses it, or does not speak HTTP at all.
    """
    if isinstance(exc, aiohttp.ClientResponseError):
        info = exc.request_info
        url, real_url = info.url.with_user(None), info.real_url.with_user(None)
        exc.request_info = aiohttp.RequestInfo(url, info.method, CIMultiDictProxy(CIMultiDict()), real_url)
        exc.args = (exc.request_info, *exc.args[1:])


def _get_hint(exc: Exception) -> str | None:
    """
    Advise on the failed connection; ``None`` if the proxy is not the cause.

    SOCKS errors need no advice.
    """
    if isinstance(exc, aiohttp.ClientHttpProxyError):
        advice = " Add the user and the password to its URL." if exc.status == 407 else ""
        return f"The proxy refuses the request.{advice}"
    if isinstance(exc, aiohttp.ClientProxyConnectionError):
        return "The proxy cannot be reached: check proxy-url in the kubeconfig."
    return None


def _show(url: yarl.URL) -> str:
    return repr(str(url.with_password("***")) if url.password else redact_url(str(url)))


class Closings:
    """
    The connections of one session that are not closed yet.

    When a response is abandoned (e.g. a watch stream stops), its TLS goodbye continues in the background. Nobody waits
    for it: neither the session at its end, nor the event loop that ends right afterwards. So, sockets would stay open.
    They cannot be aborted at once instead: some event loops log an error with a traceback if unread data remains.
    """

    def __init__(self) -> None:
        self._pending: dict[asyncio.Future[None], asyncio.Transport] = {}

    def follow(self, connection: Connection) -> None:
        """Remember the connection until it is closed."""
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            return
        closed = protocol.closed
        if closed is not None and closed not in self._pending:
            self._pending[closed] = transport
            closed.add_done_callback(self._forget)

    def _forget(self, closed: asyncio.Future[None]) -> None:
        del self._pending[closed]
        if not closed.cancelled():
            closed.exception()  # an error that nobody retrieves would be reported

    async def wait(self) -> None:
        """Wait until all connections are closed. Abort the ones that do not close in time."""
        if self._pending:
            await asyncio.wait(self._pending, timeout=_FAREWELL_TIMEOUT)
        for transport in list(self._pending.values()):
            transport.abort()  # transports of uvloop have it, too
        if self._pending:
            await asyncio.wait(self._pending, timeout=_FAREWELL_TIMEOUT)

    def make_response_class(self) -> type[aiohttp.ClientResponse]:
        """Make a class of responses that follows their connections."""

        class FollowedResponse(aiohttp.ClientResponse):
            """A response whose connection is followed."""

            def start(response, connection: Connection) -> Coroutine[Any, Any, aiohttp.ClientResponse]:
                """Begin to read the response. Here, ``self`` are the closings, and ``response`` is the response."""
                self.follow(connection)
                return super().start(connection)

        return FollowedResponse


class AiohttpSession:
    """A session of the library with our interface and errors, see :class:`kopf._client.http.transport.Session`."""

    def __init__(
        self,
        raw: aiohttp.ClientSession,
        server: str,
        *,
        server_hostname: str | None = None,
        errors: Errors = ERRORS,
        closings: Closings | None = None,
    ) -> None:
        self.raw = raw
        """The session of the library."""
        self._base = server.rstrip("/")
        self._server_hostname = server_hostname
        self._errors = errors
        self._closings = closings

    @property
    def closed(self) -> bool:
        """Whether it is closed. The makers of ready-made sessions can close them."""
        return self.raw.closed

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Replace some headers."""
        self.raw.headers.update(headers)

    def retire(self) -> None:
        """Do nothing: the library drops unused connections in time, and ready-made sessions can be shared."""

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str] | None, limits: Limits
    ) -> AsyncIterator[Response]:
        """Make a request."""
        try:
            async with self.raw.request(
                method,
                yarl.URL(self._base + target, encoded=True),
                data=io.BytesIO(body) if body is not None and len(body) >= _LARGE_BODY else body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(
                    total=limits.total, sock_connect=limits.connect, sock_read=limits.inactivity
                ),
                server_hostname=self._server_hostname,
                raise_for_status=False,  # ready-made sessions can have it, but the body is needed
                allow_redirects=False,  # a redirect would take the body to any server
            ) as response:
                yield _AiohttpResponse(response)
        except self._errors as exc:
            _drop_secrets(exc)
            raise _translate(exc) from exc

    async def close(self) -> None:
        """Close all connections."""
        await self.raw.close()
        if self._closings is not None:
            await self._closings.wait()


def open_aiohttp_session(
    info: ConnectionInfo, headers: dict[str, str], context: ssl.SSLContext | None, *, trust_env: bool
) -> AiohttpSession:
    """
    Open a session through the proxy, or as the environment says, with these TLS settings for the server.

    Call it inside of an event loop. Raises :class:`ValueError` if the kind of proxy is not supported.
    """
    proxy_url, url = info.proxy_url, _parse(info.proxy_url or "")
    is_socks = url.scheme in _SOCKS_SCHEMES
    if is_socks and info.tls_server_name is not None:
        raise ValueError(
            "The TLS server name cannot be used with SOCKS proxies: use that name in the address of the server."
        )
    if proxy_url and not is_socks and (url.scheme not in _HTTP_SCHEMES or not url.host):
        known = ", ".join([*_HTTP_SCHEMES, *_SOCKS_SCHEMES])
        raise ValueError(f"The proxy {_show(url)} is not a URL of any known kind ({known}).")
    tls: ssl.SSLContext | bool = True if context is None else context
    errors: Errors = ()
    if is_socks:
        connector, errors = _make_socks_connector(url, tls)
    else:
        # Every watch stream occupies one TCP connection: with a limit, they would starve regular requests.
        connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=KEEPALIVE_TIMEOUT)
    closings = Closings()
    raw = aiohttp.ClientSession(
        connector=connector,
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=closings.make_response_class(),
        proxy=None if is_socks else proxy_url,
        trust_env=trust_env,
    )
    return AiohttpSession(
        raw, info.server, server_hostname=info.tls_server_name, errors=(*ERRORS, *errors), closings=closings
    )


class _AiohttpResponse:
    def __init__(self, raw: aiohttp.ClientResponse) -> None:
        self._raw = raw

    @property
    def status(self) -> int:
        return self._raw.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._raw.headers

    async def read_chunk(self) -> bytes:
        return await self._raw.content.readany()


def _translate(exc: Exception) -> OSError:
    text = str(exc) or type(exc).__name__
    match exc:
        case aiohttp.ConnectionTimeoutError():
            return ConnectTimeoutError(text)
        case aiohttp.ServerTimeoutError():
            return SilenceError(text)
        case TimeoutError():
            return TimeoutError(*exc.args)
        case aiohttp.ClientConnectorError():
            error: TransportError = UnreachableError(text)
        case _:
            error = TransportError(text)
    error.hint = _get_hint(exc)
    return error
