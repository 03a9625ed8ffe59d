"""
The decision: what is to be done about an object, by all that is known of it. Nothing is done here, no I/O, no waiting.

It is made in two steps. First, :func:`decide` says which handlers to call now. Then, when they were called and their
outcomes are in the progress, :func:`conclude` says what to save, and when to come back.

The rules that are decided here: the finalizer comes before the first call; what has succeeded for a change is not
called again for it; a deletion overtakes everything else; what could not be saved is saved first; nothing is deleted
because of failures; who is not for the object leaves no traces on it.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from kopf._controller.changes.detection import Detection
from kopf._controller.changes.finalizer import MAX_REMOVALS, Blocking, choose_change
from kopf._controller.changes.progress import Progress, find_overtaken, get_delay, get_pending
from kopf._controller.changes.saved_states import SavedStates
from kopf._controller.changes.seen_states import SeenStates
from kopf._handlers.handlers import ChangingHandler, ResourceHandler, SpawningHandler
from kopf._values import codec
from kopf._values.ids import HandlerId
from kopf._values.patches import ADD, REMOVE, FinalizerChange
from kopf._values.reasons import CREATE, DELETE, FREE, NOOP, UPDATE, Reason
from kopf._values.records import FrozenRecord, Record, replace
from kopf._values.user_functions import FilterError

MAX_RESTORATIONS = 5
"""How many times the lost state of an object is put back, until it is obvious that somebody insists on removing it."""

MAX_FILTER_FAILURES = 7
"""How many times in a row a filter can fail until its handler is skipped: about half a minute with default delays."""


class Choice(FrozenRecord, frozen=True):
    """The handlers that are for an object and for what has happened to it."""

    accompanying: Sequence[ChangingHandler] = ()
    """Those that can be called for the object at all. If there are none, the object is not touched."""
    called: Sequence[ChangingHandler] = ()
    """Those of them that are for this very change."""
    spawning: Sequence[SpawningHandler] = ()
    """The daemons & timers that are to run for the object."""
    demanding: Sequence[ChangingHandler | SpawningHandler] = ()
    """Those of all of these that block the deletion of the object."""
    failures: Mapping[ResourceHandler, FilterError] = {}
    """For which handlers it is unknown if they are for the object, and why."""
    relevant_failures: Sequence[FilterError] = ()
    """Those of the failures because of which it is unknown what is to be called or started right now."""


class BackgroundActivity(Protocol):
    """What is known of the daemons & timers of an object."""

    def has_running(self, *, blocking: bool = False) -> bool:
        """Whether any of them runs right now; if ``blocking``, of those that are not optional only."""

    def is_over(self, handler: SpawningHandler) -> bool:
        """Whether the handler has run for the object, and will not run again."""


class Situation(Record):
    """All that is known of an object when it is looked at."""

    key: str
    """What tells the object from all others of its kind."""
    detection: Detection
    blocking: Blocking
    saved: SavedStates
    now: datetime.datetime
    unsaved: Collection[HandlerId] | None = None
    """The handlers whose states could not be saved; ``None`` if there is nothing at all that is still to be saved."""
    called: set[HandlerId] | None = None
    """The handlers that this operator has called for the object since it began to resume it; ``None`` if it did not."""
    woken: dict[HandlerId, bool] | None = None
    """Those to be called though the object has not changed, and whether they were called for that; to be changed."""
    digest: str | None = None
    """The digest of the current state, if it is already known."""
    errors: int = 0
    """How many times in a row the object could not be handled."""
    removals: int = 0
    """How many times our finalizer was removed from the object, since it was needed there."""
    is_restoring: bool = False
    """Whether the last handled state is to be stored again, as it was removed by somebody else."""
    background: BackgroundActivity | None = None


class Saving(enum.Enum):
    """What is saved at the end of a cycle."""

    NOTHING = "nothing"
    FINALIZER = "the finalizer only, or nothing if it does not change"
    PROGRESS = "what was done so far"
    END = "everything is done: the last handled state instead of the progress"


NOTHING: Final = Saving.NOTHING
FINALIZER: Final = Saving.FINALIZER
PROGRESS: Final = Saving.PROGRESS
END: Final = Saving.END
"""By themselves, as the reasons are."""


class Plan(Record):
    """What is to be done."""

    reason: Reason
    choice: Choice
    progress: Progress
    seen: SeenStates
    saving: Saving
    called: Sequence[ChangingHandler] = ()
    """All handlers of this change: those to be called now and later, and those that are done with it."""
    call: Sequence[ChangingHandler] = ()
    """Those to be called now."""
    unfit: Collection[HandlerId] = ()
    """Those that could not be called until the object is changed: it does not fit its model."""
    spawning: Sequence[SpawningHandler] = ()
    """The daemons & timers that are to run for the object: the others are to stop."""
    is_background_kept: bool = False
    """Whether the daemons & timers are left as they are: it is too early to start them."""
    finalizer: FinalizerChange | None = None
    is_required: bool = False
    """Whether the finalizer is needed on the object."""
    is_contested: bool = False
    """Whether somebody else puts the finalizer back although it is not needed, and this is to be said now."""
    is_handled: bool = False
    """Whether the state of the object is the last handled one from now on."""
    requeue_after: float | None = None
    """In how many seconds the handling continues; ``None`` if there is nothing to do until the object changes."""
    resumed: bool = False
    """Whether the object is known to the operator from now on, i.e. its initial handling is over."""
    error: FilterError | None = None
    """Because of what the object is to be looked at again."""
    skipped: Sequence[FilterError] = ()
    """Because of what some handlers are skipped for good, as these filters have failed too many times."""


def recognise(
    detection: Detection, memory: object | None, *, is_released: bool, last: bytes | None = None
) -> Detection:
    """
    Correct what was detected by what is remembered of the object: its state on the object can be old or lost.

    ``memory`` is the fingerprint of the state in which the object was handled by this process, if it was; ``last`` is
    that state, if it is still known. If it is not, then compared to it, everything has changed.
    """
    if is_released:
        # What we see can be older than our own write. Nobody can put a finalizer on an object being deleted.
        return Detection(FREE)
    if detection.reason is CREATE and memory is not None:
        is_same = memory == make_fingerprint(detection.snapshot)
        return replace(detection, reason=NOOP if is_same else UPDATE, last=codec.decode(last or b"{}"))
    return detection


def make_fingerprint(snapshot: bytes) -> int:
    """Identify a state within this process."""
    return hash(snapshot)


def is_overtaken(detection: Detection, unsaved: Reason | None) -> bool:
    """Tell if what could not be saved does not matter anymore: it must not hold the deletion."""
    return detection.reason is DELETE and unsaved is not None and unsaved is not DELETE


def decide(situation: Situation, choose: Callable[[Reason], Choice]) -> Plan:
    """Decide which handlers to call now, and what to do before that. ``choose`` selects the handlers for a reason."""
    detection, saved = situation.detection, situation.saved
    reason = detection.reason
    choice = choose(reason)
    seen = SeenStates(reason, detection.snapshot, situation.digest)
    overtaken = () if saved.is_blank else tuple(find_overtaken(choice.accompanying, saved, seen))
    if overtaken and reason is NOOP:
        reason = UPDATE
        choice = choose(reason)
        seen = SeenStates(reason, detection.snapshot, situation.digest)
    progress = Progress(saved, reason, situation.now, situation.unsaved, situation.called, situation.woken)
    plan = Plan(reason, choice, progress, seen, PROGRESS)
    if reason is FREE:
        plan.saving = NOTHING
        plan.resumed = True
        return plan
    if choice.relevant_failures:
        _judge_failures(plan, situation)
    called = choice.called
    if overtaken:
        called = [*called, *(item for item in overtaken if item not in called)]
    plan.called, plan.spawning = called, choice.spawning
    if situation.unsaved is None and not choice.accompanying and not choice.spawning:
        plan.saving = FINALIZER
        return plan
    if situation.unsaved is None and (called or choice.spawning):
        if choice.demanding or situation.blocking.is_ours:
            _choose_finalizer(plan, situation)
        if plan.finalizer is ADD:
            # Before the first handler is called: if we crash after it, the deletion must not slip through.
            plan.saving = FINALIZER
            plan.is_background_kept = True
            return plan
    progress.involve(called, seen)
    if situation.unsaved is None:  # otherwise, save first what was done before
        plan.call = get_pending(called, progress.states, situation.now)
    return plan


def _judge_failures(plan: Plan, situation: Situation) -> None:
    """At first, the object is to be looked at again. If the filters keep failing, their handlers are not for it."""
    failures = plan.choice.relevant_failures
    if plan.reason is DELETE or situation.errors < MAX_FILTER_FAILURES:  # nothing is deleted due to failures
        plan.error = failures[0]
    else:
        plan.skipped = failures


def _choose_finalizer(plan: Plan, situation: Situation) -> None:
    """
    Look if the finalizer is needed; those daemons & timers that have exited for good do not need it anymore.

    It is only for those objects where anybody could need it, or where it is: mostly, neither is so.
    """
    background, demanding = situation.background, plan.choice.demanding
    plan.is_required = any(
        background is None or not isinstance(item, SpawningHandler) or not background.is_over(item)
        for item in demanding
    )
    # Only the deletion handlers can hold a deletion; of a living object, it is unknown what else is declared for it.
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
    """Complete the plan when the handlers were called: what to save, and when to come back."""
    if plan.saving is NOTHING or plan.is_background_kept:
        return
    if plan.finalizer is None and (plan.choice.demanding or situation.blocking.is_ours):
        _choose_finalizer(plan, situation)
    if plan.saving is FINALIZER:
        plan.resumed = True
        return
    is_deleted = situation.blocking.is_deleted
    called = [item for item in plan.called if item.id not in plan.unfit] if plan.unfit else plan.called
    plan.requeue_after = get_delay(called, plan.progress.states, now)
    if (
        plan.error is None
        and not plan.unfit
        and plan.requeue_after is None
        and not (is_deleted and _is_accompanied(situation))
    ):
        plan.saving = END
        plan.resumed = True
        is_change = plan.reason is CREATE or plan.reason is UPDATE or situation.is_restoring
        plan.is_handled = is_change and bool(plan.choice.accompanying)
    if is_deleted:
        plan.finalizer = REMOVE if plan.saving is END else None
