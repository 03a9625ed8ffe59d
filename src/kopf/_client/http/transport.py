"""
The face of HTTP: what a session does, whoever does it, and how it fails.

There are two kinds of sessions: those of our own (``direct_session.py``), and those of ``aiohttp``
(``aiohttp_session.py``) for proxies and for the ready-made sessions of login handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kopf._values.records import FrozenRecord


class Limits(FrozenRecord, frozen=True):
    """How long one request may take, in seconds; ``None`` and 0 are for no limit."""

    total: float | None = None
    """From its beginning to the last byte of the response."""
    connect: float | None = None
    """For a new connection to be open, the TLS handshake included."""
    inactivity: float | None = None
    """For the server to be silent."""
    check: Callable[[], None] | None = None
    """It is asked right before anything is sent, and raises an error if it must not be: the connecting takes time."""


class TransportError(OSError):
    """
    There is no response, or not the whole of it; the text says why.

    A request that takes longer than its total limit fails with the bare :class:`TimeoutError` instead.
    """

    hint: str | None = None
    """What to do about it, if it is known."""


class UnreachableError(TransportError):
    """No connection can be open."""


class ConnectTimeoutError(UnreachableError, TimeoutError):
    """No connection is open in time."""


class SilenceError(TransportError, TimeoutError):
    """The server is silent for too long."""


class DisconnectedError(TransportError):
    """The connection was closed before the end of the response."""


class ProtocolError(TransportError):
    """What has come is not HTTP, or there is too much of it."""


MAX_BODY = 512 * 2**20
"""How large a body can be, in bytes, decompressed: listings are read by pages, of 2 MiB or so."""


class Headers(Mapping[str, str]):
    """The headers of a response; the case of their names means nothing. Of several with one name, it is the first."""

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
    """A response whose headers have come; its methods raise :class:`OSError`, as all of HTTP does."""

    @property
    def status(self) -> int:
        """The code, from 200 on."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by their names in any case."""

    async def read_chunk(self) -> bytes:
        """Wait for the next bytes of the body, and get all that have come, decoded; none at its end."""


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
    """Makes requests to one server, with the same headers. It is closed in the end."""

    @property
    def closed(self) -> bool:
        """Whether it cannot be used anymore."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What is sent with all requests."""

    def request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str] | None, limits: Limits
    ) -> AbstractAsyncContextManager[Response]:
        """
        Make a request; ``target`` is the quoted path with the query. The headers go besides those of the session.

        At the end of the context, the connection is dropped unless the response is read completely.
        """

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Replace some headers. Raises :class:`ValueError` if they cannot be sent."""

    def shares_connections(self, other: Session) -> bool:
        """Tell if the other one has no connections of its own, but these."""

    def retire(self) -> None:
        """Accept that there will be few new requests, if any: keep no unused connections for them."""

    async def close(self) -> None:
        """Close all connections."""
