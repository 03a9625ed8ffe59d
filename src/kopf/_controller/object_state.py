"""
The state of one object in the operator, while there is something to do for it: what is to be handled next, and when.

It changes by the transitions ``on_…`` only, which are told the time and have no other effects. Of the states of the
object, only the latest one counts: it replaces all that was there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from kopf._controller.changes.carried import Carried, Result
from kopf._controller.own_writes import OwnWrites
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.records import Record, field


class Rules(NamedTuple):
    """What is the same for all objects of an operator."""

    comparable_versions: bool
    """Whether the server guarantees that resource versions can be compared."""
    consistency_timeout: float
    """How long to wait for our own write to come back from the server, in seconds."""
    error_delays: Iterable[float]
    """How long to leave an object alone after the 1st, 2nd, etc error in a row, in seconds; then, the last one."""

    def get_delay(self, errors: int) -> float:
        """For how long to leave the object alone after so many errors in a row, in seconds."""
        delay = 0.0
        for delay in itertools.islice(self.error_delays, errors):  # noqa: B007
            pass
        return delay


class Unconfirmed(NamedTuple):
    """The latest of the states that are presumed to be older than our own write."""

    obj: KubeObject
    until: float
    """When to believe it after all, by the clock of the event loop."""


class Memory(Carried):
    """What one handling of the object leaves for the next one."""

    conflicts: int = 0
    """How many times in a row the patches were refused with nothing new on the stream that would explain it."""


class ObjectState(Record, eq=False):
    """
    What is known of one object. It exists only while something is going on with the object.

    All times are in seconds, by the clock of the event loop.

    Large because what is next depends on all of that together.
    """

    _rules: Rules
    _writes: OwnWrites
    _is_handled: bool = False
    """Whether the object is being handled right now."""
    _is_requested: bool = False
    """Whether it is to be looked at again when that is over."""
    _woken: dict[HandlerId, bool] | None = None
    """Which handlers are to be called after that, as they were woken meanwhile."""
    _unconfirmed: Unconfirmed | None = None
    retry_at: float | None = None
    """Until when the object is left alone, if it is: until the next attempts of handlers, or after errors."""
    pending: KubeObject | None = None
    """The latest state that is not handled yet."""
    last_seen: KubeObject | None = None
    """The state as of the last handling, to return to when it is time to."""
    memory: Memory = field(default_factory=Memory)

    @property
    def is_ready(self) -> bool:
        """Whether there is something to be handled now."""
        return self.pending is not None and self.retry_at is None

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return (
            self.pending is None
            and self.retry_at is None
            and not self._is_handled
            and self._writes.expected is None
            and self.memory.unsaved is None
            and not self.memory.initial
            and self.memory.woken is None
        )

    @property
    def alarm(self) -> float | None:
        """When it is time for :meth:`on_time`, if nothing else happens before."""
        if self._unconfirmed is None:
            return self.retry_at
        until = self._unconfirmed.until
        return until if self.retry_at is None else min(until, self.retry_at)

    def on_event(self, obj: KubeObject, now: float, *, initial: bool = False) -> bool:
        """Take a state from the stream (``initial`` if of the first listing); tell if it is newer than all known."""
        if initial:
            self.memory.initial = True
            self.memory.called = set() if self.memory.called is None else self.memory.called
        is_news = self._writes.is_news(obj.head.resourceVersion)
        if is_news:
            self._deliver(obj)
        elif self._writes.expecting:
            self._unconfirmed = _keep_aside(obj, self._unconfirmed, now, self._rules)
        else:
            self._unconfirmed = None  # the echo has come: all before it was really old
        return is_news

    def on_time(self, when: float) -> None:
        """It is that time: go on with what was delayed until then, stop waiting for what has not come by then."""
        if self.retry_at is not None and self.retry_at <= when:
            self.retry_at = None
            self.pending = self.last_seen if self.pending is None else self.pending
        if self._unconfirmed is not None and self._unconfirmed.until <= when:
            self._writes.give_up()
            self._deliver(self._unconfirmed.obj)

    def on_request(self, obj: KubeObject) -> None:
        """Look at the object again in this or a later state: something that it has waited for, has exited."""
        if self.memory.errors and obj.head.deletionTimestamp is not None:
            self.retry_at = None  # the deletion waits for what has exited, not for the cure of the errors
        if self._is_handled:
            self._is_requested = True  # what it is to be looked at in, is known when the current handling is over
        elif self.pending is None:
            self.memory.saved = None
            self.pending = obj

    def on_wake(self, obj: KubeObject, handlers: Iterable[HandlerId]) -> None:
        """Call the handlers for the object in this or a later state, though it has not changed itself."""
        woken = dict.fromkeys(handlers, False)
        if self._is_handled:
            self._woken = {**(self._woken or {}), **woken}
        else:
            self.memory.woken = {**(self.memory.woken or {}), **woken}
            if not self.memory.errors:
                self.retry_at = None
        self.on_request(obj)

    def on_start(self) -> KubeObject:
        """The handling of the pending state begins; get that state."""
        if self.pending is None:
            raise RuntimeError("There is nothing to be handled.")
        self.last_seen, self.pending = self.pending, None
        self._is_handled = True
        self._writes.start()
        return self.last_seen

    def on_response(self, before: KubeObject, after: KubeObject, now: float) -> bool:
        """We have changed the object, so what was there before is old now; tell if there is nothing newer waiting."""
        version = after.head.resourceVersion
        self._writes.finish(version, previous=before.head.resourceVersion)
        if self.pending is not None:
            if not self._writes.is_superseded(self.pending.head.resourceVersion, version):
                return False
            if self._writes.expecting:
                # With incomparable versions, it only seems to be older.
                self._unconfirmed = _keep_aside(self.pending, self._unconfirmed, now, self._rules)
            self.pending = None
        return True

    def on_result(self, result: Result, now: float) -> None:
        """The handling is over; decide what is next. If there was an error, :meth:`on_failure` is to follow."""
        memory = self.memory
        is_requested = self._is_requested
        self._is_handled = self._is_requested = False
        if result.error is None:
            memory.errors = memory.conflicts = 0
            if result.resumed:
                memory.initial, memory.called, memory.woken = False, None, None
        self._take_woken()
        if result.obj is None:
            self.pending = None  # whatever it is, it is older; the stream will tell that the object is gone
        elif self.pending is None:
            memory.saved = result.saved
            if result.error is not None:
                return
            if (result.changed and not result.settled) or is_requested:
                self.pending = result.obj
            elif result.requeue_after is not None:
                self.last_seen, self.retry_at = result.obj, now + result.requeue_after

    def on_failure(self, obj: KubeObject, now: float, *, is_conflict: bool = False) -> float | None:
        """
        The handling has failed: leave the object alone for some time, the longer the more failures; get that time.

        For the first conflict in a row, it is ``None``: the object has changed meanwhile, which is not a failure, and
        the handling goes on from its fresh state as soon as that comes.
        """
        memory = self.memory
        self._is_handled = self._is_requested = False
        self._take_woken()
        is_excused = is_conflict and not memory.conflicts
        if is_excused:
            memory.conflicts += 1
        else:
            memory.errors += 1
            memory.conflicts = memory.conflicts if is_conflict else 0
        delay = self._rules.get_delay(1 if is_excused else memory.errors)
        if self.pending is None or not (is_excused or is_overtaking(self.pending, obj)):
            self.last_seen, self.retry_at = obj, now + delay
        return None if is_excused else delay

    def _take_woken(self) -> None:
        if self._woken is not None:
            self.memory.woken, self._woken = {**(self.memory.woken or {}), **self._woken}, None

    def _deliver(self, obj: KubeObject) -> None:
        """
        Put the new state in. It interrupts the waiting for retries.

        After errors, only deletions do, and the edits that can be the cure: otherwise, those who change the object all
        the time (its status, usually) would make us repeat what has failed all the time. Of conflicts, the cure is any.
        """
        memory = self.memory
        self.pending = obj
        self._unconfirmed = None
        memory.saved = None
        is_cure = not memory.errors or memory.conflicts > 0
        memory.conflicts = 0
        if is_cure or self.last_seen is None or is_overtaking(obj, self.last_seen):
            self.retry_at = None


def make_state(rules: Rules) -> ObjectState:
    """Begin with an object of which nothing is known."""
    return ObjectState(rules, OwnWrites(rules.comparable_versions))


def _keep_aside(obj: KubeObject, known: Unconfirmed | None, now: float, rules: Rules) -> Unconfirmed | None:
    """Keep a state that is probably older than our own write, in case that the write never comes back."""
    if rules.comparable_versions:
        return None  # it is older for sure
    return Unconfirmed(obj, now + rules.consistency_timeout if known is None else known.until)


def is_overtaking(state: KubeObject, obj: KubeObject) -> bool:
    """Tell if the state is worth trying again what has failed for the object: a deletion, or a different spec."""
    is_deletion = state.head.deletionTimestamp is not None and obj.head.deletionTimestamp is None
    return is_deletion or state.head.generation != obj.head.generation
