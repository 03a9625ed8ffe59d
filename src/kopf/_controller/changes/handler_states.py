"""
The states of handlers within the handling of one change, and how they get on the object and off it.

They are read from the object, unless they are in memory: because Kopf has just written them, or could not write them.
The persisted form can be from another version of the framework, or from anybody who can change the object.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping

from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.handler_errors import HandlerChildrenRetry
from kopf._handlers.handlers import ChangingHandler
from kopf._storage.diffbase import check_essence
from kopf._storage.progress import ProgressRecord, ProgressStorage
from kopf._values import codec
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.reasons import Reason
from kopf._values.records import FrozenRecord

_MAX_MESSAGE_LENGTH = 10_000
"""The maximal length of a stored error, in characters: all annotations of an object share 256 KiB."""

MAX_DELAY = datetime.timedelta(days=30)
"""The longest delay of a retry. Without a limit, one forged record would block the deletion of the object for good."""

_CLOCK_SKEW = datetime.timedelta(days=1)
"""How far the clock of the record's writer can be ahead, at most."""


class HandlerState(FrozenRecord, frozen=True):
    """The state of one handler within the handling of one change."""

    started: datetime.datetime
    stopped: datetime.datetime | None = None
    delayed: datetime.datetime | None = None
    """The time of the next attempt; ``None`` is for at once."""
    purpose: str | None = None
    retries: int = 0
    """The number of calls."""
    reentries: int = 0
    """The number of calls that only continued its sub-handlers; they do not count for the limits."""
    success: bool = False
    failure: bool = False
    message: str | None = None
    exception: str | None = None
    """The class of the last error; waiting for sub-handlers is no error."""
    digest: str | None = None
    """The digest of the state that the handler has seen, with our own changes; see :meth:`is_overtaken`."""
    baseline: str | None = None
    """The serialised state as of the beginning of the creation: one handler keeps it for all."""
    subrefs: tuple[HandlerId, ...] = ()
    """All sub-handlers (on all levels) that this handler has ever had."""

    @property
    def finished(self) -> bool:
        """Whether the handler has succeeded or failed."""
        return self.success or self.failure

    def is_overtaken(self, digest: str | None) -> bool:
        """
        Tell if the object has changed since the handler has finished, so that the handler must see it again.

        An unfinished handler will see the current state of the object at its next attempt anyway.
        """
        return self.finished and self.digest is not None and digest is not None and self.digest != digest

    def get_delay(self, now: datetime.datetime) -> float:
        """Return the delay until the next attempt, in seconds."""
        return 0 if self.delayed is None else max(0.0, (self.delayed - now).total_seconds())

    def get_attempt(self, now: datetime.datetime) -> Attempt:
        """Describe the next attempt."""
        return Attempt(self.retries, self.started, now - self.started, self.reentries)

    def with_outcome(self, outcome: Outcome, now: datetime.datetime, subrefs: Iterable[HandlerId]) -> HandlerState:
        """Return the state after the attempt."""
        error, is_final = outcome.exception, outcome.final
        is_reentry = error is not None and isinstance(error, HandlerChildrenRetry)
        delay = None if is_final else outcome.delay
        return HandlerState(
            self.started,
            now if is_final else None,
            now + datetime.timedelta(seconds=min(MAX_DELAY.total_seconds(), delay)) if delay else None,
            self.purpose,
            self.retries + 1,
            self.reentries + is_reentry,
            success=is_final and error is None,
            failure=is_final and error is not None,
            message=None if error is None else str(error) or type(error).__name__,
            exception=None if error is None or is_reentry else type(error).__name__,
            digest=self.digest,
            baseline=self.baseline,
            subrefs=tuple(dict.fromkeys([*self.subrefs, *subrefs])) if subrefs else self.subrefs,
        )

    def as_record(self) -> ProgressRecord:
        """Make the persisted form."""
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
            baseline=self.baseline,
            exception=self.exception,
        )

    @classmethod
    def from_record(cls, record: ProgressRecord, *, now: datetime.datetime) -> HandlerState:
        """Restore from the persisted form; missing or malformed values are as if it has just begun."""
        delayed = _parse_time(record.get("delayed"))
        return cls(
            started=_parse_time(record.get("started")) or now,
            stopped=_parse_time(record.get("stopped")),
            delayed=None if delayed is None or delayed - now > MAX_DELAY + _CLOCK_SKEW else delayed,
            purpose=_parse_text(record.get("purpose")),
            retries=_parse_number(record.get("retries")),
            success=record.get("success") is True,
            failure=record.get("failure") is True,
            message=_parse_text(record.get("message")),
            subrefs=parse_ids(record.get("subrefs")),
            digest=_parse_text(record.get("digest")),
            reentries=min(_parse_number(record.get("reentries")), _parse_number(record.get("retries"))),
            baseline=_parse_text(record.get("baseline")),
            exception=_parse_text(record.get("exception")),
        )


