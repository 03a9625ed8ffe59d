"""The metrics of handlers: how long they take, how they end, which ones are not done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kopf._controller.observer import ControllerView, Observer, Observers
from kopf._handlers.attempt_names import name_outcome, name_reason
from kopf._handlers.causes import Cause, ChangingCause
from kopf._handlers.handler_errors import HandlerChildrenRetry
from kopf._handlers.handlers import Handler, TimerHandler
from kopf._handlers.outcomes import Outcome
from kopf._insight.metrics.failures import Failures
from kopf._insight.metrics.families import LONG, Cell, Counter, Family, Gauge, Histogram, Labels
from kopf._insight.metrics.labels import HandlerNames
from kopf._values.ids import HandlerId
from kopf._values.reasons import Reason


class HandlingMetrics(Observer):
    """Counts the attempts of all handlers; ``on_failure`` is called for those that have failed in any way."""

    def __init__(
        self, observers: Observers, names: HandlerNames, on_failure: Callable[[Cause, Outcome], None]
    ) -> None:
        self.clock = observers.clock
        self._names = names
        self._on_failure = on_failure
        self._durations = Histogram(
            "kopf_handler_duration_seconds",
            "How long the attempts of handlers take.",
            ("handler", "reason", "outcome"),
            LONG,
        )
        self._successes: dict[tuple[HandlerId, Reason], Cell] = {}
        """What is usual: the cells of the durations, by the declared handlers and by what has happened."""
        self._retries = Counter("kopf_handler_retries", "Attempts that are to be repeated.", ("handler",))
        self._failures = Failures(observers, names)
        self._controllers: list[ControllerView] = []

    def controller_started(self, controller: ControllerView) -> None:
        self._controllers.append(controller)

    def controller_stopped(self, controller: ControllerView) -> None:
        self._controllers.remove(controller)

    def attempt_ended(
        self, number: int, handler: Handler, cause: Cause, outcome: Outcome | None, started: float
    ) -> None:
        duration = self.clock() - started
        if type(cause) is ChangingCause and outcome is not None and outcome.final and outcome.exception is None:
            key = handler.id, cause.reason
            (self._successes.get(key) or self._find_successes(*key)).observe(duration)
        else:
            self._count_unusual(handler, cause, outcome, duration)
        if self._failures.is_following:
            self._failures.note(handler, cause, outcome)

    def _count_unusual(self, handler: Handler, cause: Cause, outcome: Outcome | None, duration: float) -> None:
        """It is not the usual success."""
        name = self._names.get(handler.id)
        self._durations.observe(duration, name, name_reason(handler, cause), name_outcome(outcome))
        if outcome is not None and outcome.exception is not None:
            if not outcome.final and not isinstance(outcome.exception, HandlerChildrenRetry):
                self._retries.add(name)
            self._on_failure(cause, outcome)
            self._failures.follow()

    def _find_successes(self, id: HandlerId, reason: Reason) -> Cell:
        name = self._names.get(id)
        cell = self._durations.get(name, reason.value, "succeeded")
        if name == id:  # there are few of them; the ids of sub-handlers can be many
            self._successes[id, reason] = cell
        return cell

    def get_families(self) -> Sequence[Family]:
        """Get all that is known."""
        return (
            self._durations,
            self._retries,
            Gauge(
                "kopf_handlers_failed",
                "Objects for which a handler has failed: it waits for its next attempt, or has failed for good.",
                ("handler", "state"),
                self._failures.read,
            ),
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
        )

    def _count_background(self, *, is_timer: bool) -> dict[Labels, float]:
        counts: dict[Labels, float] = {}
        for controller in [*self._controllers]:
            for handler in controller.handlers.spawning:
                if isinstance(handler, TimerHandler) is is_timer:
                    counts.setdefault((handler.id,), 0)
            for run in controller.list_runs():
                if (run.handler.id,) in counts and (run.is_waiting if is_timer else run.is_running):
                    counts[run.handler.id,] += 1
        return counts
