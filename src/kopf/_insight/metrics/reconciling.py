"""
The metrics of reconciling: how long the objects wait, how often and how long they are looked at, with which results.

The names are those of controller-runtime, where a queue has the name of its controller; here, it is the resource.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kopf._controller.controller_facts import ControllerStarted, ControllerStopped
from kopf._controller.passages import Passages
from kopf._controller.workers import get_limit
from kopf._facts.bus import Bus
from kopf._handlers.causes import Cause, ChangingCause
from kopf._handlers.handler_errors import TemporaryError
from kopf._handlers.outcomes import Outcome
from kopf._insight.metrics.families import BATCH, Counter, Family, Gauge, Histogram, Labels
from kopf._values.resources import Resource

_RESULTS = ("success", "error", "requeue", "requeue_after")
_CONTROLLER = ("controller",)
_QUEUE = ("name", "controller")


class _Totals:
    """What is counted, of all controllers."""

    def __init__(self) -> None:
        self.results = Counter(
            "controller_runtime_reconcile", "Objects looked at, by the result.", ("controller", "result")
        )
        self.errors = Counter(
            "controller_runtime_reconcile_errors", "Objects looked at with errors, of handlers too.", _CONTROLLER
        )
        self.terminal = Counter(
            "controller_runtime_terminal_reconcile_errors", "Those of them that are not tried again.", _CONTROLLER
        )
        self.looks = Histogram(
            "controller_runtime_reconcile_time_seconds", "How long an object is looked at, with handlers.", _CONTROLLER
        )
        self.adds = Counter("workqueue_adds", "Objects that had to wait for a worker.", _QUEUE)
        self.retries = Counter("workqueue_retries", "Objects that are to be looked at again later.", _QUEUE)
        self.waits = Histogram("workqueue_queue_duration_seconds", "How long objects wait for a worker.", _QUEUE)
        self.works = Histogram("workqueue_work_duration_seconds", "How long workers have an object.", _QUEUE)


class _Flow:
    """
    The objects of one controller, on their way.

    Large because it has all that is counted of them, found once.
    """

    __slots__ = (
        "_clock", "_totals", "adds", "cells", "controller", "failed", "looks", "names", "queued", "resource",
        "successes", "waits", "working", "works",
    )  # fmt: skip

    def __init__(
        self, resource: Resource, controller: Any, totals: _Totals, clock: Callable[[], float]
    ) -> None:
        self.resource = resource  # kept, so that its id remains its own
        self.controller = controller
        self._totals = totals
        self._clock = clock
        name = resource.name
        self.names = (name, name)
        self.cells = totals.looks.get(name), totals.waits.get(name, name), totals.works.get(name, name)
        self.looks, self.waits, self.works = (cell.values for cell in self.cells)
        for result in _RESULTS:
            totals.results.get(name, result)
        for counter in (totals.errors, totals.terminal):
            counter.get(name)
        totals.retries.get(name, name)
        self.adds = totals.adds.get(name, name)
        self.successes = totals.results.get(name, "success")
        # The keys of objects, and when it has begun.
        self.queued: dict[str, float] = {}
        self.working: dict[str, float] = {}
        self.failed: dict[str, bool] = {}
        """In which objects handlers have failed while they are looked at, and whether for good."""

    def queue(self, key: str) -> None:
        """There is something to do for an object that was neither waiting nor worked on."""
        self.adds.value += 1
        self.queued[key] = self._clock()

    def begin(self, key: str) -> None:
        """A worker has taken the object."""
        now = self.working[key] = self._clock()
        if (since := self.queued.pop(key, None)) is not None:
            self.waits.append(now - since)

    def end(self, key: str) -> None:
        """The worker has done all that was to be done for the object now."""
        if (since := self.working.pop(key, None)) is not None:
            works = self.works
            works.append(self._clock() - since)
            if len(works) >= BATCH:
                self._sort()

    def look(self, key: str, duration: float, has_error: bool, delay: float | None) -> None:
        """The object was looked at."""
        looks = self.looks
        looks.append(duration)
        if len(looks) >= BATCH:  # there can be no end of the work if the object changes all the time
            self._sort()
        if not has_error and delay is None and not self.failed:
            self.successes.value += 1
        else:
            self._count_trouble(key, has_error, delay)

    def _sort(self) -> None:
        """Have those durations counted that are put aside."""
        for cell in self.cells:
            cell.read()

    def _count_trouble(self, key: str, has_error: bool, delay: float | None) -> None:
        """It was looked at, but that was maybe no success."""
        name, totals = self.names[0], self._totals
        failed = self.failed.pop(key, None)
        if failed is not None or (has_error and delay is not None):
            totals.results.add(name, "error")
            totals.errors.add(name)
            if failed:
                totals.terminal.add(name)
        elif has_error:  # either a conflict, which is no error, or the operator exits
            totals.results.add(name, "requeue")
        else:
            totals.results.add(name, "success" if delay is None else "requeue_after")
        if delay is not None:
            totals.retries.add(*self.names)

    def list_ages(self, now: float) -> list[float]:
        """Tell how long the workers have the objects that they have."""
        return [now - since for since in [*self.working.copy().values()]]


class ReconcilingMetrics:
    """Counts what is done about the objects of all resources."""

    def __init__(self, bus: Bus, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._totals = _Totals()
        self._flows: dict[int, _Flow] = {}
        bus.subscribe(ControllerStarted, self._on_start)
        bus.subscribe(ControllerStopped, self._on_stop)

    def _on_start(self, fact: ControllerStarted) -> None:
        flow = _Flow(fact.resource, fact.controller, self._totals, self._clock)
        passages: Passages = flow
        fact.controller.report_to(passages)
        self._flows[id(fact.resource)] = flow

    def _on_stop(self, fact: ControllerStopped) -> None:
        flow = self._flows.get(id(fact.resource))
        if flow is not None and flow.controller is fact.controller:
            del self._flows[id(fact.resource)]
            fact.controller.report_to(None)

    def note_failure(self, cause: Cause, outcome: Outcome) -> None:
        """An attempt has ended with an exception."""
        # Those who ask to come later have not failed; only for those who give up on that, it is over.
        if not isinstance(cause, ChangingCause):
            return
        flow = self._flows.get(id(cause.resource))
        if flow is not None and (outcome.final or not isinstance(outcome.exception, TemporaryError)):
            key = cause.body.object.head.key
            flow.failed[key] = outcome.final or flow.failed.get(key, False)

    def get_families(self) -> Sequence[Family]:
        """Get all that is known."""
        totals = self._totals
        return (
            totals.results,
            totals.errors,
            totals.terminal,
            totals.looks,
            Gauge(
                "controller_runtime_max_concurrent_reconciles",
                "How many objects can be handled at once, besides those that wait in the code of users.",
                _CONTROLLER,
                lambda: self._look(lambda flow: get_limit(flow.controller.scope.runtime)),
            ),
            Gauge(
                "controller_runtime_active_workers",
                "Objects that are handled right now.",
                _CONTROLLER,
                lambda: self._look(lambda flow: len(flow.working)),
            ),
            Gauge(
                "workqueue_depth",
                "Objects that wait for a worker right now.",
                _QUEUE,
                lambda: self._look(lambda flow: len(flow.controller.queue.waiting), times=2),
            ),
            totals.adds,
            totals.retries,
            totals.waits,
            totals.works,
            Gauge(
                "workqueue_unfinished_work_seconds",
                "How long the objects are handled that are right now, in total.",
                _QUEUE,
                lambda: self._look(lambda flow: sum(flow.list_ages(self._clock())), times=2),
            ),
            Gauge(
                "workqueue_longest_running_processor_seconds",
                "How long the object is handled that is so for the longest time.",
                _QUEUE,
                lambda: self._look(lambda flow: max(flow.list_ages(self._clock()), default=0.0), times=2),
                kind="max",
            ),
        )

    def _look(self, measure: Callable[[_Flow], float], times: int = 1) -> dict[Labels, float]:
        """Measure all; several versions of one resource are taken together."""
        values: dict[Labels, float] = {}
        for flow in [*self._flows.copy().values()]:
            labels = (flow.resource.name,) * times
            values[labels] = values.get(labels, 0) + measure(flow)
        return values
