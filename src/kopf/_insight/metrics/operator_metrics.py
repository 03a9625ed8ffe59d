"""All metrics of one operator: they are counted from when this is made, as its bus tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kopf._admission.review_facts import ReviewBegun, ReviewEnded
from kopf._client.http.request_facts import RequestBegun, RequestEnded, RequestRetried, ResponseBegun
from kopf._client.resources.watch_facts import ObjectPatched, WatchInterrupted
from kopf._controller.changes.look_facts import LookBegun, LookDecided, LookEnded
from kopf._controller.controller_facts import (
    ControllerStarted,
    ControllerStopped,
    ObjectObserved,
    ObjectQueued,
    PauseChanged,
    StreamClosed,
    StreamOpened,
    WorkBegun,
    WorkEnded,
)
from kopf._events.event_facts import EventDropped, EventPosted
from kopf._facts.bus import Bus, Fact
from kopf._handlers.attempt_facts import AttemptBegun, AttemptEnded
from kopf._handlers.registry import OperatorRegistry
from kopf._insight.metrics.batches import Batches
from kopf._insight.metrics.families import Snapshot
from kopf._insight.metrics.handling import HandlingMetrics
from kopf._insight.metrics.labels import HandlerNames
from kopf._insight.metrics.reconciling import ReconcilingMetrics
from kopf._insight.metrics.requesting import RequestMetrics
from kopf._insight.metrics.streaming import StreamingMetrics
from kopf._insight.metrics.surroundings import AdmissionMetrics, OperatorMetrics, PostingMetrics
from kopf._settings.settings import OperatorSettings

_KINDS: Sequence[type[Fact]] = (
    AttemptBegun, AttemptEnded, ControllerStarted, ControllerStopped, EventDropped, EventPosted, LookBegun, LookDecided,
    LookEnded, ObjectObserved, ObjectPatched, ObjectQueued, PauseChanged, RequestBegun, RequestEnded, RequestRetried,
    ResponseBegun, ReviewBegun, ReviewEnded, StreamClosed, StreamOpened, WatchInterrupted, WorkBegun, WorkEnded,
)  # fmt: skip
"""All that any of the groups needs."""


class Metrics:
    """
    The metrics of one operator.

    ``get_lag`` is how late its event loop is; ``clock`` is what the durations are measured by. Both are called in other
    threads, too.
    """

    def __init__(
        self,
        bus: Bus,
        registry: OperatorRegistry,
        settings: OperatorSettings,
        *,
        get_lag: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        names = HandlerNames([*registry.activities, *registry.resources, *registry.webhooks])
        late = Bus()
        self._batches = Batches(late, clock)
        time_of_facts = self._batches.get_time
        self._groups = (
            ReconcilingMetrics(late, time_of_facts),
            HandlingMetrics(late, names, time_of_facts),
            RequestMetrics(late, time_of_facts),
            StreamingMetrics(late, time_of_facts),
            AdmissionMetrics(late, time_of_facts),
            PostingMetrics(late),
            OperatorMetrics(late, settings, get_lag),
        )
        self._batches.follow(bus, _KINDS)

    def read(self) -> Sequence[Snapshot]:
        """Get all values as of now; in any thread."""
        with self._batches.settled():
            return [family.read() for group in self._groups for family in group.get_families()]
