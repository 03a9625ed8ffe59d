"""
The state of one object in the operator while there is something to do for it: what to handle next, and when.

It changes only by the transitions ``on_...``, which get the time and have no other effects. Only the latest state of
the object counts: it replaces all former ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kopf._controller.changes.object_memory import Carried, Result
from kopf._controller.own_writes import OwnWrites
from kopf._controller.throttling import count_failure, get_delay, is_overtaking
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject


class Rules(NamedTuple):
    """Facts about the whole operator."""

    comparable_versions: bool
    """Whether the server guarantees that resource versions can be compared."""
    consistency_timeout: float
    """The maximal wait for the echo of our own write, in seconds."""
    error_delays: Iterable[float]
    """The delays after the 1st, 2nd, etc. error in a row, in seconds; the last one repeats."""


class Unconfirmed(NamedTuple):
    """The latest state that is presumably older than our own write."""

    obj: KubeObject
    until: float
    """When to accept it after all, by the clock of the event loop."""


class ObjectState:
    """
    The state of one object, while something is going on with the object.

    All times are in seconds, by the clock of the event loop.

    Large because the next action depends on all of it together. It is no record, because most fields change many times.
    """

    __slots__ = (
        "_is_handled",
        "_is_requested",
        "_rules",
        "_unconfirmed",
        "_woken",
        "_writes",
        "last_seen",
        "memory",
        "pending",
        "retry_at",
    )

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._writes = OwnWrites(rules.comparable_versions)
        self._is_handled = False
        """Whether a pass over the object is going on."""
        self._is_requested = False
        """Whether another pass must follow it."""
        self._woken: dict[HandlerId, bool] | None = None
        """The handlers to call in the next pass, because they were woken meanwhile."""
        self._unconfirmed: Unconfirmed | None = None
        self.retry_at: float | None = None
        """Until when the object is left alone, if it is: until the next attempts of handlers, or after errors."""
        self.pending: KubeObject | None = None
        """The latest state that is not handled yet."""
        self.last_seen: KubeObject | None = None
        """The state of the last pass, for delayed retries."""
        self.memory = Carried()

    @property
    def is_ready(self) -> bool:
        """Whether there is something to handle now."""
        return self.pending is not None and self.retry_at is None

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return (
            self._writes.expected is None
            and self.pending is None
            and self.retry_at is None
            and not self._is_handled
            and self.memory.unsaved is None
            and not self.memory.initial
            and self.memory.woken is None
        )

    @property
    def alarm(self) -> float | None:
        """The time for :meth:`on_time`, if nothing else happens before."""
        if self._unconfirmed is None:
            return self.retry_at
        until = self._unconfirmed.until
        return until if self.retry_at is None else min(until, self.retry_at)

    def on_event(self, obj: KubeObject, now: float, *, initial: bool = False) -> bool:
        """Accept a state from the stream (``initial``: from the first listing); return whether it is news."""
        if initial:
            self.memory.initial = True
            if self.memory.called is None:
                self.memory.called = set()
        is_news = self._writes.is_news(obj.head.resourceVersion)
        if is_news:
            self._deliver(obj)
        elif self._writes.expected is not None:
            self._unconfirmed = _keep_aside(obj, self._unconfirmed, now, self._rules)
        else:
            self._unconfirmed = None  # the echo has come: all states before it were really old
        return is_news

    def on_time(self, when: float) -> None:
        """Go on with retries delayed until this time, and stop waiting for an echo that has not come by then."""
        if self.retry_at is not None and self.retry_at <= when:
            self.retry_at = None
            self.pending = self.last_seen if self.pending is None else self.pending
        if self._unconfirmed is not None and self._unconfirmed.until <= when:
            self._writes.give_up()
            self._deliver(self._unconfirmed.obj)

    def on_request(self, obj: KubeObject) -> None:
        """Request a pass in this or a later state: something that the object has waited for has exited."""
        if self.memory.errors and obj.head.deletionTimestamp is not None:
            self.retry_at = None  # the deletion waits for what has exited, not for the cure of the errors
        if self._is_handled:
            self._is_requested = True  # the state for it is known when the current pass is over
        elif self.pending is None:
            self.memory.saved = None
            self.pending = obj

    def on_wake(self, obj: KubeObject, handlers: Iterable[HandlerId]) -> None:
        """Request calls of the handlers in this or a later state, though the object has not changed."""
        woken = dict.fromkeys(handlers, False)
        if self._is_handled:
            self._woken = {**(self._woken or {}), **woken}
        else:
            self.memory.woken = {**(self.memory.woken or {}), **woken}
            if not self.memory.errors:
                self.retry_at = None
        self.on_request(obj)

    def on_start(self) -> KubeObject:
        """Begin a pass over the pending state; return that state."""
        if (pending := self.pending) is None:
            raise RuntimeError("There is nothing to handle.")
        self.last_seen, self.pending = pending, None
        self._is_handled = True
        self._writes.start()
        return pending

    def on_response(self, before: KubeObject, after: KubeObject, now: float) -> bool:
        """Accept the result of our own write; return whether no newer state is pending."""
        version = after.head.resourceVersion
        self._writes.finish(version, previous=before.head.resourceVersion)
        if self.pending is not None:
            if not self._writes.is_superseded(self.pending.head.resourceVersion, version):
                return False
            if self._writes.expected is not None:
                # With incomparable versions, it only seems to be older.
                self._unconfirmed = _keep_aside(self.pending, self._unconfirmed, now, self._rules)
            self.pending = None
        return True

    def on_result(self, result: Result, now: float) -> None:
        """End the pass, and decide what is next. If it had an error, :meth:`on_failure` must follow."""
        memory, is_requested = self.memory, self._is_requested
        self._is_handled = self._is_requested = False
        if result.error is None:
            if memory.errors or memory.conflicts:
                memory.errors = memory.conflicts = 0
            if result.resumed and (memory.initial or memory.woken is not None):
                memory.initial, memory.called, memory.woken = False, None, None
        if self._woken is not None:
            self._take_woken(self._woken)
        if result.obj is None:
            self.pending = None  # any pending state is older; the stream will report the deletion
        elif self.pending is None:
            if result.saved is not None:
                memory.saved = result.saved
            if result.error is not None:
                return
            if (result.changed and not result.settled) or is_requested:
                self.pending = result.obj
            elif result.requeue_after is not None:
                self.last_seen, self.retry_at = result.obj, now + result.requeue_after

    def on_failure(self, obj: KubeObject, now: float, *, is_conflict: bool = False) -> float | None:
        """
        End a failed pass: delay the next one, the longer the more failures; return the delay in seconds.

        For the first conflict in a row, it is ``None``: the object has changed meanwhile, which is not a failure, and
        the next pass begins as soon as its fresh state comes.
        """
        memory = self.memory
        self._is_handled = self._is_requested = False
        if self._woken is not None:
            self._take_woken(self._woken)
        is_excused = count_failure(memory, is_conflict=is_conflict)
        delay = get_delay(self._rules.error_delays, 1 if is_excused else memory.errors)
        if self.pending is None or not (is_excused or is_overtaking(self.pending, obj)):
            self.last_seen, self.retry_at = obj, now + delay
        return None if is_excused else delay

    def _take_woken(self, woken: dict[HandlerId, bool]) -> None:
        self.memory.woken, self._woken = {**(self.memory.woken or {}), **woken}, None

    def _deliver(self, obj: KubeObject) -> None:
        """
        Make the new state pending. It interrupts the wait for retries.

        After errors, only deletions do so, and edits that can be the cure. Otherwise, frequent changes of the object
        (usually of its status) would repeat the failure each time. Any change is the cure of a conflict.
        """
        memory = self.memory
        self.pending = obj
        self._unconfirmed = None
        if memory.saved is not None:
            memory.saved = None
        is_cure = not memory.errors or memory.conflicts > 0
        if memory.conflicts:
            memory.conflicts = 0
        if is_cure or self.last_seen is None or is_overtaking(obj, self.last_seen):
            self.retry_at = None


def _keep_aside(obj: KubeObject, known: Unconfirmed | None, now: float, rules: Rules) -> Unconfirmed | None:
    """Keep a state that is presumably older than our own write, in case its echo never comes."""
    if rules.comparable_versions:
        return None  # it is certainly older
    return Unconfirmed(obj, now + rules.consistency_timeout if known is None else known.until)
