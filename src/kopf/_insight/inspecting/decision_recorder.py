"""The recorder of decisions: it is told late, and writes the journal of what was decided and tried."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable

from kopf._controller.changes.decision import Plan
from kopf._controller.changes.detection import Detection
from kopf._controller.observer import Observer
from kopf._handlers import outcomes
from kopf._handlers.causes import Cause, ResourceCause
from kopf._handlers.handler_errors import HandlerChildrenRetry
from kopf._handlers.handlers import ChangingHandler, Handler, IndexingHandler, WebhookHandler
from kopf._handlers.outcomes import Outcome
from kopf._insight.backlog import Backlog
from kopf._insight.explaining.handler_kinds import TITLES
from kopf._insight.explaining.showing import Showing, shorten
from kopf._insight.inspecting.decision_journal import MAX_OBJECTS, DecisionJournal, ObjectKey, ObjectRecord
from kopf._insight.inspecting.decisions import Attempt, Decision
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange
from kopf._values.reasons import Reason
from kopf._values.resources import Resource

MAX_ATTEMPTS = 10
"""How many attempts are kept for one look: it can be many handlers."""

_OF_NO_INTEREST = (IndexingHandler, WebhookHandler)
_MAX_ERROR = 300
"""How much of the texts of errors is kept, in characters: there can be many."""


class DecisionRecorder(Observer):
    """Fills the journal, told late."""

    def __init__(self, journal: DecisionJournal, backlog: Backlog) -> None:
        self._journal = journal
        self._backlog = backlog
        self._attempts: dict[int, tuple[ObjectKey, Attempt]] = {}
        """Those that are being made right now."""

    def pass_decided(self, resource: Resource, key: str, obj: KubeObject, detection: Detection, plan: Plan) -> None:
        record, decision = self._begin(resource, key, obj)
        record.is_looked_at = True
        decision.reason = plan.reason.value
        decision.called = called = tuple([str(handler.id) for handler in plan.call])
        later = _list_later(plan) if len(plan.called) != len(called) else ()
        decision.text = _describe(plan.reason, plan.finalizer, called, later, plan.error is not None)

    def _begin(self, resource: Resource, key: str, obj: KubeObject | None) -> tuple[ObjectRecord, Decision]:
        record = self._journal.obtain(resource, key)
        if obj is not None:
            record.namespace, record.name = obj.head.namespace, obj.head.name
        decision = Decision(self._backlog.now)
        record.add(decision)
        return record, decision

    def pass_ended(
        self,
        resource: Resource,
        key: str,
        obj: KubeObject | None,
        error: BaseException | None,
        delay: float | None,
        started: float,
    ) -> None:
        record = self._journal.get(resource, key)
        if record is None or not record.is_looked_at:  # there was nothing to decide
            record, _ = self._begin(resource, key, obj)
        record.is_looked_at = False
        decision = record.decisions[-1]
        decision.error = None if error is None else _show_error(error, Showing(resource))
        decision.next_at = self._find_time(delay)

    def attempt_begun(self, number: int, handler: Handler, cause: Cause, attempt: outcomes.Attempt) -> None:
        if (key := _get_key(handler, cause)) is not None:
            made = Attempt(handler.id, self._backlog.now)
            self._attempts[number] = key, made
            self._journal.begin(key, made)

    def attempt_ended(
        self, number: int, handler: Handler, cause: Cause, outcome: Outcome | None, started: float
    ) -> None:
        if (known := self._attempts.pop(number, None)) is None:
            return
        key, attempt = known
        self._journal.end(key, attempt.handler)
        record = self._journal.get(*key)
        if record is None or outcome is None:
            return
        self._note_outcome(attempt, outcome, key[0])
        record.errors.pop(attempt.handler, None)
        if attempt.error is not None:
            record.errors[attempt.handler] = attempt
        if isinstance(handler, ChangingHandler) and record.decisions:
            decision = record.decisions[-1]
            if len(decision.attempts) < MAX_ATTEMPTS:
                decision.attempts = (*decision.attempts, attempt)

    def _note_outcome(self, attempt: Attempt, outcome: Outcome, resource: Resource) -> None:
        error = outcome.exception or outcome.ignored
        attempt.outcome = "retrying" if not outcome.final else "succeeded" if outcome.exception is None else "failed"
        if error is not None and not isinstance(error, HandlerChildrenRetry):
            attempt.error = _show_error(error, Showing(resource))
        attempt.next_at = None if outcome.final else self._find_time(outcome.delay or 0)

    def _find_time(self, delay: float | None) -> float | None:
        return None if delay is None else self._backlog.now + delay


def _get_key(handler: Handler, cause: Cause) -> ObjectKey | None:
    """Tell which object it is about, if the attempts for it are of interest."""
    if isinstance(cause, ResourceCause) and not isinstance(handler, _OF_NO_INTEREST):
        return cause.resource, cause.body.object.head.key
    return None


def _show_error(error: BaseException, showing: Showing) -> str:
    return sys.intern(shorten(showing.show_error(error), _MAX_ERROR))


def _list_later(plan: Plan) -> tuple[str, ...]:
    called = {handler.id for handler in plan.call}
    states = plan.progress.states
    later = [h.id for h in plan.called if h.id not in called and (h.id not in states or not states[h.id].finished)]
    return tuple(map(str, later))


@functools.lru_cache(maxsize=MAX_OBJECTS)
def _describe(
    reason: Reason, finalizer: FinalizerChange | None, called: tuple[str, ...], later: tuple[str, ...], is_unsure: bool
) -> str:
    """Say in words what was decided. It is the same for many objects."""
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
