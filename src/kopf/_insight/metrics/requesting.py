"""
The metrics of requests to the API: requests as client-go counts them, streams, own writes.

Streams are counted as requests, too, but without durations. Their lag is measured by own writes: from the response to
the write until the same state comes on the stream. If it comes before the response, the lag is not measured.
"""

from __future__ import annotations

import asyncio
import functools
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._client.client_observer import Headers, WatchPhase, is_same
from kopf._client.errors import APIError, APIForbiddenError, APIGoneError, APINetworkError, APIServerError
from kopf._client.resources.targets import Target
from kopf._controller.observer import ControllerView, Observer, WatchedStream
from kopf._insight.metrics.families import Cell, Count, Counter, Family, Gauge, Histogram, Measured
from kopf._values.objects import KubeObject
from kopf._values.records import FrozenRecord
from kopf._values.resources import Resource

_NO_RESPONSE = "<error>"


class RequestMetrics(Observer):
    """Counts all requests of one operator to the API."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._usual: dict[tuple[str, str, int], tuple[Count, Cell]] = {}
        """The counters of requests with responses, by servers, methods, and statuses."""
        self._requests = Counter("rest_client_requests", "Requests to the API.", ("code", "method", "host"))
        self._retries = Counter(
            "rest_client_request_retries", "Requests that have failed, and are repeated.", ("code", "verb", "host")
        )
        self._durations = Histogram(
            "rest_client_request_duration_seconds", "How long the requests take, without streams.", ("verb", "host")
        )

    def stream_answered(self, server: str, status: int) -> None:
        """Count the stream at its beginning, as it can last for a day."""
        self._requests.add(str(status), "GET", _get_host(server))

    def stream_failed(self, server: str, error: Exception) -> None:
        self._requests.add(_NO_RESPONSE, "GET", _get_host(server))

    def request_ended(
        self,
        method: str,
        server: str,
        status: int | None,
        error: BaseException | None,
        started: float,
        headers: Headers,
    ) -> None:
        if status is not None:
            key = server, method, status
            count, durations = self._usual.get(key) or self._make_usual(*key)
            count.value += 1
            durations.observe(self.clock() - started)
        elif not isinstance(error, asyncio.CancelledError):
            host = _get_host(server)
            self._requests.add(_NO_RESPONSE, method, host)
            self._durations.observe(self.clock() - started, method, host)

    def _make_usual(self, server: str, method: str, status: int) -> tuple[Count, Cell]:
        host = _get_host(server)
        usual = self._requests.get(str(status), method, host), self._durations.get(method, host)
        self._usual[server, method, status] = usual
        return usual

    def request_retried(self, method: str, target: str, error: Exception, delay: float) -> None:
        code = str(error.status) if isinstance(error, APIError) else _NO_RESPONSE
        server = error.server if isinstance(error, APIError | APINetworkError) else ""
        self._retries.add(code, method, _get_host(server))

    def get_families(self) -> Sequence[Family]:
        """Get all families of this group."""
        return self._requests, self._retries, self._durations


@functools.lru_cache
def _get_host(server: str) -> str:
    return urllib.parse.urlsplit(server).netloc.rpartition("@")[2]


_MAX_WRITES = 1000
"""How many own writes are remembered until they come on the streams."""

_CAUSES = ("closed", "expired", "network", "quiet", "server")


class _WriteCounts(FrozenRecord, frozen=True, eq=False):
    """The counters of one resource, looked up once."""

    resource: Resource
    """It is kept, so that its id remains its own."""
    changed: Count
    unchanged: Count
    lags: Cell


class StreamingMetrics(Observer):
    """Counts the events on the streams of one operator, and its own writes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._writes: dict[str, tuple[float, Cell]] = {}
        """
        The times of the responses to own writes, with the cells of their lags; by the new versions, until these come on
        the stream.
        """
        self._counts: dict[int, _WriteCounts] = {}
        """The counters of handled resources, by the ids of these."""
        self._streams: list[WatchedStream] = []
        self._restarts = Counter(
            "kopf_watch_restarts", "Listings and streams that have ended and continue.", ("resource", "cause")
        )
        self._effects = Counter(
            "kopf_own_writes",
            "Patches of the handled objects, by whether they have changed anything.",
            ("resource", "effect"),
        )
        self._lags = Histogram(
            "kopf_watch_lag_seconds", "How long it takes until own writes come on the stream.", ("resource",)
        )

    def controller_started(self, controller: ControllerView) -> None:
        name = controller.resource.name
        self._counts[id(controller.resource)] = self._make_counts(controller.resource)
        for cause in _CAUSES:
            self._restarts.get(name, cause)

    def controller_stopped(self, controller: ControllerView) -> None:
        self._counts.pop(id(controller.resource), None)

    def _make_counts(self, resource: Resource) -> _WriteCounts:
        name = resource.name
        changed, unchanged = self._effects.get(name, "changed"), self._effects.get(name, "no-op")
        return _WriteCounts(resource, changed, unchanged, self._lags.get(name))

    def stream_opened(self, stream: WatchedStream) -> None:
        self._streams.append(stream)

    def stream_closed(self, stream: WatchedStream) -> None:
        self._streams.remove(stream)

    def watch_interrupted(self, target: Target, phase: WatchPhase, error: Exception | None, delay: float) -> None:
        self._restarts.add(target.resource.name, "quiet" if phase == "silence" else name_cause(error))

    def object_patched(
        self, resource: Resource, before: KubeObject, after: KubeObject, subresource: str | None, changes: Any
    ) -> None:
        counts = self._counts.get(id(resource)) or self._make_counts(resource)
        old, new = before.head, after.head
        version = new.resourceVersion
        if version == old.resourceVersion and is_same(old, new):
            counts.unchanged.value += 1
            return
        counts.changed.value += 1
        writes = self._writes
        writes[version] = self.clock(), counts.lags
        if len(writes) > _MAX_WRITES:
            del writes[next(iter(writes))]

    def object_seen(self, resource: Resource, key: str, type: str | None, obj: KubeObject) -> None:
        if (write := self._writes.pop(obj.head.resourceVersion, None)) is not None:
            at, lags = write
            lags.observe(self.clock() - at)

    def get_families(self) -> Sequence[Family]:
        """Get all families of this group."""
        return (
            self._lags,
            Gauge(
                "kopf_watch_last_activity_seconds",
                "The time since the latest event on the stream; for several streams, the longest time.",
                ("resource",),
                self._measure_silence,
                kind="max",
            ),
            self._restarts,
            Gauge("kopf_objects", "Objects that are known from the streams.", ("resource",), self._count_objects),
            self._effects,
        )

    def _measure_silence(self) -> Measured:
        return [((stream.target.resource.name,), stream.heartbeat.silence) for stream in [*self._streams]]

    def _count_objects(self) -> Measured:
        return [((stream.target.resource.name,), len(stream.known)) for stream in [*self._streams]]


_NAMES: Mapping[type[Exception], str] = {
    APIGoneError: "expired",
    APINetworkError: "network",
    APIServerError: "server",
    APIForbiddenError: "forbidden",
    APIError: "refused",
}
"""The names of errors, by their classes; the base class is the last one."""


def name_cause(error: Exception | None) -> str:
    """Name in one word the cause of the end of a stream."""
    if error is None:
        return "closed"
    return next((name for kind, name in _NAMES.items() if isinstance(error, kind)), "other")
