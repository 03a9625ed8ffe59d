"""The facts of requests: what was asked of the API, and how it has answered."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from kopf._facts.bus import Bus, Fact


class RequestBegun(Fact, frozen=True, eq=False):
    """An attempt of a request, or of a stream, begins: it has its connection."""

    is_frequent = True
    method: str
    path: str
    """The path of the URL with the query."""
    server: str
    """The URL of the server."""
    headers: dict[str, str]
    """What is sent besides the credentials; listeners may add to that."""
    is_stream: bool = False
    at: float = 0.0
    """The time by the clock of the bus, as in all facts."""


class StreamAnswered(Fact, frozen=True, eq=False):
    """The server has begun to respond to a stream, which can last for hours. For other requests, it is not told."""

    request: RequestBegun
    status: int


class RequestEnded(Fact, frozen=True, eq=False):
    """It has ended."""

    is_frequent = True
    request: RequestBegun
    status: int | None
    """The status of the response; ``None`` if there was none."""
    error: BaseException | None = None
    """Why there is no response, or not the whole of it; also if it was cancelled. Bad statuses are not errors here."""
    at: float = 0.0


class RequestRetried(Fact, frozen=True, eq=False):
    """A request has failed, and will be repeated."""

    method: str
    path: str
    error: Exception
    delay: float
    """In how many seconds."""


class Telling:
    """Tells of one attempt of a request from its beginning to its end."""

    __slots__ = ("_bus", "_context", "begun")

    def __init__(self, bus: Bus, begun: RequestBegun) -> None:
        self._bus = bus
        self._context = sys.exception()  # of those who make requests while they handle an error
        self.begun = begun
        bus.tell(begun)

    def open(self, status: int) -> None:
        """The server responds to a stream."""
        self._bus.tell(StreamAnswered(self.begun, status))

    def end(self, status: int | None) -> None:
        """It is over, successfully or not: the error is the one that is underway, if any."""
        error = sys.exception()
        if error is not None and (error is self._context or (status is not None and status >= 300)):
            error = None
        self._bus.tell(RequestEnded(self.begun, status, error, self._bus.clock()))


def begin_telling(
    bus: Bus, method: str, path: str, server: str, headers: Mapping[str, str] | None, *, is_stream: bool = False
) -> Telling | None:
    """Begin to tell of an attempt, if anybody listens to that; the headers to be sent are in the fact then."""
    if not (bus.is_followed or (is_stream and bus.is_heard)):
        return None
    return Telling(bus, RequestBegun(method, path, server, {**headers} if headers else {}, is_stream, bus.clock()))
