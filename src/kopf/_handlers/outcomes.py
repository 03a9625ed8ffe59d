"""Attempts and outcomes: the facts about one call of a handler, before and after it, and the delivery of its result."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from kopf._handlers.handlers import Handler
from kopf._values import codec
from kopf._values.patches import Patch
from kopf._values.records import FrozenRecord


class Attempt(FrozenRecord, frozen=True):
    """One attempt of a handler, with the number and the time of the previous ones."""

    retry: int
    """The number of the attempt; the first one is 0."""
    started: datetime.datetime
    """The start of the first attempt (with a time zone)."""
    runtime: datetime.timedelta
    """The time since then."""
    reentries: int = 0
    """The number of previous attempts that only continued the sub-handlers: they are not failures."""

    @property
    def failures(self) -> int:
        """The number of previous attempts that failed."""
        return self.retry - self.reentries

    @classmethod
    def first(cls, now: datetime.datetime) -> Attempt:
        """Make the first attempt, which starts now."""
        return cls(0, now, _NO_TIME)


_NO_TIME = datetime.timedelta(0)


class Outcome(FrozenRecord, frozen=True):
    """The outcome of an attempt."""

    final: bool
    """Whether the handler has succeeded, or failed for good."""
    delay: float | None = None
    """If not final, the delay before the next attempt, in seconds; ``None`` is for no delay."""
    result: Any = None
    exception: BaseException | None = None
    ignored: Exception | None = None
    """The ignored error, by the ``errors`` mode of the handler."""
    content: Any = None
    """The result as JSON values; ``None`` also if Kopf does not or cannot store it."""
    is_unfit: bool = False
    """Whether Kopf did not call the function because the object does not fit its model: this is no attempt."""


def make_content(result: Any) -> Any:
    """Convert the result of a handler to JSON values. Raises :class:`TypeError` or :class:`ValueError`."""
    return codec.decode(codec.encode(result))


def deliver_result(handler: Handler, outcome: Outcome, patch: Patch) -> None:
    """
    Put the result of the handler to the status, if it has a JSON form, and sign the changes of the handler.

    The fields of a result join the fields that the handler has put there itself, through the patch.
    """
    if (content := outcome.content) is not None:
        status = patch.ensure_stanza("status")
        own = status.get(handler.id)
        if own and isinstance(content, dict) and isinstance(own, Mapping):
            content = {**own, **content}
        status[handler.id] = content
    if patch:
        patch.sign(str(handler))
