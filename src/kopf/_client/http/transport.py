"""
The interface of HTTP sessions, with their errors.

There are two kinds of sessions: our own ones (``direct_session.py``), and ``aiohttp`` sessions (``aiohttp_session.py``)
for proxies and for ready-made sessions of login handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kopf._values.records import FrozenRecord


class Limits(FrozenRecord, frozen=True):
    """The time limits of one request, in seconds; ``None`` and 0 mean no limit."""

    total: float | None = None
    """The limit from the start to the last byte of the response."""
    connect: float | None = None
    """The limit for a new connection, with its TLS handshake."""
    inactivity: float | None = None
    """The limit of silence of the server."""
    check: Callable[[], None] | None = None
    """A check right before sending, as connecting takes time. It raises an error if nothing may be sent."""


class TransportError(OSError):
    """
    There is no complete response. The text says why.

    A request that exceeds its total limit fails with the bare :class:`TimeoutError` instead.
    """

    hint: str | None = None
    """Advice for the user, if there is any."""


class UnreachableError(TransportError):
    """The connection cannot be opened."""


class ConnectTimeoutError(UnreachableError, TimeoutError):
    """The connection was not opened in time."""


class SilenceError(TransportError, TimeoutError):
    """The server was silent for too long."""


class DisconnectedError(TransportError):
    """The connection was closed before the end of the response."""


class ProtocolError(TransportError):
    """The server does not speak HTTP, or sends too much."""


MAX_BODY = 512 * 2**20
"""The largest body, decompressed, in bytes. Listings are read by pages of about 2 MiB."""


class Headers(Mapping[str, str]):
    """The headers of a response, with case-insensitive names. The first of several headers with one name wins."""

    __slots__ = ("_values",)

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, str] = {}
        for name, value in headers:
            self._values.setdefault(name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape"))

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Response(Protocol):
    """A response whose headers have come. Its methods raise :class:`OSError`."""

    @property
    def status(self) -> int:
        """The status code, 200 or higher."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, with case-insensitive names."""

    async def read_chunk(self) -> bytes:
        """Wait for the next bytes of the body, and return all that have come, decoded; nothing at its end."""


async def read_body(response: Response) -> bytes:
    """Read the whole body, decoded. Raises :class:`ProtocolError` if it is too large."""
    chunks, size = [], 0
    while chunk := await response.read_chunk():
        size += len(chunk)
        if size > MAX_BODY:
            raise ProtocolError(f"The body of the response is larger than {MAX_BODY} bytes")
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class Session(Protocol):
    """Makes requests to one server, with the same headers. Close it in the end."""

    @property
    def closed(self) -> bool:
        """Whether it is closed."""

    def request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str] | None, limits: Limits
    ) -> AbstractAsyncContextManager[Response]:
        """
        Make a request; ``target`` is the quoted path with the query. The session adds its own headers.

        When the context ends, the connection is dropped unless the response was read completely.
        """

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Replace some headers. Raises :class:`ValueError` if they cannot be sent."""

    def retire(self) -> None:
        """Keep no unused connections from now on, as hardly any requests will follow."""

    async def close(self) -> None:
        """Close all connections."""
