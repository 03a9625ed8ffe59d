"""
The watchdog: notices that the event loop is blocked, and finds the culprit.

A coroutine that computes for long or makes a blocking call (``time.sleep()``, ``requests.get()``) stops everything else
in the operator: other handlers, watching, keep-alives, and even logging. So, the watchdog has a thread of its own,
which asks the loop for an answer again and again. If there is none for too long, it inspects the stack of the loop's
thread.

The watchdog counts its own steps instead of reading the clock: if the whole process freezes and continues (e.g. a
laptop is closed and opened), it is not the fault of the loop. The steps are in real time, even in virtual-time loops.
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
from kopf._handlers.executor import invoke
from kopf._handlers.handlers import Handler
from kopf._logging.tracebacks import describe_frame, is_framework, is_library
from kopf._settings.settings import HealthSettings

logger = logging.getLogger(__name__)

_STEPS = 5
"""The number of checks of the loop within the timeout."""

_MAX_STEP = 0.5
"""The longest pause between two checks, in seconds."""

_WARNING_TIMEOUT = 2.0
"""The time of a blocked loop that causes a warning, in seconds; it is not a failure yet."""

_LAG_WINDOW = 30.0
"""The shortest time for which the worst lag is remembered, in seconds; the longest is twice as long."""

_IMPORTS = "<frozen importlib._bootstrap>"
"""The file of the functions that import modules."""

_LOOPS = frozenset(
    {asyncio.Handle._run.__code__, asyncio.BaseEventLoop.run_forever.__code__, asyncio.Runner.run.__code__}
)
"""The functions at the bottom of everything that runs in an event loop."""


class Watchdog:
    """Watches the current event loop inside of the ``with`` block."""

    def __init__(self, settings: HealthSettings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="kopf-watchdog", daemon=True)
        self._is_stopped = threading.Event()
        self._is_answered = True
        self.blockage: str | None = None
        """A description of the code that blocks the loop; ``None`` if the loop works. Any thread can read it."""
        self.lag = LoopLag()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopped.set()
        self._thread.join()  # this takes no time: the thread either sleeps or checks

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
                except RuntimeError:  # the loop is closed, though the block has not ended: nothing is left to watch
                    return
            else:
                silence += step
                is_told = self._tell_if_blocked(silence, is_told)

    def _answer(self) -> None:
        self.lag.answer()
        self._is_answered = True

    def _tell_if_blocked(self, silence: float, is_told: bool) -> bool:
        """Log a loop that is blocked for too long: first a warning, then a failure. Return whether it is logged."""
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
        if is_importing(frame) or is_loading(frame):  # it ends by itself, though slow machines need seconds for it
            return None
        if silence < _WARNING_TIMEOUT and not is_of_users(frame):  # the machine is busy with something else
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
    """Describe the handler in the stack of a thread, and the current place in the user's code."""
    handler, frames = _find_handler(frame)
    # The innermost frame is the first one. Operators can be installed as packages, and then look like libraries.
    place = next((item for item in frames if not is_library(item.f_code.co_filename)), None)
    if place is None and frames:
        others = [item for item in frames if not is_framework(item.f_code.co_filename)]
        place = (others or frames)[-1 if handler is not None else 0]
    text = "something unknown" if place is None else describe_frame(place)
    return text if handler is None else f"the handler {handler.id!r}, {text}"


def is_of_users(frame: FrameType | None) -> bool:
    """Tell if the stack of a thread contains the user's code."""
    handler, frames = _find_handler(frame)
    return handler is not None or any(not is_library(item.f_code.co_filename) for item in frames)


def is_loading(frame: FrameType | None) -> bool:
    """Tell if the stack of a thread imports something for the framework, i.e. with no code of the user."""
    _, frames = _find_handler(frame)
    return any(item.f_code.co_filename == _IMPORTS for item in frames) and not is_of_users(frame)


def _find_handler(frame: FrameType | None) -> tuple[Handler | None, list[FrameType]]:
    """Find the handler, and the frames above it, the innermost one first. Code below the event loop is left out."""
    frames: list[FrameType] = []
    while frame is not None and frame.f_code not in _LOOPS:
        if frame.f_code is invoke.__code__:
            return frame.f_locals.get("handler"), frames
        frames.append(frame)
        frame = frame.f_back
    return None, frames


class LoopLag:
    """The lag of the loop: the worst one in the last minute or so. Any thread can read it."""

    __slots__ = ("_asked", "_current", "_previous", "_since")

    def __init__(self) -> None:
        self._asked: float | None = None
        self._since = time.perf_counter()
        self._current = self._previous = 0.0

    def ask(self) -> None:
        """Note that the loop must answer as soon as it can."""
        self._asked = time.perf_counter()

    def answer(self) -> None:
        """Note the answer of the loop."""
        asked, self._asked = self._asked, None
        now = time.perf_counter()
        if now - self._since > _LAG_WINDOW:
            self._previous, self._current, self._since = self._current, 0.0, now
        if asked is not None:
            self._current = max(self._current, now - asked)

    def get_worst(self) -> float:
        """Get the worst lag, in seconds, including the lag of an answer that has not come yet."""
        asked, now = self._asked, time.perf_counter()
        return max(self._current, self._previous, 0.0 if asked is None else now - asked)
