"""
All metrics of one operator, counted from the moment when this is made.

This file has the metrics of reviews, Kubernetes events, daemons & timers, indices, and the operator itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

from kopf._controller.observer import ControllerView, Observer, Observers, Review
from kopf._controller.pausing import Pause
from kopf._handlers.handlers import TimerHandler
from kopf._handlers.registry import OperatorRegistry
from kopf._insight.metrics.families import LONG, Counter, Family, Gauge, Histogram, Measured, Snapshot
from kopf._insight.metrics.handling import HandlerNames, HandlingMetrics
from kopf._insight.metrics.reconciling import ReconcilingMetrics
from kopf._insight.metrics.requesting import RequestMetrics, StreamingMetrics
from kopf._settings.settings import OperatorSettings
from kopf._values.references import ObjectReference
from kopf._values.replica_state import ReplicaState
from kopf._values.reviews import Response

_WEBHOOK = ("webhook",)


class AdmissionMetrics(Observer):
    """Counts the reviews."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._active: set[Review] = set()
        self._latencies = Histogram(
            "controller_runtime_webhook_latency_seconds", "How long the reviews take.", _WEBHOOK
        )
        self._requests = Counter("controller_runtime_webhook_requests", "Reviews.", ("webhook", "code"))

    def review_begun(self, review: Review) -> None:
        self._active.add(review)

    def review_ended(self, review: Review, response: Response | None) -> None:
        self._active.discard(review)
        path = _make_path(review)
        self._latencies.observe(self.clock() - review.started, path)
        self._requests.add(path, "200" if response is not None else "500")

    def _count_active(self) -> Measured:
        return [((_make_path(review),), 1) for review in self._active.copy()] or [(("/",), 0)]

    def get_families(self) -> Sequence[Family]:
        """Get all families of this group."""
        in_flight = Gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Reviews that are not answered yet.",
            _WEBHOOK,
            self._count_active,
        )
        return self._latencies, self._requests, in_flight


def _make_path(review: Review) -> str:
    return f"/{review.webhook or ''}"


class PostingMetrics(Observer):
    """Counts the Kubernetes events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # overflows come from any thread
        self._posted = Counter("kopf_events_posted", "Requests to create or to continue Kubernetes events.")
        self._dropped = Counter("kopf_events_dropped", "Kubernetes events that are lost.", ("cause",))
        for cause in ("limit", "overflow", "error"):
            self._dropped.get(cause)

    def event_posted(self, ref: ObjectReference, type: str, reason: str, message: str, time: float) -> None:
        self._posted.add()

    def event_dropped(self, cause: str) -> None:
        with self._lock:
            self._dropped.add(cause)

    def get_families(self) -> Sequence[Family]:
        """Get all families of this group."""
        return self._posted, self._dropped


class OperatorMetrics(Observer):
    """Measures the operator: its daemons & timers, indices, event loop, and whether it works, waits, or leads."""

    def __init__(self, settings: OperatorSettings, get_lag: Callable[[], float]) -> None:
        self._peering = settings.peering
        self._get_lag = get_lag
        self._is_paused = False
        self._controllers: list[ControllerView] = []
        self._replica: ReplicaState | None = None
        self._moves = Counter("kopf_replica_slots_moved", "Slots that this replica got or left.", ("direction",))
        self._gaps = Histogram(
            "kopf_replica_slot_unowned_seconds", "How long slots had no owner before this replica got them.", (), LONG
        )
        self._gaps.get()
        self._fences = Counter("kopf_replica_fences", "Stops of all work, because the Lease was not renewed in time.")

    def pause_changed(self, pause: Pause) -> None:
        self._is_paused = pause.is_on

    def share_changed(self, state: ReplicaState) -> None:
        before, self._replica = self._replica, state
        held = before.held if before is not None else frozenset()
        for direction, slots in (("in", state.held - held), ("out", held - state.held)):
            self._moves.get(direction).value += len(slots)
        if state.is_fenced and not (before is not None and before.is_fenced):
            self._fences.add()

    def slots_taken(self, gaps: Collection[float]) -> None:
        for gap in gaps:
            self._gaps.observe(gap)

    def controller_started(self, controller: ControllerView) -> None:
        self._controllers.append(controller)

    def controller_stopped(self, controller: ControllerView) -> None:
        self._controllers.remove(controller)

    def _count_background(self, *, is_timer: bool) -> Measured:
        for controller in [*self._controllers]:
            for handler in controller.handlers.spawning:
                if isinstance(handler, TimerHandler) is is_timer:
                    yield (handler.id,), 0
            for run in controller.list_runs():
                if isinstance(run.handler, TimerHandler) is is_timer:
                    yield (run.handler.id,), run.is_waiting if is_timer else run.is_running

    def _measure_indices(self) -> Measured:
        # Each controller knows all indices.
        return {(id,): len(index) for item in [*self._controllers] for id, index in item.indices.items()}.items()

    def _get_leadership(self) -> Measured:
        replica = self._replica
        if replica is None:
            return [((self._peering.name,), 0 if self._is_paused else 1)]
        return [((replica.name,), int(replica.is_leading and not replica.is_fenced))]

    def _get_replica_families(self, replica: ReplicaState) -> Sequence[Family]:
        slots = {"held": replica.held, "wanted": replica.wanted, "draining": replica.draining}
        help = "Slots that this replica holds, must take, or must hand over."
        counts = [((key,), len(value)) for key, value in slots.items()]
        return Gauge("kopf_replica_slots", help, ("state",), lambda: counts), self._moves, self._gaps, self._fences

    def get_families(self) -> Sequence[Family]:
        """Get all families of this group."""
        replicated = () if self._replica is None else self._get_replica_families(self._replica)
        return (
            *replicated,
            Gauge(
                "kopf_daemons_running",
                "Daemons that run right now.",
                ("handler",),
                lambda: self._count_background(is_timer=False),
            ),
            Gauge(
                "kopf_timers_waiting",
                "Timers that wait for their time.",
                ("handler",),
                lambda: self._count_background(is_timer=True),
            ),
            Gauge("kopf_index_size", "Keys in the index.", ("index",), self._measure_indices),
            Gauge(
                "leader_election_master_status",
                "Whether it works or leads the replicas (1), or not (0).",
                ("name",),
                self._get_leadership,
                kind="max",
            ),
            Gauge(
                "kopf_eventloop_lag_seconds",
                "The longest delay of the event loop in the last minute, or its current delay.",
                (),
                lambda: [((), self._get_lag())],
                kind="max",
            ),
        )


class Metrics:
    """
    The metrics of one operator.

    :param get_lag: returns the lag of the event loop, in seconds; in any thread.
    :param clock: the clock of durations, in seconds, for all observers from now on; in any thread.
    """

    def __init__(
        self,
        observers: Observers,
        registry: OperatorRegistry,
        settings: OperatorSettings,
        *,
        get_lag: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        names = HandlerNames([*registry.activities, *registry.resources, *registry.webhooks])
        observers.clock = clock
        reconciling = ReconcilingMetrics(clock)
        self._groups = (
            reconciling,
            HandlingMetrics(observers, names, reconciling.note_failure),
            RequestMetrics(clock),
            StreamingMetrics(clock),
            AdmissionMetrics(clock),
            PostingMetrics(),
            OperatorMetrics(settings, get_lag),
        )
        observers.add(*self._groups)

    def read(self) -> Sequence[Snapshot]:
        """Get all values as of now; in any thread."""
        return [family.read() for group in self._groups for family in group.get_families()]
