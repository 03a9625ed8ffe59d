"""
The watchdog: notices that the event loop is blocked, and by whom.

A coroutine that computes for long or calls something blocking (``time.sleep()``, ``requests.get()``) stops everything
else in the operator: other handlers, watching, keep-alives, and even logging about that. So, it is noticed from
a thread of its own: the thread asks the loop for an answer again and again, and if there is none for too long, looks
into the stack of the loop's thread.

It counts its own steps instead of looking at the clock: if the whole process is frozen and goes on (a laptop is closed
and opened), it is not the fault of the loop. And the steps are of the real time, even if the loop is fast-forwarded.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Self

from kopf._client.auth.libraries import is_importing
from kopf._handlers.handlers import Handler
from kopf._handlers.invocation import invoke
from kopf._logging.tracebacks import describe_frame, is_framework, is_library
from kopf._settings.settings import HealthSettings

logger = logging.getLogger(__name__)

_STEPS = 5
"""How many times to look at the loop within the timeout."""

_MAX_STEP = 0.5
"""How rarely to look at the loop, in seconds."""

_WARNING_TIMEOUT = 2.0
"""For how long the loop can be blocked until that is said, in seconds; it does not count as a failure yet."""

_LAG_WINDOW = 30.0
"""For how long the worst lag is remembered at least, in seconds; at most, it is twice as long."""

_LOOPS = frozenset(
    {asyncio.Handle._run.__code__, asyncio.BaseEventLoop.run_forever.__code__, asyncio.Runner.run.__code__}
)
"""What is below of all that runs in an event loop."""


class Watchdog:
    """Watches over the current event loop inside of the ``with`` block."""

    def __init__(self, settings: HealthSettings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="kopf-watchdog", daemon=True)
        self._is_stopped = threading.Event()
        self._is_answered = True
        self.blockage: str | None = None
        """Who blocks the loop right now, as a text for humans; ``None`` if the loop works. It is for all threads."""
        self.lag = LoopLag()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopped.set()
        self._thread.join()  # it takes no time: it either sleeps or looks around

    def _watch(self) -> None:
        silence, is_told = 0.0, False
        while not self._is_stopped.wait(step := min((self._settings.loop_timeout or _MAX_STEP) / _STEPS, _MAX_STEP)):
            if self._is_answered:
                if is_told:
                    logger.warning("The event loop works again after being blocked for %g seconds.", round(silence, 1))
                self.blockage = None
                silence, is_told = 0.0, False
                self._is_answered = False
                self.lag.ask()
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:  # it is closed, with this block not left: nothing to watch over anymore
                    return
            else:
                silence += step
                is_told = self._tell_if_blocked(silence, is_told)

    def _answer(self) -> None:
        self.lag.answer()
        self._is_answered = True

    def _tell_if_blocked(self, silence: float, is_told: bool) -> bool:
        """Say it if the loop is blocked for too long: first as a warning, then as a failure; tell if it is said."""
        timeout = self._settings.loop_timeout
        if timeout is None or self.blockage is not None:
            return is_told
        if silence >= timeout:
            self.blockage = self._report(silence, logging.ERROR)
            return is_told or self.blockage is not None
        if silence >= _WARNING_TIMEOUT and not is_told:
            return self._report(silence, logging.WARNING) is not None
        return is_told

    def _report(self, silence: float, level: int) -> str | None:
        frame = sys._current_frames().get(self._loop_thread)
        if is_importing(frame):  # that is our own doing in somebody's login handler, and it ends by itself
            return None
        if silence < _WARNING_TIMEOUT and not is_of_users(frame):  # the machine does something else
            return None
        culprit = describe_culprit(frame)
        logger.log(
            level,
            "The event loop is blocked for %g seconds by %s. Nothing else can work meanwhile. "
            "Use asynchronous libraries in coroutines, or make it a regular function: those run in threads.",
            round(silence, 1),
            culprit,
        )
        return culprit


def describe_culprit(frame: FrameType | None) -> str:
    """Say which handler is executed in the stack of a thread, and where in the users' code it is."""
    handler, frames = _find_handler(frame)
    # They are ordered from the innermost one. Operators can be installed as packages, so they can look as libraries.
    place = next((item for item in frames if not is_library(item.f_code.co_filename)), None)
    if place is None and frames:
        others = [item for item in frames if not is_framework(item.f_code.co_filename)]
        place = (others or frames)[-1 if handler is not None else 0]
    text = "something unknown" if place is None else describe_frame(place)
    return text if handler is None else f"the handler {handler.id!r}, {text}"


def is_of_users(frame: FrameType | None) -> bool:
    """Tell if the users' code is executed in the stack of a thread."""
    handler, frames = _find_handler(frame)
    return handler is not None or any(not is_library(item.f_code.co_filename) for item in frames)


def _find_handler(frame: FrameType | None) -> tuple[Handler | None, list[FrameType]]:
    """Find the handler, and the frames from the innermost one to that; whoever has started the loop, is not in them."""
    frames: list[FrameType] = []
    while frame is not None and frame.f_code not in _LOOPS:
        if frame.f_code is invoke.__code__:
            return frame.f_locals.get("handler"), frames
        frames.append(frame)
        frame = frame.f_back
    return None, frames


class LoopLag:
    """How late the loop does what it is asked to do: the worst of the last minute or so, asked from other threads."""

    __slots__ = ("_asked", "_current", "_previous", "_since")

    def __init__(self) -> None:
        self._asked: float | None = None
        self._since = time.perf_counter()
        self._current = self._previous = 0.0

    def ask(self) -> None:
        """The loop is asked to answer as soon as it can."""
        self._asked = time.perf_counter()

    def answer(self) -> None:
        """The loop has answered."""
        asked, self._asked = self._asked, None
        now = time.perf_counter()
        if now - self._since > _LAG_WINDOW:
            self._previous, self._current, self._since = self._current, 0.0, now
        if asked is not None:
            self._current = max(self._current, now - asked)

    def get_worst(self) -> float:
        """Get the lag in seconds; if the loop has not answered yet, it is that late already."""
        asked, now = self._asked, time.perf_counter()
        return max(self._current, self._previous, 0.0 if asked is None else now - asked)
