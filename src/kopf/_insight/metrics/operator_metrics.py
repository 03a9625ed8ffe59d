"""All metrics of one operator: they are counted from when this is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kopf._controller.observer import Observers
from kopf._handlers.registry import OperatorRegistry
from kopf._insight.metrics.families import Snapshot
from kopf._insight.metrics.handling import HandlingMetrics
from kopf._insight.metrics.labels import HandlerNames
from kopf._insight.metrics.reconciling import ReconcilingMetrics
from kopf._insight.metrics.requesting import RequestMetrics
from kopf._insight.metrics.streaming import StreamingMetrics
from kopf._insight.metrics.surroundings import AdmissionMetrics, OperatorMetrics, PostingMetrics
from kopf._settings.settings import OperatorSettings


class Metrics:
    """
    The metrics of one operator.

    ``get_lag`` is how late its event loop is; ``clock`` is what the durations are measured by,
    for all who observe, from now on. Both are called in other threads, too.
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
