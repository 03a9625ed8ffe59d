"""
The metrics of watching and writing: whether the streams live, how late they are, what becomes of the own writes.

The lag is measured by the own writes: from the response to the write until the same state comes on the stream. If it
comes before the response, there is nothing to be measured.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from kopf._insight.metrics.families import Count, Counter, Family, Gauge, Histogram, Labels
from kopf._values.resources import Resource

_MAX_WRITES = 1000
"""Of how many own writes it is remembered that they are to come on the streams."""

_CAUSES = ("closed", "expired", "network", "server")


class StreamingMetrics:
    """Counts what comes on the streams of one operator, and what it writes."""

    def __init__(self, bus: Bus) -> None:
        self._writes: dict[str, float] = {}
        self._patches: dict[int, tuple[Resource, Count, Count]] = {}  # the resources are kept, so their ids are own
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
        self._lags.get(name)
        self._patches[id(fact.resource)] = fact.resource, *self._find_effects(fact.resource)
        for cause in _CAUSES:
            self._restarts.get(name, cause)

    def _on_controller_end(self, fact: ControllerStopped) -> None:
        self._patches.pop(id(fact.resource), None)

    def _find_effects(self, resource: Resource) -> tuple[Count, Count]:
        return self._effects.get(resource.name, "changed"), self._effects.get(resource.name, "no-op")

    def _on_close(self, fact: StreamClosed) -> None:
        self._streams.remove(fact.opened)

    def _on_interruption(self, fact: WatchInterrupted) -> None:
        self._restarts.add(fact.target.resource.name, name_cause(fact.error))

    def _on_patch(self, fact: ObjectPatched) -> None:
        known = self._patches.get(id(fact.resource))
        changed, unchanged = self._find_effects(fact.resource) if known is None else known[1:]
        version = fact.after.head.resourceVersion
        if version == fact.before.head.resourceVersion and fact.is_noop:
            unchanged.value += 1
            return
        changed.value += 1
        writes = self._writes
        writes[version] = fact.at
        if len(writes) > _MAX_WRITES:
            del writes[next(iter(writes))]

    def _on_return(self, fact: WriteReturned) -> None:
        self._lags.observe(fact.at - self._writes.pop(fact.version), fact.resource.name)

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
