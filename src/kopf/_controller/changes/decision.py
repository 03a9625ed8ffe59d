"""
The decision: the next actions for an object, by all that is known about it. No actions, no I/O, no waiting.

It has two steps. First, :func:`decide` chooses the handlers to call now. After the calls, with the outcomes in the
progress, :func:`conclude` decides what to save, and when to continue.

The rules: the finalizer comes before the first call; a handler that has succeeded for a change is not called again for
it; a deletion overtakes everything else; unsaved results are saved first; failures never let an object be deleted;
handlers that are not for the object leave no traces on it.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from kopf._controller.changes.detection import Detection
from kopf._controller.changes.finalizer import MAX_REMOVALS, Blocking, choose_change
from kopf._controller.changes.handler_states import SavedStates
from kopf._controller.changes.progress import Progress, find_overtaken, get_delay, get_pending
from kopf._controller.changes.seen_states import SeenStates
from kopf._handlers.handlers import ChangingHandler, ResourceHandler, SpawningHandler
from kopf._values import codec
from kopf._values.ids import HandlerId
from kopf._values.patches import ADD, REMOVE, FinalizerChange
from kopf._values.reasons import CREATE, DELETE, FREE, NOOP, RESUME, UPDATE, Reason
from kopf._values.records import FrozenRecord, Record, replace
from kopf._values.user_functions import FilterError

MAX_RESTORATIONS = 5
"""How often the operator restores the lost state of an object, until it gives way to the client that removes it."""

MAX_FILTER_FAILURES = 7
"""How many times in a row a filter can fail until its handler is skipped: about half a minute with default delays."""


class Choice(FrozenRecord, frozen=True):
    """The handlers that match an object and its change."""

    accompanying: Sequence[ChangingHandler] = ()
    """The handlers that match the object, for any change. If there are none, the object is not touched."""
    called: Sequence[ChangingHandler] = ()
    """The accompanying handlers for this change."""
    spawning: Sequence[SpawningHandler] = ()
    """The daemons and timers for the object."""
    demanding: Sequence[ChangingHandler | SpawningHandler] = ()
    """All of these that block the deletion of the object."""
    failures: Mapping[ResourceHandler, FilterError] = {}
    """The handlers with failed filters, which possibly match, and their errors."""
    relevant_failures: Sequence[FilterError] = ()
    """The errors of handlers that would be called or started right now."""


class BackgroundActivity(Protocol):
    """The state of the daemons and timers of an object."""

    def has_running(self, *, blocking: bool = False) -> bool:
        """Tell if any of them is running; with ``blocking``, any that is not optional."""

    def is_over(self, handler: SpawningHandler) -> bool:
        """Tell if the handler has run for the object, and will not run again."""


class Situation(Record):
    """All facts about an object as of one pass."""

    key: str
    """The identifier of the object among all objects of its kind."""
    detection: Detection
    blocking: Blocking
    saved: SavedStates
    now: datetime.datetime
    unsaved: Collection[HandlerId] | None = None
    """The handlers with unsaved states; ``None`` if nothing is unsaved, not even a patch."""
    called: set[HandlerId] | None = None
    """The handlers that this operator has called since it began to resume the object; ``None`` if it does not."""
    woken: dict[HandlerId, bool] | None = None
    """The handlers to call without a change of the object, and whether they were called; updated by the progress."""
    digest: str | None = None
    """The digest of the current state, if already known."""
    errors: int = 0
    """The number of failed passes in a row."""
    removals: int = 0
    """The number of removals of our finalizer since it was last needed."""
    is_restoring: bool = False
    """Whether to store the last handled state again, because others have removed it."""
    background: BackgroundActivity | None = None


class Saving(enum.Enum):
    """The content to save at the end of a pass."""

    NOTHING = "nothing"
    FINALIZER = "the finalizer only, or nothing if it does not change"
    PROGRESS = "the progress so far"
    END = "everything is done: the last handled state instead of the progress"


NOTHING: Final = Saving.NOTHING
FINALIZER: Final = Saving.FINALIZER
PROGRESS: Final = Saving.PROGRESS
END: Final = Saving.END
"""Shortcuts, as for the reasons."""


class Plan(Record):
    """The actions of one pass."""

    reason: Reason
    choice: Choice
    progress: Progress
    seen: SeenStates
    saving: Saving
    called: Sequence[ChangingHandler] = ()
    """All handlers of this change: to be called now, to be called later, or finished."""
    call: Sequence[ChangingHandler] = ()
    """The handlers to call now."""
    unfit: Collection[HandlerId] = ()
    """The handlers that cannot be called until the object changes, because it does not fit their model."""
    spawning: Sequence[SpawningHandler] = ()
    """The daemons and timers that must run for the object; all others must stop."""
    is_background_kept: bool = False
    """Whether to leave the daemons and timers as they are, because it is too early to start them."""
    finalizer: FinalizerChange | None = None
    is_required: bool = False
    """Whether the object needs the finalizer."""
    is_contested: bool = False
    """Whether to warn that others put back the finalizer, which is not needed."""
    is_handled: bool = False
    """Whether the state of the object becomes the last handled one."""
    requeue_after: float | None = None
    """The delay until the next pass, in seconds; ``None`` if there is nothing to do until the object changes."""
    resumed: bool = False
    """Whether the initial handling of the object is over."""
    error: FilterError | None = None
    """The error that requires another pass."""
    skipped: Sequence[FilterError] = ()
    """The errors of filters that have failed too often, so that their handlers are skipped for good."""


def recognise(
    detection: Detection, memory: object | None, *, is_released: bool, last: bytes | None = None
) -> Detection:
    """
    Correct the detection by the memory of the object: the last handled state on the object can be old or lost.

    ``memory`` is the fingerprint of the state in which this process has handled the object, if it has; ``last`` is that
    state, if it is still known. If not, everything counts as changed.
    """
    if is_released:
        # This state can be older than our own write. Nobody can put a finalizer on an object being deleted.
        return Detection(FREE)
    if detection.reason is CREATE and memory is not None:
        is_same = memory == make_fingerprint(detection.snapshot)
        return replace(detection, reason=NOOP if is_same else UPDATE, last=codec.decode(last or b"{}"))
    return detection


def make_fingerprint(snapshot: bytes) -> int:
    """Make an identifier of a state within this process."""
    return hash(snapshot)


def is_overtaken(detection: Detection, unsaved: Reason | None) -> bool:
    """Tell if the unsaved results do not matter anymore: they must not delay the deletion."""
    return detection.reason is DELETE and unsaved is not None and unsaved is not DELETE


def decide(situation: Situation, choose: Callable[[Reason], Choice]) -> Plan:
    """Decide which handlers to call now, and what to do before. ``choose`` selects the handlers for a reason."""
    detection, saved, unsaved = situation.detection, situation.saved, situation.unsaved
    reason = detection.reason
    choice = choose(reason)
    seen = SeenStates(reason, detection.snapshot, situation.digest)
    overtaken = () if saved.is_blank else tuple(find_overtaken(choice.accompanying, saved, seen))
    if overtaken and (reason is NOOP or reason is RESUME):
        reason = UPDATE
        choice = choose(reason)
        seen = SeenStates(reason, detection.snapshot, situation.digest)
    progress = Progress(saved, reason, situation.now, unsaved, situation.called, situation.woken)
    if reason is FREE:
        return Plan(reason, choice, progress, seen, NOTHING, resumed=True)
    called = choice.called
    if overtaken:
        called = [*called, *(item for item in overtaken if item not in called)]
    plan = Plan(reason, choice, progress, seen, PROGRESS, called, spawning=choice.spawning)
    if choice.relevant_failures:
        _judge_failures(plan, situation)
    if unsaved is None and not choice.accompanying and not choice.spawning:
        plan.saving = FINALIZER
        return plan
    if unsaved is None and (called or choice.spawning):
        if choice.demanding or situation.blocking.is_ours:
            _choose_finalizer(plan, situation)
        if plan.finalizer is ADD:
            # Before the first handler is called: if we crash after it, the deletion must not slip through.
            plan.saving = FINALIZER
            plan.is_background_kept = True
            return plan
    progress.involve(called, seen)
    if unsaved is None:  # otherwise, save the earlier results first
        plan.call = get_pending(called, progress.states, situation.now)
    return plan


def _judge_failures(plan: Plan, situation: Situation) -> None:
    """Retry the pass at first. If the filters keep failing, their handlers do not match the object."""
    failures = plan.choice.relevant_failures
    if plan.reason is DELETE or situation.errors < MAX_FILTER_FAILURES:  # nothing is deleted due to failures
        plan.error = failures[0]
    else:
        plan.skipped = failures


def _choose_finalizer(plan: Plan, situation: Situation) -> None:
    """
    Decide about the finalizer; daemons and timers that have exited for good do not need it anymore.

    This is only for objects that have the finalizer, or have handlers that can need it: mostly, neither is true.
    """
    background, demanding = situation.background, plan.choice.demanding
    plan.is_required = any(
        background is None or not isinstance(item, SpawningHandler) or not background.is_over(item)
        for item in demanding
    )
    # Only deletion handlers can delay a deletion; for a living object, the failed handlers can be of any kind.
    is_in_doubt = plan.error is not None or (bool(plan.choice.failures) and not situation.blocking.is_deleted)
    blocking, removals = situation.blocking, situation.removals
    is_kept = is_in_doubt or _is_accompanied(situation, blocking=not blocking.is_deleted)
    plan.finalizer = choose_change(blocking, is_required=plan.is_required, is_kept=is_kept, removals=removals)
    is_unneeded = blocking.is_ours and not plan.is_required and not is_kept
    plan.is_contested = is_unneeded and plan.finalizer is None and removals == MAX_REMOVALS


def _is_accompanied(situation: Situation, *, blocking: bool = False) -> bool:
    background = situation.background
    return background is not None and background.has_running(blocking=blocking)


def conclude(plan: Plan, situation: Situation, now: datetime.datetime) -> None:
    """Complete the plan after the calls: decide what to save, and when to continue."""
    if plan.saving is NOTHING or plan.is_background_kept:
        return
    if plan.finalizer is None and (plan.choice.demanding or situation.blocking.is_ours):
        _choose_finalizer(plan, situation)
    if plan.saving is FINALIZER:
        plan.resumed = True
        return
    is_deleted = situation.blocking.is_deleted
    called = [item for item in plan.called if item.id not in plan.unfit] if plan.unfit else plan.called
    delay = get_delay(called, plan.progress.states, now)
    if delay is not None:
        plan.requeue_after = delay
    elif plan.error is None and not plan.unfit and not (is_deleted and _is_accompanied(situation)):
        plan.saving = END
        plan.resumed = True
        if plan.reason is CREATE or plan.reason is UPDATE or situation.is_restoring:
            plan.is_handled = bool(plan.choice.accompanying)
    if is_deleted:
        plan.finalizer = REMOVE if plan.saving is END else None
