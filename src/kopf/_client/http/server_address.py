"""The address of a server: its URL, parsed for connections and requests."""

from __future__ import annotations

import base64
import re
import urllib.parse

from kopf._client.auth.credentials import redact_url
from kopf._values.records import FrozenRecord

_PORTS = {"http": 80, "https": 443}
_PATH = re.compile(r"[!-~]*")


class ServerAddress(FrozenRecord, frozen=True):
    """The address of a server."""

    url: str
    """The URL without the user and password, and without the slash at the end."""
    host: str
    port: int
    is_secure: bool
    authority: str
    """The header ``Host``."""
    path: str
    """The prefix of all paths; usually empty."""
    authorization: str | None
    """The header ``Authorization``, if the URL contains a user and password."""


def parse_server(url: str) -> ServerAddress:
    """Parse the URL of a server. Raises :class:`ValueError`, without secrets, if it is not a URL of HTTP."""
    error = ValueError(f"The server {redact_url(url)!r} is not a proper URL of http:// or https://.")
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = _encode_host(parts.hostname or ""), parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise error from None  # the errors of the library quote parts of passwords
    path = parts.path.rstrip("/")
    if not host or any(char.isspace() or not char.isprintable() for char in url) or not _PATH.fullmatch(path):
        raise error
    literal = f"[{host}]" if ":" in host else host
    authority = literal if port == _PORTS[parts.scheme] else f"{literal}:{port}"
    return ServerAddress(
        url=f"{parts.scheme}://{authority}{path}",
        host=host,
        port=port,
        is_secure=parts.scheme == "https",
        authority=authority,
        path=path,
        authorization=_make_authorization(parts.username, parts.password),
    )


def _encode_host(host: str) -> str:
    return host if host.isascii() else host.encode("idna").decode("ascii")


def _make_authorization(username: str | None, password: str | None) -> str | None:
    if username is None and password is None:
        return None
    pair = f"{urllib.parse.unquote(username or '')}:{urllib.parse.unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"
