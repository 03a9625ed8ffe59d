"""
The journal of the latest decisions and attempts of the operator, for each of its objects.

It is bounded: it has the latest passes of the objects that were handled lately. It keeps a few small values for each
pass, and no live objects; they are converted to explanations only on demand.
"""

from __future__ import annotations

import datetime
import functools
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence

from kopf._controller.changes.decision import Plan
from kopf._controller.changes.detection import Detection
from kopf._controller.observer import Observer
from kopf._handlers import attempts
from kopf._handlers.causes import Cause, ResourceCause
from kopf._handlers.handler_errors import HandlerChildrenRetry
from kopf._handlers.handlers import ChangingHandler, Handler, IndexingHandler, WebhookHandler
from kopf._insight.backlog import Backlog
from kopf._insight.explaining.explanation import AttemptInfo, DecisionInfo, Outcome
from kopf._insight.explaining.handler_verdicts import TITLES
from kopf._insight.explaining.redacted_texts import RedactedTexts, shorten, show_time
from kopf._values.lru_dict import LRUDict
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange
from kopf._values.reasons import Reason
from kopf._values.records import Record, field
from kopf._values.resources import Resource


class AttemptNote(Record):
    """One attempt of a handler."""

    handler: str
    at: float
    outcome: Outcome = "running"
    error: str | None = None
    next_at: float | None = None

    def describe(self) -> AttemptInfo:
        """Make what an explanation says of the attempt."""
        return AttemptInfo(
            handler=self.handler,
            at=_show(self.at) or "",
            outcome=self.outcome,
            error=self.error,
            next=_show(self.next_at),
        )


class DecisionNote(Record):
    """One pass over the object."""

    at: float
    reason: str = "look"
    text: str = "looks at the object"
    called: tuple[str, ...] = ()
    attempts: tuple[AttemptNote, ...] = ()
    error: str | None = None
    next_at: float | None = None

    def describe(self) -> DecisionInfo:
        """Make what an explanation says of the pass."""
        return DecisionInfo(
            at=_show(self.at) or "",
            reason=self.reason,
            text=self.text,
            called=[*self.called],
            attempts=[attempt.describe() for attempt in self.attempts],
            error=self.error,
            next=_show(self.next_at),
        )


def _show(timestamp: float | None) -> str | None:
    return None if timestamp is None else show_time(datetime.datetime.fromtimestamp(timestamp, datetime.UTC))


MAX_OBJECTS = 1000
MAX_DECISIONS = 10

ObjectKey = tuple[Resource, str]


class ObjectDecisions(Record):
    """The latest decisions about one object."""

    namespace: str | None = None
    name: str = ""
    decisions: list[DecisionNote] = field(default_factory=list)
    """The oldest decisions first."""
    is_underway: bool = False
    """Whether the pass of the latest decision is not over yet."""
    errors: dict[str, AttemptNote] = field(default_factory=dict)
    """The last attempts of the handlers that have failed, by the ids of the handlers."""

    def add(self, decision: DecisionNote) -> None:
        """Remember one more decision, and forget the oldest one if there are too many."""
        self.decisions.append(decision)
        if len(self.decisions) > MAX_DECISIONS:
            del self.decisions[0]


MAX_ATTEMPTS = 10
"""How many attempts are kept for one pass: there can be many handlers."""

_OF_NO_INTEREST = (IndexingHandler, WebhookHandler)
_MAX_ERROR = 300
"""The limit of the texts of errors, in characters: there can be many."""


