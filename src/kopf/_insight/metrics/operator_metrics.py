"""All metrics of one operator: they are counted from when this is made, as its bus tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kopf._admission.review_facts import ReviewBegun, ReviewEnded
from kopf._client.http.request_facts import RequestEnded, RequestRetried, StreamAnswered
from kopf._client.resources.watch_facts import ObjectPatched, WatchInterrupted
from kopf._controller.changes.look_facts import LookEnded
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
from kopf._handlers.attempt_facts import AttemptEnded
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
    AttemptEnded, ControllerStarted, ControllerStopped, EventDropped, EventPosted, LookEnded, ObjectObserved,
    ObjectPatched, ObjectQueued, PauseChanged, RequestEnded, RequestRetried, ReviewBegun, ReviewEnded, StreamAnswered,
    StreamClosed, StreamOpened, WatchInterrupted, WorkBegun, WorkEnded,
)  # fmt: skip
"""All that any of the groups needs, but for what is needed only after a failure. Beginnings have their time."""


class Metrics:
    """
    The metrics of one operator.

    ``get_lag`` is how late its event loop is; ``clock`` is what the durations are measured by, and the facts of the bus
    from now on. Both are called in other threads, too.
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
        bus.clock = clock
        self._batches = batches = Batches(late, clock)
        self._groups = (
            ReconcilingMetrics(batches),
            HandlingMetrics(bus, batches, names),
            RequestMetrics(batches),
            StreamingMetrics(batches),
            AdmissionMetrics(late, batches.get_time),
            PostingMetrics(late),
            OperatorMetrics(late, settings, get_lag),
        )
        batches.follow(bus, _KINDS)

    def read(self) -> Sequence[Snapshot]:
        """Get all values as of now; in any thread."""
        with self._batches.settled():
            return [family.read() for group in self._groups for family in group.get_families()]
