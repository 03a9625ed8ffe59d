"""
The metrics of watching and writing: whether the streams live, how late they are, what becomes of the own writes.

The lag is measured by the own writes: from the response to the write until the same state comes on the stream. If it
comes before the response, there is nothing to be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kopf._client.errors import APIError, APIForbiddenError, APIGoneError, APINetworkError, APIServerError
from kopf._client.resources.watch_facts import WatchInterrupted, is_same
from kopf._controller.controller_facts import (
    ControllerStarted,
    ControllerStopped,
    StreamClosed,
    StreamOpened,
)
from kopf._facts.bus import Bus
from kopf._insight.metrics.families import Cell, Count, Counter, Family, Gauge, Histogram, Labels
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

_MAX_WRITES = 1000
"""Of how many own writes it is remembered that they are to come on the streams."""

_CAUSES = ("closed", "expired", "network", "quiet", "server")


class _Known:
    """What is counted of one resource, found once."""

    __slots__ = ("changed", "lags", "resource", "unchanged")

    def __init__(self, resource: Resource, changed: Count, unchanged: Count, lags: Cell) -> None:
        self.resource = resource  # kept, so that its id remains its own
        self.changed = changed
        self.unchanged = unchanged
        self.lags = lags


class StreamingMetrics:
    """Counts what comes on the streams of one operator, and what it writes."""

    def __init__(self, bus: Bus, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.writes: dict[str, tuple[float, Cell]] = {}
        """
        When the own writes were answered, and what counts their lags; by the versions that they have made, until those
        come on the stream.
        """
        self._known: dict[int, _Known] = {}
        """By the ids of the resources that are handled."""
        self._streams: list[StreamOpened] = []
        self._restarts = Counter(
            "kopf_watch_restarts", "Listings and streams that have ended and go on.", ("resource", "cause")
        )
        self._effects = Counter(
            "kopf_own_writes", "Patches of the handled objects, by whether they have changed anything.",
            ("resource", "effect"),
        )
        self._lags = Histogram(
            "kopf_watch_lag_seconds", "How long it takes until own writes come on the stream.", ("resource",)
        )
        bus.subscribe(ControllerStarted, self._on_controller)
        bus.subscribe(ControllerStopped, self._on_controller_end)
        bus.subscribe(StreamOpened, self._streams.append)
        bus.subscribe(StreamClosed, self._on_close)
        bus.subscribe(WatchInterrupted, self._on_interruption)

    def _on_controller(self, fact: ControllerStarted) -> None:
        name = fact.resource.name
        self._known[id(fact.resource)] = self._find(fact.resource)
        for cause in _CAUSES:
            self._restarts.get(name, cause)

    def _on_controller_end(self, fact: ControllerStopped) -> None:
        self._known.pop(id(fact.resource), None)

    def _find(self, resource: Resource) -> _Known:
        name = resource.name
        changed, unchanged = self._effects.get(name, "changed"), self._effects.get(name, "no-op")
        return _Known(resource, changed, unchanged, self._lags.get(name))

    def _on_close(self, fact: StreamClosed) -> None:
        self._streams.remove(fact.opened)

    def _on_interruption(self, fact: WatchInterrupted) -> None:
        self._restarts.add(fact.target.resource.name, "quiet" if fact.is_quiet else name_cause(fact.error))

    def count_patch(self, resource: Resource, before: KubeObject, after: KubeObject) -> None:
        """One request of a patch is answered."""
        known = self._known.get(id(resource)) or self._find(resource)
        old, new = before.head, after.head
        version = new.resourceVersion
        if version == old.resourceVersion and is_same(old, new):
            known.unchanged.value += 1
            return
        known.changed.value += 1
        writes = self.writes
        writes[version] = self._clock(), known.lags
        if len(writes) > _MAX_WRITES:
            del writes[next(iter(writes))]

    def count_echo(self, version: str) -> None:
        """An own write has come on the stream."""
        at, lags = self.writes.pop(version)
        lags.observe(self._clock() - at)

    def get_families(self) -> Sequence[Family]:
        """Get all that is known."""
        return (
            self._lags,
            Gauge(
                "kopf_watch_last_activity_seconds",
                "How long ago anything has come on the stream; that of the most silent one.",
                ("resource",),
                self._look_at_silence,
                kind="max",
            ),
            self._restarts,
            Gauge("kopf_objects", "Objects that are known from the streams.", ("resource",), self._look_at_objects),
            self._effects,
        )

    def _look_at_silence(self) -> dict[Labels, float]:
        silences: dict[Labels, float] = {}
        for stream in [*self._streams]:
            labels = (stream.target.resource.name,)
            silences[labels] = max(silences.get(labels, 0.0), stream.heartbeat.silence)
        return silences

    def _look_at_objects(self) -> dict[Labels, float]:
        counts: dict[Labels, float] = {}
        for stream in [*self._streams]:
            labels = (stream.target.resource.name,)
            counts[labels] = counts.get(labels, 0) + len(stream.known)
        return counts


def name_cause(error: Exception | None) -> str:
    """Tell in one word why a stream has ended."""
    match error:
        case None:
            return "closed"
        case APIGoneError():
            return "expired"
        case APINetworkError():
            return "network"
        case APIServerError():
            return "server"
        case APIForbiddenError():
            return "forbidden"
        case APIError():
            return "refused"
    return "other"
