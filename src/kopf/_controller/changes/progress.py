"""
Progress: which handlers of the current handling cycle are done, which are to be retried, and when.

It is restored from the object at the beginning of each cycle, and goes back to it with the patch at the end.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from kopf._controller.changes.seen_states import SeenStates
from kopf._handlers.errors import HandlerChildrenRetry
from kopf._handlers.handlers import ChangingHandler
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._storage.progress import ProgressRecord, ProgressStorage
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId
from kopf._values.patches import Patch
from kopf._values.reasons import Reason

_MAX_MESSAGE_LENGTH = 10_000
"""How much of the last error is stored, in characters: all annotations of an object share 256 KiB."""


@dataclasses.dataclass(frozen=True, slots=True)
class HandlerState:
    """The state of one handler within the current handling cycle."""

    started: datetime.datetime
    stopped: datetime.datetime | None = None
    delayed: datetime.datetime | None = None
    """When to try again; ``None`` is for at once."""
    purpose: str | None = None
    retries: int = 0
    """How many times the handler was called."""
    reentries: int = 0
    """How many of those calls were only to go on with its sub-handlers; they do not count for the limits."""
    success: bool = False
    failure: bool = False
    message: str | None = None
    digest: str | None = None
    """Which state of the object the handler has seen, with the own changes of this cycle; see :meth:`is_overtaken`."""
    subrefs: tuple[HandlerId, ...] = ()
    """The sub-handlers (on all levels) that were ever seen under this handler."""

    @property
    def finished(self) -> bool:
        """Whether the handler is done, for good or bad."""
        return self.success or self.failure

    def is_overtaken(self, digest: str | None) -> bool:
        """
        Tell if the object has changed since the handler was done, so that the handler has to see it again.

        If it is not done, it will see the object as it is at the next attempt anyway.
        """
        return self.finished and self.digest is not None and digest is not None and self.digest != digest

    def get_delay(self, now: datetime.datetime) -> float:
        """How many seconds are left until the next attempt."""
        return 0 if self.delayed is None else max(0.0, (self.delayed - now).total_seconds())

    def get_attempt(self, now: datetime.datetime) -> Attempt:
        """Describe the attempt that is about to be made."""
        return Attempt(
            retry=self.retries, started=self.started, runtime=now - self.started, reentries=self.reentries
        )

    def with_outcome(self, outcome: Outcome, now: datetime.datetime, subrefs: Iterable[HandlerId]) -> HandlerState:
        """Note how the attempt has ended."""
        failed = outcome.final and outcome.exception is not None
        is_reentry = isinstance(outcome.exception, HandlerChildrenRetry)
        delay = None if outcome.final else outcome.delay
        return HandlerState(
            started=self.started,
            stopped=now if outcome.final else None,
            delayed=now + datetime.timedelta(seconds=delay) if delay else None,
            purpose=self.purpose,
            retries=self.retries + 1,
            reentries=self.reentries + is_reentry,
            success=outcome.final and not failed,
            failure=failed,
            message=None if outcome.exception is None else str(outcome.exception) or type(outcome.exception).__name__,
            digest=self.digest,
            subrefs=tuple(dict.fromkeys([*self.subrefs, *subrefs])),
        )

    def as_record(self) -> ProgressRecord:
        """Make the persisted form of it."""
        return ProgressRecord(
            started=_format_time(self.started),
            stopped=_format_time(self.stopped),
            delayed=_format_time(self.delayed),
            purpose=self.purpose,
            retries=self.retries,
            success=self.success,
            failure=self.failure,
            message=self.message if self.message is None else self.message[:_MAX_MESSAGE_LENGTH],
            subrefs=list(self.subrefs) or None,
            digest=self.digest,
            reentries=self.reentries or None,
        )

    @classmethod
    def from_record(cls, record: ProgressRecord, *, now: datetime.datetime) -> HandlerState:
        """Restore from the persisted form; what is missing or malformed there is as if it has just begun."""
        return cls(
            started=_parse_time(record.get("started")) or now,
            stopped=_parse_time(record.get("stopped")),
            delayed=_parse_time(record.get("delayed")),
            purpose=_parse_text(record.get("purpose")),
            retries=_parse_number(record.get("retries")),
            success=record.get("success") is True,
            failure=record.get("failure") is True,
            message=_parse_text(record.get("message")),
            subrefs=_parse_ids(record.get("subrefs")),
            digest=_parse_text(record.get("digest")),
            reentries=min(_parse_number(record.get("reentries")), _parse_number(record.get("retries"))),
        )


class Counts(NamedTuple):
    """How many handlers have ended in which way."""

    succeeded: int
    failed: int


class Progress(Mapping[HandlerId, HandlerState]):
    """The states of all handlers involved in the current handling cycle, sub-handlers included."""

    def __init__(
        self,
        *,
        storage: ProgressStorage,
        body: Body,
        now: datetime.datetime,
        known: Mapping[HandlerId, HandlerState],
        unsaved: Mapping[HandlerId, HandlerState],
        called: set[HandlerId] | None = None,
    ) -> None:
        """
        ``known`` are the states that are on the object for sure, so they need not be restored from it. ``unsaved`` are
        those that could not be written to it; they are newer than what is there. ``called`` are the handlers that this
        very operator has called for the object since it was resumed, to be added to; ``None`` if it is not resumed.
        """
        self._storage = storage
        self._body = body
        self._now = now
        self._reason = Reason.NOOP
        self._remembered = {**known, **unsaved}
        self._states: dict[HandlerId, HandlerState] = {}
        self._handlers: dict[HandlerId, ChangingHandler] = {}
        self._changed: set[HandlerId] = set(unsaved)
        self._called = called

    @property
    def unsaved(self) -> Mapping[HandlerId, HandlerState]:
        """The states that were changed but are not known to be on the object yet."""
        states = {**self._remembered, **self._states}
        return {key: states[key] for key in sorted(self._changed)}

    def __getitem__(self, key: HandlerId) -> HandlerState:
        return self._states[key]

    def __iter__(self) -> Iterator[HandlerId]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def recall(self, key: HandlerId) -> HandlerState | None:
        """What is known about the handler, whatever it was called for; ``None`` if it was not called."""
        if (state := self._states.get(key) or self._remembered.get(key)) is not None:
            return state
        record = self._storage.fetch(key=key, body=self._body)
        return None if record is None else HandlerState.from_record(record, now=self._now)

    def copy(self) -> Progress:
        """Get another one to be changed separately."""
        result = copy.copy(self)
        result._states = dict(self._states)
        result._changed = set(self._changed)
        return result

    def drop_unsaved(self) -> None:
        """Forget what could not be saved."""
        for key in self._changed:
            self._remembered.pop(key, None)
        self._changed.clear()

    def note_saved(self) -> None:
        """All that was changed, is on the object now."""
        self._changed.clear()

    def begin(self, reason: Reason) -> None:
        """From now on, it is known what the handlers are called for."""
        self._reason = reason

    def involve(self, handlers: Iterable[ChangingHandler], digests: SeenStates) -> None:
        """Restore the states of these handlers, or begin anew for those that were not tried for this reason yet."""
        for handler in handlers:
            state = self._restore(handler)
            is_outdated = state is not None and self._is_of_previous_operator(handler, state)
            if state is None or is_outdated or state.is_overtaken(digests.get(handler)):
                # The sub-handlers are remembered, so that nothing of theirs is left on the object in the end.
                previous = self.recall(handler.id)
                subrefs = previous.subrefs if previous is not None else ()
                state = HandlerState(started=self._now, purpose=self._reason.value, subrefs=subrefs)
            self._states[handler.id] = state
            self._handlers[handler.id] = handler

    def _restore(self, handler: ChangingHandler) -> HandlerState | None:
        state = self.recall(handler.id)
        # What was done for another reason does not count: e.g. a function that is for both updates and deletions.
        # Except for resuming, which is mixed into the handling for any other reason, and happens once.
        if state is None or state.purpose == self._reason.value:
            return state
        if state.purpose is None or handler.initial:
            return dataclasses.replace(state, purpose=self._reason.value)
        return None

    def _is_of_previous_operator(self, handler: ChangingHandler, state: HandlerState) -> bool:
        """
        Tell if it was done for an operator that is no more, with all that it had in its memory.

        Objects are resumed by every operator anew, even if the previous one was interrupted in the middle of that.
        """
        if self._called is None or handler.id in self._called or not state.finished:
            return False
        return handler.initial or any(
            parent.initial and handler.id.startswith(f"{parent.id}/") for parent in self._handlers.values()
        )

    def note(
        self,
        handler: ChangingHandler,
        outcome: Outcome,
        now: datetime.datetime,
        subrefs: Iterable[HandlerId],
        digest: str | None,
    ) -> None:
        """Note how an attempt of the handler has ended, and which state of the object it has seen."""
        state = self._states[handler.id].with_outcome(outcome, now, subrefs)
        self._states[handler.id] = dataclasses.replace(state, digest=digest)
        self._changed.add(handler.id)
        if self._called is not None:
            self._called.add(handler.id)

    def account_for(self, before: SeenStates, after: SeenStates) -> None:
        """
        Let the handlers be aware of the changes that are made by the handlers of the same cycle.

        Whoever has seen the object as it was before, needs not to see it again. Whoever has not, is still overtaken.
        """
        for handler in self._handlers.values():
            self._replace_digest(handler.id, before.get_seen(handler), after.get_seen(handler))
        if self._reason is Reason.CREATE:
            for key in [key for state in self._states.values() for key in state.subrefs if key not in self._handlers]:
                self._replace_digest(key, before.get_whole(), after.get_whole())

    def _replace_digest(self, key: HandlerId, before: str | None, after: str | None) -> None:
        state = self.recall(key)
        if state is not None and state.digest is not None and state.digest == before != after:
            self._states[key] = dataclasses.replace(state, digest=after)
            self._changed.add(key)

    def get_pending(self, handlers: Iterable[ChangingHandler], now: datetime.datetime) -> list[ChangingHandler]:
        """Those of the handlers that can be executed right now."""
        return [
            handler
            for handler in handlers
            if not (state := self._states[handler.id]).finished and state.get_delay(now) <= 0
        ]

    def get_delay(self, handlers: Iterable[ChangingHandler], now: datetime.datetime) -> float | None:
        """How many seconds are left until the next attempt of any of the handlers; ``None`` if all are done."""
        states = (self._states[handler.id] for handler in handlers)
        return min((state.get_delay(now) for state in states if not state.finished), default=None)

    def count(self, handlers: Collection[ChangingHandler]) -> Counts:
        """Sum up the finished handlers."""
        states = [self._states[handler.id] for handler in handlers]
        return Counts(
            succeeded=sum(state.success for state in states), failed=sum(state.failure for state in states)
        )

    def store(self, patch: Patch) -> None:
        """Put the changed states to the patch."""
        for key, state in self.unsaved.items():
            self._storage.store(key=key, record=state.as_record(), body=self._body, patch=patch)
        self._storage.flush()

    def drop_outdated(self, handlers: Iterable[ChangingHandler], patch: Patch) -> None:
        """
        Remove what is stored for other reasons, e.g. for an update that is overtaken by the deletion.

        It does not count anymore; and the operators of older versions would begin anew if they find both.
        """
        for handler in handlers:
            record = self._storage.fetch(key=handler.id, body=self._body)
            if record is not None and handler.id not in self._states and record.get("purpose") != self._reason.value:
                for key in (handler.id, *_parse_ids(record.get("subrefs"))):
                    self._storage.purge(key=key, body=self._body, patch=patch)

    def purge(self, handlers: Iterable[ChangingHandler], patch: Patch) -> None:
        """Remove everything that is stored for these handlers, the sub-handlers of theirs, and all others involved."""
        states = {**self._remembered, **self._states}
        keys = set(states)
        keys.update(itertools.chain.from_iterable(state.subrefs for state in states.values()))
        for handler in handlers:
            if handler.id not in keys and (record := self._storage.fetch(key=handler.id, body=self._body)) is not None:
                keys.update([handler.id, *_parse_ids(record.get("subrefs"))])
        for key in sorted(keys):
            self._storage.purge(key=key, body=self._body, patch=patch)
        self._storage.touch(body=self._body, patch=patch, value=None)
        self._storage.flush()


def find_overtaken(
    handlers: Iterable[ChangingHandler], progress: Progress, digests: SeenStates
) -> Iterator[ChangingHandler]:
    """
    Those of the handlers which were called for a change that is not there anymore, or is not the same anymore.

    E.g., a field was changed and then changed back before all handlers were done: there is no difference to the last
    handled state, but those which have already seen the change are to see that it is undone.
    """
    if digests.reason not in (Reason.UPDATE, Reason.NOOP):
        return
    for handler in handlers:
        state = progress.recall(handler.id)
        if (
            state is not None
            and state.purpose == Reason.UPDATE
            and state.digest is not None
            and (digest := digests.get(handler)) is not None
            and state.digest != digest
        ):
            yield handler


def find_seen(handlers: Iterable[ChangingHandler], progress: Progress) -> Iterator[str]:
    """For which states (by their digests) the handlers and their sub-handlers were done in the current creation."""
    for handler in handlers:
        state = progress.recall(handler.id)
        subrefs = () if state is None else state.subrefs
        for item in (state, *(progress.recall(key) for key in subrefs)):
            if item is not None and item.purpose == Reason.CREATE and item.finished and item.digest is not None:
                yield item.digest


def _format_time(time: datetime.datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="microseconds")


def _parse_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _parse_number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _parse_ids(value: object) -> tuple[HandlerId, ...]:
    return tuple(HandlerId(item) for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _parse_time(value: object) -> datetime.datetime | None:
    if not isinstance(value, str):
        return None
    try:
        time = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
