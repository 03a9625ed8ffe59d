"""
Usage of threads: the handlers that occupy threads, and the handlers that wait for threads.

A waiting call is noticed twice: soon, to extend the pool if it can grow; and later, to warn users with the names of
the handlers on both sides. A long call is noticed, too, so that other objects do not wait for it. A quick call costs
a timer that never fires.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from kopf._logging.tracebacks import describe_frame, is_framework
from kopf._settings.threads import HandlerThreads

logger = logging.getLogger(__name__)

EXPANSION_DELAY = 0.1
"""The time after which a waiting call gets one more thread, and a running call counts as slow, in seconds."""

SATURATION_DELAY = 5.0
"""The time after which Kopf warns about a waiting call, in seconds."""

REMINDER_INTERVAL = 60.0
"""The time until the warning is repeated, in seconds."""

_MAX_NAMES = 10


class ThreadUsage:
    """All running and waiting calls of synchronous handlers of one operator."""

    def __init__(self) -> None:
        self._calls: set[ThreadCall] = set()
        self._slow: set[ThreadCall] = set()
        self._listeners: set[Callable[[], None]] = set()
        self._warned_at: float | None = None

    @property
    def slow_count(self) -> int:
        """The number of slow calls. Other objects should not wait for these."""
        return len(self._slow)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call the listener for each new slow call."""
        self._listeners.add(listener)

    def unsubscribe(self, listener: Callable[[], None]) -> None:
        """Stop calling the listener."""
        self._listeners.discard(listener)

    def note_slow(self, call: ThreadCall) -> None:
        """Note that the call is slow."""
        self._slow.add(call)
        for listener in [*self._listeners]:
            listener()

    def add(self, call: ThreadCall) -> None:
        """Track the call."""
        self._calls.add(call)

    def discard(self, call: ThreadCall) -> None:
        """Note that the call is over, in any thread."""
        self._calls.discard(call)
        self._slow.discard(call)

    def warn(self, now: float, executor: concurrent.futures.Executor) -> None:
        """Warn about calls that wait for threads of the executor, unless there was a warning recently."""
        if self._warned_at is not None and now - self._warned_at < REMINDER_INTERVAL:
            return
        self._warned_at = now
        calls = [call for call in list(self._calls) if call.executor is executor]
        running = [call for call in calls if call.started is not None]
        waiting = [call for call in calls if call.started is None]
        logger.warning(
            "Handlers wait for threads, because all %d are busy. Waiting: %s. Running: %s. "
            "Make the long-running handlers asynchronous, or raise settings.execution.max_workers.",
            len(running),
            _describe([(call.name, now - call.queued) for call in waiting]),
            _describe([(call.name, now - call.started) for call in running if call.started is not None]),
        )


class TracedCall:
    """A call of a function with a known place in its code."""

    __slots__ = ("_fn", "_thread", "is_over")

    def __init__(self, fn: Callable[[], Any]) -> None:
        self._fn = fn
        self._thread = 0
        self.is_over = False

    def __call__(self) -> Any:
        """Call the function, in the thread."""
        self._thread = threading.get_ident()
        try:
            return self._fn()
        finally:
            self.is_over = True

    @property
    def is_running(self) -> bool:
        """Whether it has begun, and has not ended."""
        return bool(self._thread) and not self.is_over

    def describe_stack(self) -> str:
        """Describe the current place of the thread in one line, from the innermost frame."""
        frame = None if self.is_over else sys._current_frames().get(self._thread)
        frames = [item for item, _ in traceback.walk_stack(frame)] if frame is not None else []
        places = [describe_frame(item) for item in frames if not is_framework(item.f_code.co_filename)]
        return " <- ".join(places) or "nowhere anymore"


class ThreadCall(TracedCall):
    """
    One call of a synchronous function: from the event loop, in a thread of the executor.

    Large because both sides use it: otherwise, each call would need two objects with half of their fields in common.
    """

    __slots__ = ("_is_long", "_loop", "_timer", "_usage", "executor", "name", "queued", "started")

    def __init__(
        self,
        name: str,
        fn: Callable[[], Any],
        executor: concurrent.futures.Executor,
        usage: ThreadUsage,
        *,
        is_long: bool = False,
    ) -> None:
        super().__init__(fn)
        self.name = name
        self._is_long = is_long
        self.executor = executor
        self._usage = usage
        self._loop = asyncio.get_running_loop()
        self.queued = self._loop.time()
        """The time when it began to wait, by the clock of the event loop."""
        self.started: float | None = None
        """The time when it got a thread; ``None`` if it still waits."""
        self._timer = self._loop.call_later(EXPANSION_DELAY, self._notice)
        usage.add(self)

    def __call__(self) -> Any:
        """Call the function, in the thread."""
        self.started = self._loop.time()
        if self.started - self.queued >= SATURATION_DELAY:
            logger.debug("Handler %r has waited for a thread for %.1f seconds.", self.name, self.started - self.queued)
        try:
            return super().__call__()
        finally:
            self._usage.discard(self)

    def release(self) -> None:
        """Note that nothing waits for the result anymore. The thread can still be busy: it cannot be cancelled."""
        self._timer.cancel()
        if self.started is None:
            self._usage.discard(self)

    def _notice(self) -> None:
        if self.started is not None:
            if not self._is_long:
                self._usage.note_slow(self)
            if self.is_over:  # in its thread, just now
                self._usage.discard(self)
            return
        if isinstance(self.executor, HandlerThreads):
            self.executor.expand()
        waited = self._loop.time() - self.queued
        if waited >= SATURATION_DELAY:
            self._usage.warn(self._loop.time(), self.executor)
            self._timer = self._loop.call_later(SATURATION_DELAY, self._notice)
        else:
            # Soon at first, because a thread is probably free by then; later, less often.
            delay = min(max(waited, EXPANSION_DELAY), SATURATION_DELAY - waited)
            self._timer = self._loop.call_later(delay, self._notice)


def _describe(calls: list[tuple[str, float]]) -> str:
    """Name the handlers, from the longest call, with the numbers and the durations of their calls."""
    counts = Counter(name for name, _ in calls)
    longest: dict[str, float] = {}
    for name, duration in calls:
        longest[name] = max(duration, longest.get(name, 0.0))
    names = sorted(counts, key=lambda name: -longest[name])
    texts = [f"{name!r} ({counts[name]}, up to {longest[name]:.0f} s)" for name in names[:_MAX_NAMES]]
    return ", ".join([*texts, *([f"and {len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else [])]) or "none"
