"""The metrics of what is around the objects: reviews, Kubernetes events, indices, and the operator itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence, Sized

from kopf._admission.review_facts import ReviewBegun, ReviewEnded
from kopf._controller.controller_facts import ControllerStarted, ControllerStopped, PauseChanged
from kopf._events.event_facts import EventDropped, EventPosted
from kopf._facts.bus import Bus
from kopf._insight.metrics.families import Counter, Family, Gauge, Histogram, Labels
from kopf._settings.settings import OperatorSettings

_WEBHOOK = ("webhook",)


class AdmissionMetrics:
    """Counts the reviews."""

    def __init__(self, bus: Bus) -> None:
        self._active: set[ReviewBegun] = set()
        self._latencies = Histogram(
            "controller_runtime_webhook_latency_seconds", "How long the reviews take.", _WEBHOOK
        )
        self._requests = Counter("controller_runtime_webhook_requests", "Reviews.", ("webhook", "code"))
        bus.subscribe(ReviewBegun, self._active.add)
        bus.subscribe(ReviewEnded, self._on_end)

    def _on_end(self, fact: ReviewEnded) -> None:
        begun = fact.begun
        if begun in self._active:
            self._active.discard(begun)
            path = _make_path(begun)
            self._latencies.observe(fact.at - begun.at, path)
            self._requests.add(path, "200" if fact.response is not None else "500")

    def _count_active(self) -> dict[Labels, float]:
        counts: dict[Labels, float] = {}
        for begun in self._active.copy():
            counts[_make_path(begun),] = counts.get((_make_path(begun),), 0) + 1
        return counts or {("/",): 0}

    def get_families(self) -> Sequence[Family]:
        """Get all that is known."""
        in_flight = Gauge(
            "controller_runtime_webhook_requests_in_flight", "Reviews that are not answered yet.", _WEBHOOK,
            self._count_active,
        )
        return self._latencies, self._requests, in_flight


def _make_path(begun: ReviewBegun) -> str:
    return f"/{begun.webhook or ''}"


class PostingMetrics:
    """Counts the Kubernetes events."""

    def __init__(self, bus: Bus) -> None:
        self._lock = threading.Lock()  # overflows are told by any thread
        self._posted = Counter("kopf_events_posted", "Requests to create or to continue Kubernetes events.")
        self._dropped = Counter("kopf_events_dropped", "Kubernetes events that are lost.", ("cause",))
        for cause in ("limit", "overflow", "error"):
            self._dropped.get(cause)
        bus.subscribe(EventPosted, lambda fact: self._posted.add())
        bus.subscribe(EventDropped, self._on_drop)

    def _on_drop(self, fact: EventDropped) -> None:
        with self._lock:
            self._dropped.add(fact.cause)

    def get_families(self) -> Sequence[Family]:
        """Get all that is known."""
        return self._posted, self._dropped


class OperatorMetrics:
    """Knows what is one for the whole operator: its indices, whether it is its turn, whether its event loop works."""

    def __init__(self, bus: Bus, settings: OperatorSettings, get_lag: Callable[[], float]) -> None:
        self._peering = settings.peering
        self._get_lag = get_lag
        self._is_paused = False
        self._indices: list[tuple[object, Mapping[str, Sized]]] = []
        bus.subscribe(PauseChanged, self._on_pause)
        bus.subscribe(ControllerStarted, self._on_start)
        bus.subscribe(ControllerStopped, self._on_stop)

    def _on_pause(self, fact: PauseChanged) -> None:
        self._is_paused = bool(fact.reasons)

    def _on_start(self, fact: ControllerStarted) -> None:
        self._indices.append((fact.controller, fact.controller.scope.runtime.indices))

    def _on_stop(self, fact: ControllerStopped) -> None:
        self._indices[:] = [item for item in self._indices if item[0] is not fact.controller]

    def _measure_indices(self) -> dict[Labels, float]:
        return {(id,): len(index) for _, indices in [*self._indices] for id, index in indices.items()}

    def get_families(self) -> Sequence[Family]:
        """Get all that is known."""
        return (
            Gauge("kopf_index_size", "Keys in the index.", ("index",), self._measure_indices),
            Gauge(
                "leader_election_master_status",
                "Whether it works (1), or gives way to other operators (0).",
                ("name",),
                lambda: {(self._peering.name,): 0 if self._is_paused else 1},
                kind="max",
            ),
            Gauge(
                "kopf_eventloop_lag_seconds",
                "How late the event loop was in the last minute at the worst, or is late now.",
                (),
                lambda: {(): self._get_lag()},
                kind="max",
            ),
        )
