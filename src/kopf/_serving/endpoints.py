"""Endpoints: the addresses in the command line where the operator serves something."""

from __future__ import annotations

import urllib.parse
from typing import NamedTuple

READINESS_PATH = "/readyz"
"""The path of the readiness of replicas, next to the health; it is fixed."""

READING = frozenset({"GET", "HEAD"})
"""The methods of HTTP that change nothing."""


class Endpoint(NamedTuple):
    """The address of a server."""

    host: str | None
    """``None`` means all interfaces."""
    port: int
    """0 means any free port; the debug logs tell which one it is."""
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in (self.host or "") else self.host or "*"
        return f"http://{host}:{self.port}{self.path}"


def parse_endpoint(url: str, *, title: str = "liveness", path: str = "healthz") -> Endpoint:
    """
    Parse ``http://host:port/path``. Raises :class:`ValueError` if it is anything else.

    ``title`` is the name of the endpoint, and ``path`` is its usual path: both are for error messages.
    """
    example = f"for example: http://0.0.0.0:8080/{path}"
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as e:
        raise ValueError(f"The {title} endpoint {url!r} is not a URL ({e}); {example}") from e
    if parts.scheme != "http":
        raise ValueError(f"The {title} endpoint {url!r} must be of HTTP, {example}")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise ValueError(f"The {title} endpoint {url!r} must have only a host, a port, and a path, {example}")
    return Endpoint(host or None, 80 if port is None else port, urllib.parse.unquote(parts.path) or "/")
