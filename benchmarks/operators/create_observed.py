"""
One creation handler, and metrics that can be switched off and on again: by SIGUSR1, while there is nothing to do.

So, both ways are measured in one process: two processes differ by some percent in what they take for the same work.
"""

from __future__ import annotations

import signal
from typing import Any

import kopf
from kopf._controller.observer import Observers
from kopf._insight.metrics import operator_metrics


class SwitchedMetrics(operator_metrics.Metrics):
    """When they are off, nobody observes, as without them."""

    def __init__(self, observers: Observers, *args: Any, **kwargs: Any) -> None:
        super().__init__(observers, *args, **kwargs)
        is_on = True

        def switch(*_: Any) -> None:
            nonlocal is_on
            is_on = not is_on
            (observers.add if is_on else observers.remove)(*self._groups)

        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:  # otherwise, these are those that only tell the names
            signal.signal(signal.SIGUSR1, switch)


operator_metrics.Metrics = SwitchedMetrics  # type: ignore[misc]  # it is loaded by the operator only when it starts


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False


@kopf.on.create("bench.example.com", "v1", "widgets")
async def create_fn(**_: Any) -> None:
    pass
