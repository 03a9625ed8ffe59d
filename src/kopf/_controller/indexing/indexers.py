"""Indexers: one index each, with the errors that have excluded some objects from it."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from kopf._controller.indexing.indices import Index, ObjectKey
from kopf._handlers.handlers import IndexingHandler
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._handlers.retry_policy import Retries
from kopf._values.ids import HandlerId


class _Failure:
    """Why an object is not in the index, and until when."""

    __slots__ = ("retries", "until")

    def __init__(self) -> None:
        self.retries = Retries()
        self.until: datetime.datetime | None = None
        """``None`` is for forever."""


class Indexer:
    """One index, and whose errors have excluded which objects from it."""

    def __init__(self) -> None:
        self.index: Index[Any, Any] = Index()
        self._failures: dict[ObjectKey, _Failure] = {}

    def is_excluded(self, owner: ObjectKey, now: datetime.datetime) -> bool:
        """Tell if the function has failed on the object, so that it is not called for it (now or ever)."""
        failure = self._failures.get(owner)
        return failure is not None and (failure.until is None or failure.until > now)

    def get_attempt(self, owner: ObjectKey, now: datetime.datetime) -> Attempt:
        """Describe the attempt that is about to be made, since the first failure if there was any."""
        failure = self._failures.get(owner)
        return Attempt.first(now) if failure is None else failure.retries.begin(now)

    def accept(self, owner: ObjectKey, outcome: Outcome, attempt: Attempt, now: datetime.datetime) -> None:
        """Take the outcome of an attempt: the result goes to the index; errors exclude the object for a while."""
        if outcome.is_unfit:
            self.discard(owner)
        elif outcome.exception is not None:
            failure = self._failures.setdefault(owner, _Failure())
            failure.retries.begin(attempt.started)
            failure.retries.note(outcome)
            failure.until = None if outcome.final else now + datetime.timedelta(seconds=outcome.delay or 0)
            self.index._replace(owner, {})
        else:
            self._failures.pop(owner, None)
            if outcome.result is not None:
                # Strictly dicts: their descendants and other mappings are regular values.
                values = outcome.result if type(outcome.result) is dict else {None: outcome.result}
                self.index._replace(owner, values)

    def discard(self, owner: ObjectKey) -> None:
        """Remove what the object has in the index: it does not match anymore."""
        self.index._replace(owner, {})

    def forget(self, owner: ObjectKey) -> None:
        """Remove all traces of an object that exists no more."""
        self.index._replace(owner, {})
        self._failures.pop(owner, None)


class Indexers:
    """
    All indices of an operator, by the ids of their handlers.

    Several handlers can have one id: the same function with several selectors or filters, or different functions for
    different objects. For one object, it is the first one that matches: the index has its values of the object.
    """

    def __init__(self, handlers: Iterable[IndexingHandler]) -> None:
        self._indexers: dict[HandlerId, Indexer] = {}
        self.indices: dict[str, Index[Any, Any]] = {}
        """The indices by their names, as they go to the kwargs of all handlers."""
        self.extend(handlers)

    def __getitem__(self, id: HandlerId) -> Indexer:
        return self._indexers[id]

    def extend(self, handlers: Iterable[IndexingHandler]) -> None:
        """Add empty indices for those of the handlers that have none."""
        for handler in handlers:
            if handler.id not in self._indexers:
                indexer = self._indexers[handler.id] = Indexer()
                self.indices[handler.id] = indexer.index
