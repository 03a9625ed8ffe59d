"""
Attempts: the facts about each call of a handler before and after it, the observer of all calls, and the running ones.

The reasons and outcomes of attempts have the same names in metrics, traces, recordings, and journals of simulations.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from kopf._handlers.causes import ActivityCause, Cause, ChangingCause, WatchingCause, WebhookCause
from kopf._handlers.handlers import Handler, IndexingHandler, TimerHandler
from kopf._logging.loggers import Logger
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
        patch.sign(handler)


class AttemptObserver:
    """The part of the observer that the executor calls; see ``kopf._controller.observer``."""

    clock: Callable[[], float] = time.perf_counter
    """The clock of the observer, in seconds since any moment."""

    def attempt_begun(self, number: int, handler: Handler, cause: Cause, attempt: Attempt) -> None:
        """An attempt begins. Sub-handlers run inside of the attempt of their parent."""

    def attempt_ended(
        self, number: int, handler: Handler, cause: Cause, outcome: Outcome | None, started: float
    ) -> None:
        """The attempt with this number and start is over. The outcome is ``None`` if it was cancelled."""


def name_reason(handler: Handler, cause: Cause) -> str:
    """Name the reason of the call."""
    if isinstance(cause, ChangingCause):
        return cause.reason.value
    if isinstance(cause, WatchingCause):
        return "event"
    if isinstance(cause, ActivityCause):
        return cause.activity.value
    if isinstance(cause, WebhookCause):
        return "webhook"
    if isinstance(handler, IndexingHandler):
        return "index"
    return "timer" if isinstance(handler, TimerHandler) else "daemon"


def name_outcome(outcome: Outcome | None) -> str:
    """Name the outcome of the attempt."""
    if outcome is None:
        return "cancelled"
    if not outcome.final:
        return "retried"
    return "succeeded" if outcome.exception is None else "failed"


PATIENCE = 60.0
"""The age of an attempt at the first log line, in seconds; at the next log line, it is twice as old."""


class RunningAttempts:
    """
    The attempts of one operator that are not over yet, and their start times, for log lines about long ones.

    There are thousands of attempts per second, and few of them are long. So, each attempt is only an entry of a
    dictionary. One timer for all attempts checks it when the oldest attempt can be a long one.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Handler, Logger, float]] = {}
        self._due: dict[int, float] = {}
        self._make_key = itertools.count().__next__
        self._get_time = time.monotonic
        self._next_check = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self.leave: Callable[[int], object] = self._entries.pop
        """Note by its key that an attempt is over. It is a plain method of the dictionary for speed."""

    def enter(self, handler: Handler, logger: Logger) -> int:
        """Note that an attempt begins, and return its key."""
        now = self._get_time()
        if now > self._next_check:
            now = self._begin(now)
        key = self._make_key()
        self._entries[key] = handler, logger, now
        return key

    def _begin(self, now: float) -> float:
        loop = asyncio._get_running_loop()
        if loop is None:  # unit tests can call functions without it, and need no message
            return now
        self._get_time = loop.time
        now = loop.time()
        self._plan(loop, now + PATIENCE)
        return now

    def stop(self) -> None:
        """Log nothing from now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._next_check = math.inf

    def _plan(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        self._next_check = when
        self._timer = loop.call_at(when, self._check)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._due = {key: due for key, due in self._due.items() if key in self._entries}
        soonest = math.inf
        for key, (handler, logger, started) in self._entries.items():
            if handler.is_endless:
                continue
            due = self._due.get(key, started + PATIENCE)
            if due <= now:
                age = now - started
                # It is not posted, as the events will show the outcome.
                logger.info("%s has been running for %.0f seconds.", handler, age, extra={"k8s_skip": True})
                due = self._due[key] = started + 2 * (due - started)
            soonest = min(soonest, due)
        if soonest < math.inf:
            self._plan(loop, soonest)
        else:
            self._next_check = -math.inf
