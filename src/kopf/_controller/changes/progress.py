"""
Progress: which handlers are done with the current change, which ones need retries, and when.

It begins with the saved states on the object, and goes back there with the patch at the end of each pass.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from kopf._controller.changes.handler_states import HandlerState, SavedStates
from kopf._controller.changes.seen_states import SeenStates
from kopf._handlers.attempts import Outcome
from kopf._handlers.handlers import ChangingHandler, ReconcilingHandler
from kopf._values.ids import HandlerId
from kopf._values.patches import Patch
from kopf._values.reasons import Reason
from kopf._values.records import replace

_MAX_BASELINE_SIZE = 64 * 1024
"""The maximal size of the kept state as of the beginning of a creation, in bytes: annotations share 256 KiB."""


class Counts(NamedTuple):
    """The numbers of finished handlers."""

    succeeded: int
    failed: int


class Progress(Mapping[HandlerId, HandlerState]):
    """
    The states of all handlers that take part in the handling of a change, including sub-handlers.

    Large because it is a mapping, for the lifecycles, and makes all changes of the states.
    """

    __slots__ = (
        "_begun",
        "_called",
        "_changed",
        "_handlers",
        "_noted",
        "_now",
        "_purpose",
        "_woken",
        "saved",
        "states",
    )

    def __init__(
        self,
        saved: SavedStates,
        reason: Reason,
        now: datetime.datetime,
        unsaved: Collection[HandlerId] | None = None,
        called: set[HandlerId] | None = None,
        woken: dict[HandlerId, bool] | None = None,
    ) -> None:
        """
        ``unsaved`` are the known states that could not be written to the object. ``called`` are the handlers that this
        operator process has called since it began to resume the object; ``None`` if it does not. ``woken`` are the
        handlers to call once more in any case, and whether they were called. This object updates the latter two.
        """
        self.saved = saved
        self._purpose = reason._value_  # a plain text, with no search for it
        self._now = now
        self.states: dict[HandlerId, HandlerState] = {}
        """The content of the mapping."""
        self._handlers: dict[HandlerId, ChangingHandler] = {}
        self._changed = set(unsaved) if unsaved else set()
        self._begun: set[HandlerId] = set()
        self._called = called
        self._woken = woken
        self._noted: dict[HandlerId, tuple[ChangingHandler, SeenStates]] = {}

    def __getitem__(self, key: HandlerId) -> HandlerState:
        return self.states[key]

    def __iter__(self) -> Iterator[HandlerId]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)

    @property
    def unsaved(self) -> Mapping[HandlerId, HandlerState]:
        """The changed states that are possibly not on the object yet."""
        if not self._changed:
            return {}
        self._digest()
        states = {**self.saved.remembered, **self.states}
        return {key: states[key] for key in sorted(self._changed)}

    def recall(self, key: HandlerId) -> HandlerState | None:
        """Return the state of the handler, for any reason of the call; ``None`` if it was not called."""
        return self.states.get(key) or self.saved.recall(key)

    def copy(self) -> Progress:
        """Return an independent copy."""
        self._digest()
        result = copy.copy(self)
        result.states = dict(self.states)
        result._changed, result._begun = set(self._changed), set(self._begun)
        result._noted = {}
        return result

    def note_saved(self) -> None:
        """Accept that all changes are on the object now."""
        self._changed.clear()

    def involve(self, handlers: Iterable[ChangingHandler], seen: SeenStates) -> None:
        """Restore the states of these handlers; begin anew with handlers that were not tried for this reason yet."""
        is_begun = bool(self.states) or not self.saved.is_blank
        for handler in handlers:
            key = handler.id
            previous = self.recall(key) if is_begun else None
            state = None if previous is None else self._continue(previous, handler, seen)
            if state is None:
                # Keep the ids of the sub-handlers, so that their records are removed from the object in the end.
                subrefs = previous.subrefs if previous is not None else ()
                state = HandlerState(started=self._now, purpose=self._purpose, subrefs=subrefs)
                self._begun.add(key)
                if self._woken is not None and self._is_woken(handler):
                    self._begin_anew(subrefs)
            self.states[key] = state
            self._handlers[key] = handler

    def _is_woken(self, handler: ChangingHandler) -> bool:
        """Tell if the handler must be called in any case, and was not called yet."""
        return self._woken is not None and self._woken.get(handler.id) is False

    def _begin_anew(self, keys: Iterable[HandlerId]) -> None:
        """Forget the results of the sub-handlers of a handler that is called once more."""
        for key in keys:
            self.states[key] = HandlerState(started=self._now, purpose=self._purpose)
            self._begun.add(key)

    def _continue(self, state: HandlerState, handler: ChangingHandler, seen: SeenStates) -> HandlerState | None:
        # States for another reason do not count: e.g. a function can be for both updates and deletions.
        # Except for resuming, which happens once, together with the handling for any other reason.
        if state.purpose != self._purpose:
            if state.purpose is not None and not handler.initial:
                return None
            state = replace(state, purpose=self._purpose)
        if self._is_woken(handler):
            # It can have waited for just this.
            return None if state.finished else replace(state, delayed=None)
        # A reconciler follows all changes. It waits neither for its retry, as a change can be the cure of its failure,
        # nor for the end of a creation.
        is_behind = isinstance(handler, ReconcilingHandler) and state.digest != seen.get_seen(handler)
        if not state.finished:
            return replace(state, delayed=None) if is_behind else state
        if is_behind and state.digest is not None:
            return None
        if self._called is not None and self._is_of_previous_operator(handler):
            return None
        if state.digest is not None and state.is_overtaken(seen.get(handler)):
            return None
        return state

    def _is_of_previous_operator(self, handler: ChangingHandler) -> bool:
        """
        Tell if a former operator process has finished the handler, and the memory of that process is lost.

        Every operator process resumes the objects anew, even if the former one was interrupted while resuming.
        """
        if self._called is None or handler.id in self._called:
            return False
        return handler.repeats or any(
            parent.repeats and handler.id.startswith(f"{parent.id}/") for parent in self._handlers.values()
        )

    def note(
        self,
        handler: ChangingHandler,
        outcome: Outcome,
        now: datetime.datetime,
        subrefs: Collection[HandlerId],
        seen: SeenStates | None,
    ) -> None:
        """
        Note the outcome of an attempt, and the state of the object that the handler has seen.

        The digest of that state is made only when it must be saved: mostly, it is not.
        """
        key = handler.id
        self.states[key] = self.states[key].with_outcome(outcome, now, subrefs)
        self._changed.add(key)
        if subrefs:
            self._changed.update(self._begun.intersection(subrefs))  # those that wait for their first attempts
        if self._called is not None:
            self._called.add(key)
        if self._woken is not None and key in self._woken:
            self._woken[key] = True
        if seen is not None:
            self._noted[key] = handler, seen

    def _digest(self) -> None:
        for key, (handler, seen) in self._noted.items():
            state = self.states[key]
            # Until it has succeeded or failed for good, it is not in line with the former state that it has seen.
            if state.finished or state.digest is None or isinstance(handler, ReconcilingHandler):
                self.states[key] = replace(state, digest=seen.get_noted(handler, is_final=state.finished))
        self._noted.clear()

    def account_for(self, before: SeenStates, after: SeenStates) -> None:
        """
        Make the changes by the handlers of this pass known to all handlers.

        A handler that has seen the state before need not see the state after; all others remain overtaken. The fields
        of sub-handlers of other passes are unknown, so their digests tell what they have seen.
        """
        self._digest()
        for handler in self._handlers.values():
            if self.states[handler.id].digest is not None:
                self._replace_digest(handler.id, before.get_seen(handler), after.get_seen(handler))
        others = [key for state in self.states.values() for key in state.subrefs if key not in self._handlers]
        for digests in before.compare(after) if others else ():
            for key in others:
                self._replace_digest(key, *digests)

    def _replace_digest(self, key: HandlerId, before: str | None, after: str | None) -> None:
        state = self.recall(key)
        if state is not None and state.digest is not None and state.digest == before != after:
            self.states[key] = replace(state, digest=after)
            self._changed.add(key)

    def keep_baseline(self, baseline: bytes, handlers: Iterable[ChangingHandler]) -> None:
        """
        Keep the state as of the beginning of the creation, in case the operator restarts before its end.

        One of the records keeps it, so that older versions, which do not know it, remove it together with the record.
        The same handler keeps it until the end; at first, a handler that is saved anyway. Large states are not kept:
        the annotations of an object have a limit, and the progress must not exceed it.
        """
        keys = [handler.id for handler in handlers]
        keepers = [key for key in keys if (state := self.recall(key)) is not None and state.baseline is not None]
        keepers += [key for key in keys if key in self._changed]
        if not keepers or len(baseline) > _MAX_BASELINE_SIZE:
            return
        state, text = self.recall(keepers[0]), baseline.decode()
        if state is not None and state.baseline != text:
            self._digest()
            self.states[keepers[0]] = replace(self.states.get(keepers[0], state), baseline=text)
            self._changed.add(keepers[0])

    def store(self, patch: Patch) -> None:
        """Put the changed states into the patch."""
        self.saved.store(self.unsaved, patch)

    def purge(self, handlers: Iterable[ChangingHandler], patch: Patch) -> None:
        """Remove all records of these handlers, of their sub-handlers, and of all others involved."""
        if not self.states and self.saved.is_blank:
            return  # mostly, there is nothing to do for an object
        states = {**self.saved.remembered, **self.states} if self.saved.remembered else self.states
        involved = {*states}
        for state in states.values():
            if state.subrefs:
                involved.update(state.subrefs)
        self.saved.purge(handlers, involved, patch)


def get_pending(
    handlers: Iterable[ChangingHandler], states: Mapping[HandlerId, HandlerState], now: datetime.datetime
) -> list[ChangingHandler]:
    """List the handlers that can be executed now."""
    pending = []
    for handler in handlers:
        state = states[handler.id]
        if not (state.success or state.failure) and (state.delayed is None or state.get_delay(now) <= 0):
            pending.append(handler)
    return pending


def get_delay(
    handlers: Iterable[ChangingHandler], states: Mapping[HandlerId, HandlerState], now: datetime.datetime
) -> float | None:
    """Return the delay until the next attempt of any handler, in seconds; ``None`` if all are done."""
    delay: float | None = None
    for handler in handlers:
        state = states[handler.id]
        if not (state.success or state.failure):
            delay = state.get_delay(now) if delay is None else min(delay, state.get_delay(now))
    return delay


def count(handlers: Iterable[ChangingHandler], states: Mapping[HandlerId, HandlerState]) -> Counts:
    """Count the finished handlers. Several functions with one id count once, since only one is called."""
    finished = {handler.id: states[handler.id] for handler in handlers}.values()
    return Counts(succeeded=sum(state.success for state in finished), failed=sum(state.failure for state in finished))


def find_overtaken(
    handlers: Iterable[ChangingHandler], saved: SavedStates, seen: SeenStates
) -> Iterator[ChangingHandler]:
    """
    Find the handlers that were called for a change that has been undone, or has changed itself.

    E.g. if a field was changed and changed back before all handlers were done, there is no difference to the last
    handled state. But the handlers that have seen the change must see that it is undone.
    """
    if seen.reason is Reason.RESUME:  # it has not changed since it was last handled, either
        seen = replace(seen, reason=Reason.NOOP)
    if seen.reason not in (Reason.UPDATE, Reason.NOOP):
        return
    for handler in handlers:
        state = saved.recall(handler.id)
        if (
            state is not None
            and state.purpose == Reason.UPDATE
            and state.digest is not None
            and (digest := seen.get(handler)) is not None
            and state.digest != digest
        ):
            yield handler


def find_seen(handlers: Iterable[ChangingHandler], saved: SavedStates) -> Iterator[str]:
    """Yield the digests of the states for which handlers and sub-handlers were done in the current creation."""
    for handler in handlers:
        state = saved.recall(handler.id)
        subrefs = () if state is None else state.subrefs
        for item in (state, *(saved.recall(key) for key in subrefs)):
            if item is not None and item.purpose == Reason.CREATE and item.finished and item.digest is not None:
                yield item.digest
