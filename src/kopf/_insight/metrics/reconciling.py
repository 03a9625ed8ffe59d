"""
The metrics of reconciling: the waiting times of objects, and the passes with their durations and results.

The names follow controller-runtime, where a queue has the name of its controller; here, of its resource.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kopf._controller.observer import ControllerView, Observer
from kopf._handlers.attempts import Outcome
from kopf._handlers.causes import Cause, ChangingCause
from kopf._handlers.handler_errors import TemporaryError
from kopf._insight.metrics.families import BATCH, Counter, Family, Gauge, Histogram, Measured
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

_RESULTS = ("success", "error", "requeue", "requeue_after")
_CONTROLLER = ("controller",)
_QUEUE = ("name", "controller")


class _Totals:
    """The counters of all controllers."""

    def __init__(self) -> None:
        self.results = Counter(
            "controller_runtime_reconcile", "Objects looked at, by the result.", ("controller", "result")
        )
        self.errors = Counter(
            "controller_runtime_reconcile_errors", "Objects looked at with errors, of handlers too.", _CONTROLLER
        )
        self.terminal = Counter(
            "controller_runtime_terminal_reconcile_errors", "Objects looked at with errors that are final.", _CONTROLLER
        )
        self.passes = Histogram(
            "controller_runtime_reconcile_time_seconds", "How long an object is looked at, with handlers.", _CONTROLLER
        )
        self.adds = Counter("workqueue_adds", "Objects that had to wait for a worker.", _QUEUE)
        self.retries = Counter("workqueue_retries", "Objects to look at again later.", _QUEUE)
        self.waits = Histogram("workqueue_queue_duration_seconds", "How long objects wait for a worker.", _QUEUE)
        self.works = Histogram("workqueue_work_duration_seconds", "How long workers have an object.", _QUEUE)


class _Flow:
    """
    The objects of one controller, on their way.

    Large because it has all their counters, looked up once.
    """

    __slots__ = (
        "adds",
        "cells",
        "controller",
        "failed",
        "names",
        "passes",
        "queued",
        "successes",
        "totals",
        "waits",
        "working",
        "works",
    )  # fmt: skip

    def __init__(self, controller: ControllerView, totals: _Totals) -> None:
        self.controller = controller
        self.totals = totals
        name = controller.resource.name
        self.names = (name, name)
        self.cells = totals.passes.get(name), totals.waits.get(name, name), totals.works.get(name, name)
        self.passes, self.waits, self.works = (cell.values for cell in self.cells)
        for result in _RESULTS:
            totals.results.get(name, result)
        for counter in (totals.errors, totals.terminal):
            counter.get(name)
        totals.retries.get(name, name)
        self.adds = totals.adds.get(name, name)
        self.successes = totals.results.get(name, "success")
        # The times when it began, by the keys of objects.
        self.queued: dict[str, float] = {}
        self.working: dict[str, float] = {}
        self.failed: dict[str, bool] = {}
        """Whether the failures of handlers are for good, by the keys of objects, during the passes."""

    def sort(self) -> None:
        """Count the waiting durations."""
        for cell in self.cells:
            cell.read()

    def count_trouble(self, key: str, has_error: bool, delay: float | None) -> None:
        """Count a pass that was probably no success."""
        name, totals = self.names[0], self.totals
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
        """List for how long the workers have their current objects, in seconds."""
        return [now - since for since in [*self.working.copy().values()]]


class ReconcilingMetrics(Observer):
    """Counts the work on the objects of all resources."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._totals = _Totals()
        self._flows: dict[int, _Flow] = {}
        """By the ids of the resources: a flow keeps its resource, so that its id remains its own."""

    def controller_started(self, controller: ControllerView) -> None:
        self._flows[id(controller.resource)] = _Flow(controller, self._totals)

    def controller_stopped(self, controller: ControllerView) -> None:
        flow = self._flows.get(id(controller.resource))
        if flow is not None and flow.controller is controller:
            del self._flows[id(controller.resource)]

    def object_queued(self, resource: Resource, key: str) -> None:
        if (flow := self._flows.get(id(resource))) is not None:
            flow.adds.value += 1
            flow.queued[key] = self.clock()

    def work_begun(self, resource: Resource, key: str) -> None:
        if (flow := self._flows.get(id(resource))) is not None:
            now = flow.working[key] = self.clock()
            if (since := flow.queued.pop(key, None)) is not None:
                flow.waits.append(now - since)

    def work_ended(self, resource: Resource, key: str) -> None:
        flow = self._flows.get(id(resource))
        if flow is not None and (since := flow.working.pop(key, None)) is not None:
            flow.works.append(self.clock() - since)
            if len(flow.works) >= BATCH:
                flow.sort()

    def pass_ended(
        self,
        resource: Resource,
        key: str,
        obj: KubeObject | None,
        error: BaseException | None,
        delay: float | None,
        started: float,
    ) -> None:
        if (flow := self._flows.get(id(resource))) is None:
            return
        flow.passes.append(self.clock() - started)
        if len(flow.passes) >= BATCH:  # there can be no end of the work if the object changes all the time
            flow.sort()
        if error is None and delay is None and not flow.failed:
            flow.successes.value += 1
        else:
            flow.count_trouble(key, error is not None, delay)

    def note_failure(self, cause: Cause, outcome: Outcome) -> None:
        """Note that an attempt has ended with an exception."""
        # Temporary errors are no failures, unless the handler gives up.
        if not isinstance(cause, ChangingCause):
            return
        flow = self._flows.get(id(cause.resource))
        if flow is not None and (outcome.final or not isinstance(outcome.exception, TemporaryError)):
            key = cause.body.object.head.key
            flow.failed[key] = outcome.final or flow.failed.get(key, False)

    def get_families(self) -> Sequence[Family]:
        """Get all families of this group."""
        totals = self._totals
        return (
            totals.results,
            totals.errors,
            totals.terminal,
            totals.passes,
            Gauge(
                "controller_runtime_max_concurrent_reconciles",
                "The limit of objects handled at once; objects that wait in the code of users do not count.",
                _CONTROLLER,
                lambda: self._measure(lambda flow: flow.controller.get_limit()),
            ),
            Gauge(
                "controller_runtime_active_workers",
                "Objects that are handled right now.",
                _CONTROLLER,
                lambda: self._measure(lambda flow: len(flow.working)),
            ),
            Gauge(
                "workqueue_depth",
                "Objects that wait for a worker right now.",
                _QUEUE,
                lambda: self._measure(lambda flow: len(flow.controller.queue.waiting), times=2),
            ),
            totals.adds,
            totals.retries,
            totals.waits,
            totals.works,
            Gauge(
                "workqueue_unfinished_work_seconds",
                "The total time for which the current objects have been handled.",
                _QUEUE,
                lambda: self._measure(lambda flow: sum(flow.list_ages(self.clock())), times=2),
            ),
            Gauge(
                "workqueue_longest_running_processor_seconds",
                "The longest time for which a current object has been handled.",
                _QUEUE,
                lambda: self._measure(lambda flow: max(flow.list_ages(self.clock()), default=0.0), times=2),
                kind="max",
            ),
        )

    def _measure(self, measure: Callable[[_Flow], float], times: int = 1) -> Measured:
        """Measure all controllers; there can be several versions of one resource."""
        flows = [*self._flows.copy().values()]
        return [((flow.controller.resource.name,) * times, measure(flow)) for flow in flows]
