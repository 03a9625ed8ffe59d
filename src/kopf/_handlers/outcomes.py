"""Attempts, outcomes, results: what is known of one call of a handler before it, and after it; what it returns."""

from __future__ import annotations

import datetime
from typing import Any

from kopf._handlers.handlers import Handler
from kopf._values import codec
from kopf._values.patches import Patch
from kopf._values.records import FrozenRecord


class Attempt(FrozenRecord, frozen=True):
    """How often the handler was tried before, and since when."""

    retry: int
    """The number of the attempt, beginning with 0."""
    started: datetime.datetime
    """When the first attempt began (with a time zone)."""
    runtime: datetime.timedelta
    """How much time has passed since then."""
    reentries: int = 0
    """How many of the previous attempts were made only to go on with the sub-handlers: they are not failures."""

    @property
    def failures(self) -> int:
        """How many of the previous attempts have failed."""
        return self.retry - self.reentries

    @classmethod
    def first(cls, now: datetime.datetime) -> Attempt:
        """Make the first attempt, which begins now."""
        return cls(0, now, _NO_TIME)


_NO_TIME = datetime.timedelta(0)


class Outcome(FrozenRecord, frozen=True):
    """How an attempt has ended."""

    final: bool
    """Whether the handler is done, for good or bad."""
    delay: float | None = None
    """If not final, when to try again (seconds from now); ``None`` is for at once."""
    result: Any = None
    exception: BaseException | None = None
    ignored: Exception | None = None
    """The error that does not count, as the handler is declared so."""
    content: Any = None
    """The result as JSON values; ``None`` also if it is not to be stored, or cannot be."""
    is_unfit: bool = False
    """Whether the function was not called, as the object does not fit its model: this is no attempt."""


def make_content(result: Any) -> Any:
    """Make JSON values of what a handler has returned. Raises :class:`TypeError` or :class:`ValueError`."""
    return codec.decode(codec.encode(result))


def deliver_result(handler: Handler, outcome: Outcome, patch: Patch) -> None:
    """Put the result of the handler to the status, if it has a JSON form; note which changes of the patch are its."""
    if outcome.content is not None:
        patch.ensure_stanza("status")[handler.id] = outcome.content
    if patch:
        patch.sign(str(handler))
