"""The heads of requests. Most of them have the same headers, which are encoded only once."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kopf._client.http.server_address import ServerAddress

_TARGET = re.compile(r"[!-~]+")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that values of headers must not contain: with line breaks, a value could add headers and requests."""

_MOST_KNOWN = 100
"""The number of remembered sets of headers: there are only a few, except with e.g. identifiers of traces."""


class RequestHeads:
    """The heads for one server and one set of credentials. Raises :class:`ValueError` if headers cannot be sent."""

    def __init__(self, address: ServerAddress, headers: Mapping[str, str]) -> None:
        self._address = address
        self._known: dict[tuple[tuple[str, str], ...], bytes] = {}
        defaults = {} if address.authorization is None else {"Authorization": address.authorization}
        self.headers: dict[str, str] = {**defaults, **headers}
        """The headers of all requests. Change them only by :meth:`update`."""
        self._encode({})

    def update(self, headers: Mapping[str, str]) -> None:
        """Replace some of the headers."""
        _check(headers)
        self.headers.update(headers)
        self._known.clear()

    def make(self, method: str, target: str, size: int | None, headers: Mapping[str, str] | None) -> bytes:
        """Make everything before the body; ``size`` is that of the body in bytes, or ``None`` without a body."""
        if not _TARGET.fullmatch(target):
            raise ValueError(f"The target of the request is not quoted: {target!r}")
        key = tuple(headers.items()) if headers else ()
        common = self._known.get(key)
        if common is None:
            common = self._encode(headers or {})
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = common
        if size is None and method in ("POST", "PUT", "PATCH"):
            size = 0  # RFC 9110, section 8.6
        length = "" if size is None else f"Content-Length: {size}\r\n"
        return f"{method} {self._address.path}{target} HTTP/1.1\r\n{length}".encode("ascii") + common

    def _encode(self, headers: Mapping[str, str]) -> bytes:
        own = {name.lower() for name in headers}
        defaults = {name: value for name, value in self.headers.items() if name.lower() not in own}
        all_headers = {"Host": self._address.authority, **defaults, **headers}
        _check(all_headers)
        return "".join(f"{name}: {value}\r\n" for name, value in all_headers.items()).encode() + b"\r\n"


def _check(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or _FORBIDDEN.search(value):
            raise ValueError(f"The header {name!r} has characters that cannot be sent.")
