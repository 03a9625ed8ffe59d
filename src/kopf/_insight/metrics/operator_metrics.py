"""All metrics of one operator: they are counted from when this is made, as its bus tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kopf._facts.bus import Bus
from kopf._facts.counters import Counters
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
        bus.clock = clock
        reconciling = ReconcilingMetrics(bus, clock)
        handling = HandlingMetrics(bus, names, reconciling.note_failure)
        requests = RequestMetrics(bus)
        streaming = StreamingMetrics(bus, clock)
        self._groups = (
            reconciling,
            handling,
            requests,
            streaming,
            AdmissionMetrics(bus),
            PostingMetrics(bus),
            OperatorMetrics(bus, settings, get_lag),
        )
        bus.count(Counters(
            attempt=handling.count,
            request=requests.count,
            patch=streaming.count_patch,
            echo=streaming.count_echo,
            awaited=streaming.writes,
        ))  # fmt: skip

    def read(self) -> Sequence[Snapshot]:
        """Get all values as of now; in any thread."""
        return [family.read() for group in self._groups for family in group.get_families()]
