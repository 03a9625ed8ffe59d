"""
Calling handlers outside of operators: in the thread of the caller, with all that they say being recorded.

The attempts are made by the executor of the framework. Only those things are replaced that an operator would provide:
threads, the event loop, the recorder of Kubernetes events.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from kopf._events.recorder import EventSink, current_recorder
from kopf._handlers.causes import Cause
from kopf._handlers.executor import NOTHING, HandlerExecutor, Surroundings
from kopf._handlers.handlers import Handler
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._handlers.thread_pools import ThreadPools
from kopf._logging.loggers import Logger
from kopf._settings.settings import Delays, ExecutionSettings, OperatorSettings
from kopf._testing.handler_run import LogLine, ReportedEvent
from kopf._values.references import ObjectReference

T = TypeVar("T")


class LoopIsRunningError(BaseException):
    """
    A coroutine cannot be run to its end in a thread whose event loop is already running.

    It is not a usual error, so that it is not taken for an error of the handler on its way up.
    """


class Loops:
    """Where the coroutines of one run are awaited: in the event loop of the run, or in one of their own."""

    def __init__(self, *, is_running: bool) -> None:
        self._is_running = is_running

    async def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Get the result of the coroutine. With no loop to await it in, this method never suspends."""
        if self._is_running:
            return await coroutine
        if _has_loop():
            coroutine.close()
            raise LoopIsRunningError
        self._is_running = True
        try:
            return asyncio.run(coroutine)
        finally:
            self._is_running = False


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class DirectCalls(ThreadPools):
    """Calls the synchronous functions right here, so that breakpoints and mocks work as in any other function."""

    def __init__(self, settings: ExecutionSettings, loops: Loops) -> None:
        super().__init__(settings)
        self._loops = loops

    async def call(self, name: str, fn: Callable[[], Any], *, is_long: bool) -> Any:
        """Call the function, and await what it has returned if that is awaitable, as of lambdas."""
        return await self.call_briefly(fn)

    async def call_briefly(self, fn: Callable[[], Any]) -> Any:
        """The same."""
        result = fn()
        if not inspect.isawaitable(result):
            return result
        return await self._loops.wait(result if inspect.iscoroutine(result) else _finish(result))


async def _finish(awaitable: Awaitable[T]) -> T:
    return await awaitable


class RecordingExecutor(HandlerExecutor):
    """Makes the attempts as in an operator, and remembers how the latest of them has ended."""

    def __init__(self, settings: ExecutionSettings, loops: Loops) -> None:
        super().__init__(settings)
        self.threads = DirectCalls(settings, loops)
        self.loops = loops
        self.latest: Outcome | None = None
        """The outcome of the attempt that has ended last; ``None`` if there were none."""

    async def execute(
        self, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings = NOTHING
    ) -> Outcome:
        coroutine = super().execute(handler, cause, attempt, around)
        self.latest = await (self.loops.wait(coroutine) if handler.is_async else coroutine)
        return self.latest


class RecordingLogger(logging.LoggerAdapter[Any]):
    """Remembers all messages, whatever the levels are; those that are to be logged, go to the original logger."""

    def __init__(self, logger: Logger, lines: list[LogLine]) -> None:
        super().__init__(logger)
        self._lines = lines

    def isEnabledFor(self, level: int) -> bool:
        return True

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        message = logging.LogRecord("", level, "", 0, msg, args, None).getMessage()
        self._lines.append(LogLine(logging.getLevelName(level), message))
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the line is that of the caller, not this one
        self.logger.log(level, msg, *args, **kwargs)


class EventList:
    """Takes the Kubernetes events instead of posting them: the explicit ones, as log messages are not posted here."""

    def __init__(self, settings: OperatorSettings) -> None:
        self.settings = settings
        self.events: list[ReportedEvent] = []

    def enqueue(
        self, ref: ObjectReference, *, type: str, reason: str, message: str, backoffs: Delays, is_explicit: bool = True
    ) -> None:
        self.events.append(ReportedEvent(type, reason, message))


@contextlib.contextmanager
def taking_events(sink: EventSink) -> Iterator[None]:
    """Let the events of this context go there."""
    token = current_recorder.set(sink)
    try:
        yield
    finally:
        current_recorder.reset(token)