def _format_time(time: datetime.datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="microseconds")


def _parse_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _parse_number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def parse_ids(value: object) -> tuple[HandlerId, ...]:
    return tuple(HandlerId(item) for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _parse_time(value: object) -> datetime.datetime | None:
    if not isinstance(value, str):
        return None
    try:
        time = datetime.datetime.fromisoformat(value)
        time = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
        return time.astimezone(datetime.UTC)
    except (ValueError, OverflowError):  # e.g. the first day of the first year, in the east
        return None


class SavedStates:
    """The states of the handlers of one object as of the beginning of a pass."""

    __slots__ = ("_absent", "_body", "_now", "_storage", "is_absent", "is_blank", "remembered")

    def __init__(
        self,
        storage: ProgressStorage,
        body: Body,
        now: datetime.datetime,
        remembered: Mapping[HandlerId, HandlerState],
        keys: tuple[HandlerId, ...] = (),
        obj: KubeObject | None = None,
    ) -> None:
        """With ``obj``, check at once if it has no records of the ``keys`` (the declared handlers)."""
        self._storage = storage
        self._body = body
        self._now = now
        self.remembered = remembered
        """The states in memory, which are newer than those on the object."""
        self.is_absent = obj is not None and not storage.could_have(keys, obj=obj)
        """Whether the object certainly has no records of the declared handlers."""
        self._absent: Collection[HandlerId] = keys if self.is_absent else ()
        self.is_blank = self.is_absent and not remembered
        """Whether there are no states of the declared handlers: neither on the object nor in memory."""

    def recall(self, key: HandlerId) -> HandlerState | None:
        """Return the state of the handler, for any reason of the call; ``None`` if it was not called."""
        if (state := self.remembered.get(key)) is not None:
            return state
        if key in self._absent or (record := self._storage.fetch(key=key, body=self._body)) is None:
            return None
        return HandlerState.from_record(record, now=self._now)

    def find_baseline(self, keys: Iterable[HandlerId]) -> bytes | None:
        """Return the state as of the beginning of the creation, if any of the handlers keeps it."""
        for key in keys:
            state = self.recall(key)
            if state is not None and state.baseline is not None and state.purpose == Reason.CREATE:
                try:
                    check_essence(codec.decode(state.baseline))
                except ValueError:
                    continue  # anybody could write there
                return state.baseline.encode()
        return None

    def store(self, states: Mapping[HandlerId, HandlerState], patch: Patch) -> None:
        """Put the states into the patch."""
        self._absent = ()
        self.is_absent = self.is_blank = False
        for key, state in states.items():
            self._storage.store(key=key, record=state.as_record(), body=self._body, patch=patch)
        self._storage.flush()

    def purge(self, handlers: Iterable[ChangingHandler], involved: Collection[HandlerId], patch: Patch) -> None:
        """Remove all records of these handlers, of their sub-handlers, and of all others involved."""
        if self.is_absent:
            keys = {*involved}.difference(self._absent)
            if not keys:
                return
        else:
            keys = {*involved}
            for handler in handlers:
                if handler.id not in keys and (record := self._fetch(handler)) is not None:
                    keys.update([handler.id, *parse_ids(record.get("subrefs"))])
            self._storage.touch(body=self._body, patch=patch, value=None)
        for key in sorted(keys):
            self._storage.purge(key=key, body=self._body, patch=patch)
        self._storage.flush()

    def _fetch(self, handler: ChangingHandler) -> ProgressRecord | None:
        return self._storage.fetch(key=handler.id, body=self._body)

    def drop_outdated(
        self, handlers: Iterable[ChangingHandler], reason: Reason, involved: Collection[HandlerId], patch: Patch
    ) -> None:
        """
        Remove the records for other reasons, e.g. for an update that the deletion has overtaken.

        They do not count anymore; and older versions of the operator would begin anew if they find both.
        """
        keys: list[HandlerId] = []
        for handler in handlers if not self.is_absent else ():
            record = self._fetch(handler)
            if record is not None and handler.id not in involved and record.get("purpose") != reason.value:
                keys += [handler.id, *parse_ids(record.get("subrefs"))]
        for key in keys:
            self._storage.purge(key=key, body=self._body, patch=patch)
        if keys:
            self._storage.flush()
