"""
The metrics of watching and writing: whether the streams live, how late they are, what becomes of the own writes.

The lag is measured by the own writes: from the response to the write until the same state comes on the stream. If it
comes before the response, there is nothing to be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kopf._client.errors import APIError, APIForbiddenError, APIGoneError, APINetworkError, APIServerError
from kopf._client.resources.watch_facts import ObjectPatched, WatchInterrupted
from kopf._controller.controller_facts import (
    ControllerStarted,
    ControllerStopped,
    StreamClosed,
    StreamOpened,
    WriteReturned,
)
from kopf._facts.bus import Bus
from kopf._insight.metrics.families import Cell, Count, Counter, Family, Gauge, Histogram, Labels
from kopf._values.resources import Resource

_MAX_WRITES = 1000
"""Of how many own writes it is remembered that they are to come on the streams."""

_CAUSES = ("closed", "expired", "network", "server")


class _Known(NamedTuple):
    """What is counted of one resource, found once."""

    resource: Resource  # kept, so that its id remains its own
    changed: Count
    unchanged: Count
    lags: Cell


class StreamingMetrics:
    """Counts what comes on the streams of one operator, and what it writes."""

    def __init__(self, bus: Bus) -> None:
        self._writes: dict[str, float] = {}
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
        bus.subscribe(ObjectPatched, self._on_patch)
        bus.subscribe(WriteReturned, self._on_return)
        bus.awaited = self._writes

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
        self._restarts.add(fact.target.resource.name, name_cause(fact.error))

    def _on_patch(self, fact: ObjectPatched) -> None:
        known = self._known.get(id(fact.resource)) or self._find(fact.resource)
        version = fact.after.head.resourceVersion
        if version == fact.before.head.resourceVersion and fact.is_noop:
            known.unchanged.value += 1
            return
        known.changed.value += 1
        writes = self._writes
        writes[version] = fact.at
        if len(writes) > _MAX_WRITES:
            del writes[next(iter(writes))]

    def _on_return(self, fact: WriteReturned) -> None:
        known = self._known.get(id(fact.resource)) or self._find(fact.resource)
        known.lags.observe(fact.at - self._writes.pop(fact.version))

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
