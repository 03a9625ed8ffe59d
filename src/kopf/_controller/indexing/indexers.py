"""Indexers: one index each, with the errors that exclude objects from it."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from kopf._controller.indexing.indices import Index, ObjectKey
from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.handlers import IndexingHandler
from kopf._handlers.retry_policy import Retries
from kopf._values.ids import HandlerId


class _Failure:
    """The reason why an object is not in the index."""

    __slots__ = ("retries", "until")

    def __init__(self) -> None:
        self.retries = Retries()
        self.until: datetime.datetime | None = None
        """The end of the exclusion; ``None`` is for never."""


class Indexer:
    """One index, and the errors that exclude objects from it."""

    def __init__(self) -> None:
        self.index: Index[Any, Any] = Index()
        self._failures: dict[ObjectKey, _Failure] = {}

    def is_excluded(self, owner: ObjectKey, now: datetime.datetime) -> bool:
        """Tell if the function has failed for the object, so that it is not called now."""
        failure = self._failures.get(owner)
        return failure is not None and (failure.until is None or failure.until > now)

    def get_attempt(self, owner: ObjectKey, now: datetime.datetime) -> Attempt:
        """Describe the next attempt; its start is the first failure, if there was one."""
        failure = self._failures.get(owner)
        return Attempt.first(now) if failure is None else failure.retries.begin(now)

    def accept(self, owner: ObjectKey, outcome: Outcome, attempt: Attempt, now: datetime.datetime) -> None:
        """Accept the outcome of an attempt: a result goes to the index; an error excludes the object."""
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
                # Strictly dicts: subclasses and other mappings are regular values.
                values = outcome.result if type(outcome.result) is dict else {None: outcome.result}
                self.index._replace(owner, values)

    def discard(self, owner: ObjectKey) -> None:
        """Remove the values of an object that does not match anymore."""
        self.index._replace(owner, {})

    def forget(self, owner: ObjectKey) -> None:
        """Remove all traces of an object that does not exist anymore."""
        self.index._replace(owner, {})
        self._failures.pop(owner, None)


class Indexers:
    """
    All indices of an operator, by the ids of their handlers.

    Several handlers can have one id: the same function with several selectors or filters, or different functions for
    different objects. For each object, the first matching handler gives the values.
    """

    def __init__(self, handlers: Iterable[IndexingHandler]) -> None:
        self._indexers: dict[HandlerId, Indexer] = {}
        self.indices: dict[str, Index[Any, Any]] = {}
        """The indices by their names, for the kwargs of all handlers."""
        self.extend(handlers)

    def __getitem__(self, id: HandlerId) -> Indexer:
        return self._indexers[id]

    def extend(self, handlers: Iterable[IndexingHandler]) -> None:
        """Add empty indices for the handlers without one."""
        for handler in handlers:
            if handler.id not in self._indexers:
                indexer = self._indexers[handler.id] = Indexer()
                self.indices[handler.id] = indexer.index