class DecisionJournal(Observer):
    """The journal of one operator. The backlog calls it late; any thread can read it."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._records: LRUDict[ObjectKey, ObjectDecisions] = LRUDict(MAX_OBJECTS)
        self._attempts: dict[int, tuple[ObjectKey, AttemptNote]] = {}
        """The running attempts, by their numbers."""

    def get_running(self, resource: Resource, key: str) -> dict[str, AttemptInfo]:
        """Get the running attempts for the object, by the ids of their handlers."""
        attempts = [attempt for about, attempt in [*self._attempts.values()] if about == (resource, key)]
        return {attempt.handler: attempt.describe() for attempt in attempts}

    def get_decisions(self, resource: Resource, key: str) -> Sequence[DecisionInfo]:
        """Get the latest decisions about the object, the latest first."""
        record = self._records.get((resource, key))
        return [] if record is None else [decision.describe() for decision in reversed([*record.decisions])]

    def get_error(self, resource: Resource, key: str, handler: str) -> str | None:
        """Get the error of the last attempt of the handler, if it has failed."""
        record = self._records.get((resource, key))
        attempt = None if record is None else record.errors.get(handler)
        return None if attempt is None else attempt.error

    def find_key(self, resource: Resource, namespace: str | None, name: str) -> str | None:
        """Find the key of a remembered object by its name; of the latest one, if there were several."""
        for known, key in reversed([*self._records]):
            record = self._records.get((known, key))
            if known == resource and record is not None and (record.namespace, record.name) == (namespace, name):
                return key
        return None

    def pass_decided(self, resource: Resource, key: str, obj: KubeObject, detection: Detection, plan: Plan) -> None:
        record = self._begin(resource, key, obj)
        record.is_underway = True
        decision = record.decisions[-1]
        decision.reason = plan.reason.value
        decision.called = tuple([str(handler.id) for handler in plan.call])
        decision.text = word_plan(plan)

    def _begin(self, resource: Resource, key: str, obj: KubeObject | None) -> ObjectDecisions:
        record = self._records.obtain((resource, key), ObjectDecisions)
        if obj is not None:
            record.namespace, record.name = obj.head.namespace, obj.head.name
        record.add(DecisionNote(self._backlog.now))
        return record

    def pass_ended(
        self,
        resource: Resource,
        key: str,
        obj: KubeObject | None,
        error: BaseException | None,
        delay: float | None,
        started: float,
    ) -> None:
        record = self._records.get((resource, key))
        if record is None or not record.is_underway:  # it was not decided
            record = self._begin(resource, key, obj)
        record.is_underway = False
        decision = record.decisions[-1]
        decision.error = None if error is None else _show_error(error, resource)
        decision.next_at = self._find_time(delay)

    def attempt_begun(self, number: int, handler: Handler, cause: Cause, attempt: attempts.Attempt) -> None:
        if isinstance(cause, ResourceCause) and not isinstance(handler, _OF_NO_INTEREST):
            key = cause.resource, cause.body.object.head.key
            self._attempts[number] = key, AttemptNote(handler.id, self._backlog.now)

    def attempt_ended(
        self, number: int, handler: Handler, cause: Cause, outcome: attempts.Outcome | None, started: float
    ) -> None:
        if (begun := self._attempts.pop(number, None)) is None:
            return
        key, attempt = begun
        record = self._records.get(key)
        if record is None or outcome is None:
            return
        attempt.outcome = "retrying" if not outcome.final else "succeeded" if outcome.exception is None else "failed"
        if outcome.is_unfit:
            attempt.outcome = "pending"
        error = outcome.exception or outcome.ignored
        if error is not None and not isinstance(error, HandlerChildrenRetry):
            attempt.error = _show_error(error, key[0])
        attempt.next_at = None if outcome.final or outcome.is_unfit else self._find_time(outcome.delay or 0)
        record.errors.pop(attempt.handler, None)
        if attempt.error is not None:
            record.errors[attempt.handler] = attempt
        if isinstance(handler, ChangingHandler) and record.decisions:
            decision = record.decisions[-1]
            if outcome.is_unfit:
                decision.called = tuple(item for item in decision.called if item != handler.id)
            if len(decision.attempts) < MAX_ATTEMPTS:
                decision.attempts = (*decision.attempts, attempt)

    def _find_time(self, delay: float | None) -> float | None:
        return None if delay is None else self._backlog.now + delay


def _show_error(error: BaseException, resource: Resource) -> str:
    return sys.intern(shorten(RedactedTexts(resource).show_error(error), _MAX_ERROR))


def word_plan(plan: Plan) -> str:
    """Say in words what was decided for an object."""
    called = tuple([str(handler.id) for handler in plan.call])
    later = () if len(plan.called) == len(called) else tuple(_list_later(plan, called))
    return _word(plan.reason, plan.finalizer, called, later, plan.error is not None)


def _list_later(plan: Plan, called: Collection[str]) -> Iterator[str]:
    states = plan.progress.states
    for handler in plan.called:
        if handler.id not in called and (handler.id not in states or not states[handler.id].finished):
            yield handler.id


@functools.lru_cache(maxsize=MAX_OBJECTS)
def _word(
    reason: Reason, finalizer: FinalizerChange | None, called: tuple[str, ...], later: tuple[str, ...], is_unsure: bool
) -> str:
    """Put the words together: they are the same for many objects."""
    steps = []
    if finalizer is FinalizerChange.ADD:
        steps.append("adds the finalizer first")
    if finalizer is FinalizerChange.REMOVE:
        steps.append("removes the finalizer")
    if called:
        steps.append(f"calls {_join(called)}")
    if later:
        steps.append(f"{_join(later)} later")
    if is_unsure:
        steps.append("cannot tell for some handlers if they are for the object")
    if not steps:
        steps.append("nothing to call")
    return f"{TITLES[reason]}: {', '.join(steps)}"


def _join(ids: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(ids))
