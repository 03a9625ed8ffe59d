"""
One creation handler, and metrics that can be switched off and on again: by SIGUSR1, while there is nothing to do.

So, both ways are measured in one process: two processes differ by some percent in what they take for the same work.
"""

from __future__ import annotations

import signal
from typing import Any

import kopf
from kopf._controller.controller_facts import ControllerStarted
from kopf._facts.bus import Bus
from kopf._insight.metrics import operator_metrics


class SwitchedMetrics(operator_metrics.Metrics):
    """When they are off, nobody listens and nobody counts, as without them."""

    def __init__(self, bus: Bus, *args: Any, **kwargs: Any) -> None:
        super().__init__(bus, *args, **kwargs)

        counters, started = bus.counters, list[ControllerStarted]()
        bus.subscribe(ControllerStarted, started.append)
        reconciling = self._groups[0]

        def switch(*_: Any) -> None:
            bus.is_heard = not bus.is_heard
            bus.counters = counters if bus.is_heard else None
            for fact in started:
                flow = reconciling._flows[id(fact.resource)]
                fact.controller.report_to(flow if bus.is_heard else None)

        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:  # otherwise, these are those that only tell the names
            signal.signal(signal.SIGUSR1, switch)


operator_metrics.Metrics = SwitchedMetrics  # type: ignore[misc]  # it is loaded by the operator only when it starts


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.on.create("bench.example.com", "v1", "widgets")
async def create_fn(**_: Any) -> None:
    pass
