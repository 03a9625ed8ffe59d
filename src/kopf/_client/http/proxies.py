"""
Ways to the server by ``aiohttp``: through an HTTP(S) proxy, through a SOCKS one, or as the environment says.

HTTP proxies are what the HTTP client does itself, with ``CONNECT`` for TLS. SOCKS (RFC 1928) is for an optional
library; host names are always resolved by the proxy, as kubectl does: local names mean nothing behind it.
"""

from __future__ import annotations

import contextlib
import ssl

import aiohttp
import yarl
from multidict import CIMultiDict, CIMultiDictProxy

from kopf._client.auth.credentials import redact_url
from kopf._client.http.direct_session import KEEPALIVE_TIMEOUT
from kopf._values.records import FrozenRecord

_HTTP_SCHEMES = ("http", "https")
_SOCKS_SCHEMES = {"socks4": "SOCKS4", "socks4a": "SOCKS4", "socks5": "SOCKS5", "socks5h": "SOCKS5"}
_SOCKS_PORT = 1080


class Route(FrozenRecord, frozen=True):
    """How to get to the server."""

    connector: aiohttp.BaseConnector
    http_proxy: str | None = None
    """The proxy for the HTTP client to use on its own, if any."""
    errors: tuple[type[Exception], ...] = (aiohttp.ClientError, OSError)
    """Everything that means that the network is to blame."""
    is_socks: bool = False


def make_route(proxy_url: str | None, context: ssl.SSLContext | bool) -> Route:
    """
    Make a route through the proxy, or as the environment says, with these TLS settings at the other end.

    Must be called inside of an event loop. Raises :class:`ValueError` if the proxy is of an unsupported kind.
    """
    url = _parse(proxy_url or "")
    if url.scheme in _SOCKS_SCHEMES:
        return _make_socks_route(url, context)
    if proxy_url and (url.scheme not in _HTTP_SCHEMES or not url.host):
        known = ", ".join([*_HTTP_SCHEMES, *_SOCKS_SCHEMES])
        raise ValueError(f"The proxy {_show(url)} is not a URL of any known kind ({known}).")
    # Every watch stream occupies one TCP connection: with a limit, they would starve regular requests.
    connector = aiohttp.TCPConnector(limit=0, ssl=context, keepalive_timeout=KEEPALIVE_TIMEOUT)
    return Route(connector, http_proxy=proxy_url)


def _parse(proxy_url: str) -> yarl.URL:
    """The errors of the library quote parts of passwords with slashes, so they are neither shown nor chained."""
    with contextlib.suppress(ValueError):
        if not any(char.isspace() for char in proxy_url):  # they would be dropped or encoded: never meant
            return yarl.URL(proxy_url)
    raise ValueError(
        f"The proxy {redact_url(proxy_url)!r} is not a proper URL. Encode special characters of its user & password: "
        "e.g. '/' is '%2F', '@' is '%40'."
    )


def _make_socks_route(url: yarl.URL, context: ssl.SSLContext | bool) -> Route:
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
    errors = (aiohttp_socks.ProxyError, aiohttp_socks.ProxyConnectionError, aiohttp_socks.ProxyTimeoutError)
    return Route(connector, errors=(aiohttp.ClientError, OSError, *errors), is_socks=True)


def drop_secrets(exc: Exception) -> None:
    """
    Remove the credentials from what the error knows of its request: it is in all tracebacks, as a cause.

    The request can be that to the proxy, whether the proxy refuses it, or answers with no HTTP at all.
    """
    if isinstance(exc, aiohttp.ClientResponseError):
        info = exc.request_info
        url, real_url = info.url.with_user(None), info.real_url.with_user(None)
        exc.request_info = aiohttp.RequestInfo(url, info.method, CIMultiDictProxy(CIMultiDict()), real_url)
        exc.args = (exc.request_info, *exc.args[1:])


def get_hint(exc: Exception) -> str | None:
    """
    Get what to do about the failed connection; ``None`` if it is not about the proxy.

    The errors of SOCKS speak for themselves.
    """
    if isinstance(exc, aiohttp.ClientHttpProxyError):
        advice = " Add the user and the password to its URL." if exc.status == 407 else ""
        return f"It is the proxy that refuses.{advice}"
    if isinstance(exc, aiohttp.ClientProxyConnectionError):
        return "It is the proxy that cannot be reached: check proxy-url in the kubeconfig."
    return None


def _show(url: yarl.URL) -> str:
    return repr(str(url.with_password("***")) if url.password else redact_url(str(url)))
