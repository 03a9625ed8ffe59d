"""
Saved states: the states of handlers from earlier passes, and how they get on the object and off it.

They are read from the object, unless they are in memory: because we have just written them, or could not write them.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping

from kopf._controller.changes.handler_state import HandlerState, parse_ids
from kopf._handlers.handlers import ChangingHandler
from kopf._storage.diffbase import check_essence
from kopf._storage.progress import ProgressRecord, ProgressStorage
from kopf._values import codec
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.reasons import Reason


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
        for handler in handlers if not self.is_absent else ():
            record = self._fetch(handler)
            if record is not None and handler.id not in involved and record.get("purpose") != reason.value:
                for key in (handler.id, *parse_ids(record.get("subrefs"))):
                    self._storage.purge(key=key, body=self._body, patch=patch)
