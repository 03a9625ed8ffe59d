"""The metrics of handlers: their durations, outcomes, and failures that are not over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from kopf._controller.changes.decision import Plan
from kopf._controller.changes.detection import Detection
from kopf._controller.observer import ControllerView, Observer, Observers
from kopf._handlers.attempts import Outcome, name_outcome, name_reason
from kopf._handlers.causes import Cause, ChangingCause, ResourceCause, WatchingCause, WebhookCause
from kopf._handlers.handler_errors import HandlerChildrenRetry
from kopf._handlers.handlers import Handler, IndexingHandler
from kopf._insight.metrics.families import LONG, Cell, Counter, Family, Gauge, Histogram, Labels, Measured
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.reasons import Reason
from kopf._values.resources import Resource

_SUBHANDLERS = "/*"
_UNKNOWN = "*"


class HandlerNames:
    """
    The names of handlers. The ids of sub-handlers can be made of anything, e.g. of the items of a spec, so all
    sub-handlers of one handler have one name.
    """

    def __init__(self, handlers: Iterable[Handler]) -> None:
        self._known: Collection[str] = {str(handler.id) for handler in handlers}

    def get(self, key: HandlerId) -> str:
        """Get the name of the handler by its id."""
        if key in self._known:
            return key
        parent = str(key)
        while "/" in parent:
            parent = parent.rpartition("/")[0]
            if parent in self._known:
                return parent + _SUBHANDLERS
        return _UNKNOWN


_MAX_FAILURES = 100_000
"""The limit of objects with remembered failures: about 300 bytes each."""

_Object = tuple[Resource, str]
_Failures = dict[str, tuple[str, bool]]
"""By the ids of the handlers: their names, and whether they have failed for good."""


class FailedHandlers:
    """The handlers that have failed for an object, and have not succeeded since then."""

    def __init__(self) -> None:
        self._failures: dict[_Object, _Failures] = {}
        self._counts: dict[Labels, float] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def note(self, obj: _Object, id: str, name: str, is_final: bool | None) -> None:
        """Note the end of an attempt: whether it has failed for good; ``None`` if it has not failed."""
        failures = self._failures.get(obj)
        if failures is not None and (known := failures.pop(id, None)) is not None:
            self._count(*known, -1)
        if is_final is not None and (failures is not None or len(self._failures) < _MAX_FAILURES):
            failures = self._failures.setdefault(obj, {}) if failures is None else failures
            failures[id] = (name, is_final)
            self._count(name, is_final, +1)
        elif not failures:
            self._failures.pop(obj, None)

    def keep(self, obj: _Object, is_kept: Callable[[str, bool], bool]) -> None:
        """Forget the failures of the object that do not matter anymore."""
        failures = self._failures.get(obj, {})
        for id, (name, is_final) in [*failures.items()]:
            if not is_kept(id, is_final):
                self.note(obj, id, name, None)

    def forget(self, resource: Resource) -> None:
        """Forget all objects of the resource, as they are not handled anymore."""
        for obj in [obj for obj in self._failures if obj[0] == resource]:
            self.keep(obj, lambda *_: False)

    def _count(self, name: str, is_final: bool, change: int) -> None:
        labels = (name, "failed" if is_final else "retrying")
        self._counts[labels] = self._counts.get(labels, 0) + change

    def read(self) -> dict[Labels, float]:
        """Count the objects by the names of the handlers; in any thread."""
        return self._counts.copy()


class Failures(Observer):
    """
    Follows the failures of one operator, from the attempts to the next change or the deletion of the object.

    It begins to observe with the first failure: until then, it costs nothing.
    """

    def __init__(self, observers: Observers, names: HandlerNames) -> None:
        self._observers = observers
        self._names = names
        self.is_following = False
        """Whether anything has failed yet."""
        self._failed = FailedHandlers()
        self._unindexed = FailedHandlers()  # apart from the others: these are of no change

    def follow(self) -> None:
        """Begin to observe the objects, as something has failed."""
        if not self.is_following:
            self.is_following = True
            self._observers.add(self)

    def note(self, handler: Handler, cause: Cause, outcome: Outcome | None) -> None:
        """Note the end of an attempt of any handler."""
        if not isinstance(cause, ResourceCause) or isinstance(cause, WatchingCause | WebhookCause):
            return
        is_final: bool | None = None
        if outcome is not None and outcome.exception is not None:
            is_final = None if isinstance(outcome.exception, HandlerChildrenRetry) else outcome.final
        failed = self._unindexed if isinstance(handler, IndexingHandler) else self._failed
        failed.note((cause.resource, cause.body.object.head.key), handler.id, self._names.get(handler.id), is_final)

    def pass_decided(self, resource: Resource, key: str, obj: KubeObject, detection: Detection, plan: Plan) -> None:
        """Forget the failures of previous changes when another change is handled."""
        if not self._failed:
            return
        current = {handler.id for handler in (*plan.called, *plan.spawning)}
        is_change = plan.reason is not Reason.NOOP
        self._failed.keep(
            (resource, key),
            lambda id, is_final: (
                any(id == known or id.startswith(f"{known}/") for known in current) or (is_final and not is_change)
            ),
        )

    def object_seen(self, resource: Resource, key: str, type: str | None, obj: KubeObject) -> None:
        if type == "DELETED":
            for failed in (self._failed, self._unindexed):
                failed.keep((resource, key), lambda *_: False)

    def controller_stopped(self, controller: ControllerView) -> None:
        for failed in (self._failed, self._unindexed):
            failed.forget(controller.resource)

    def read(self) -> Measured:
        """Count the objects by the names of the handlers and their states; in any thread."""
        return [*self._failed.read().items(), *self._unindexed.read().items()]


class HandlingMetrics(Observer):
    """Counts the attempts of all handlers; ``on_failure`` is called for every failure of any kind."""

    def __init__(self, observers: Observers, names: HandlerNames, on_failure: Callable[[Cause, Outcome], None]) -> None:
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
        """The usual cells, for successes, by the declared handlers and the reasons."""
        self._retries = Counter("kopf_handler_retries", "Attempts that will be repeated.", ("handler",))
        self._failures = Failures(observers, names)

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
        """Count an attempt that is not a usual success."""
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
        if name == id:  # declared handlers are few; the ids of sub-handlers can be many
            self._successes[id, reason] = cell
        return cell

    def get_families(self) -> Sequence[Family]:
        """Get all families of this group."""
        return (
            self._durations,
            self._retries,
            Gauge(
                "kopf_handlers_failed",
                "Objects for which a handler has failed: it waits for its next attempt, or has failed for good.",
                ("handler", "state"),
                self._failures.read,
            ),
        )
