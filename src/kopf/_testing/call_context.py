"""
The context of one call in a test: the object, the parts of an operator that handlers see, their logs and events.

The executor of the framework makes the attempts in the thread of the caller. Only the things that an operator would
provide are replaced: threads, the event loop, the recorder of Kubernetes events.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from kopf._controller.memos import Memo
from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.causes import Cause
from kopf._handlers.executor import NOTHING, HandlerExecutor, Surroundings
from kopf._handlers.handlers import Handler, ResourceHandler
from kopf._handlers.thread_pools import ThreadPools
from kopf._logging.loggers import LocalObjectLogger, Logger, ObjectLogger
from kopf._settings.settings import Delays, ExecutionSettings, OperatorSettings
from kopf._testing.calling_options import (
    CallingOptions,
    GivenObject,
    complete,
    guess_resource,
    make_attempt,
    make_indices,
    make_object,
    read_object,
)
from kopf._testing.handler_run import HandlerEnding, HandlerRun, LogLine, ReportedEvent
from kopf._values.bodies import Body
from kopf._values.patches import Patch
from kopf._values.references import ObjectReference
from kopf._values.resources import Resource
from kopf._virtual_time.virtual_time_loop import is_in_loop

T = TypeVar("T")


class LoopIsRunningError(BaseException):
    """
    A coroutine cannot run in a new event loop, as the thread already has a running one.

    It is not an :class:`Exception`, so that it is not taken for an error of the handler.
    """


class Loops:
    """Awaits the coroutines of one run: in the running event loop, or in a new one."""

    def __init__(self, *, is_running: bool) -> None:
        self._is_running = is_running

    async def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of the coroutine. If no loop is running, this method never suspends."""
        if self._is_running:
            return await coroutine
        if is_in_loop():
            coroutine.close()
            raise LoopIsRunningError
        self._is_running = True
        try:
            return asyncio.run(coroutine)
        finally:
            self._is_running = False


class DirectCalls(ThreadPools):
    """Calls synchronous functions in the current thread, so that breakpoints and mocks work as usual."""

    def __init__(self, settings: ExecutionSettings, loops: Loops) -> None:
        super().__init__(settings)
        self._loops = loops

    async def call(self, name: str, fn: Callable[[], Any], *, is_long: bool) -> Any:
        """Call the function, and await its result if it is awaitable, e.g. if a lambda calls a coroutine function."""
        return await self.call_briefly(fn)

    async def call_briefly(self, fn: Callable[[], Any]) -> Any:
        """Do the same."""
        result = fn()
        if not inspect.isawaitable(result):
            return result
        return await self._loops.wait(result if inspect.iscoroutine(result) else _finish(result))


async def _finish(awaitable: Awaitable[T]) -> T:
    return await awaitable


class DirectExecutor(HandlerExecutor):
    """Makes the attempts as in an operator, and remembers the latest outcome."""

    exits = (BaseException,)
    """Also those of the test framework, e.g. of ``pytest.fail()``."""

    def __init__(self, settings: ExecutionSettings, loops: Loops) -> None:
        super().__init__(settings)
        self.threads = DirectCalls(settings, loops)
        self.loops = loops
        self.latest: Outcome | None = None
        """The outcome of the latest attempt; ``None`` if there were none."""

    async def execute(
        self, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings = NOTHING
    ) -> Outcome:
        coroutine = super().execute(handler, cause, attempt, around)
        self.latest = await (self.loops.wait(coroutine) if handler.is_async else coroutine)
        return self.latest


class RecordingLogger(logging.LoggerAdapter[Any]):
    """Remembers messages of all levels, and passes them to the original logger, which filters them as usual."""

    def __init__(self, logger: Logger, lines: list[LogLine]) -> None:
        super().__init__(logger)
        self._lines = lines

    def isEnabledFor(self, level: int) -> bool:
        return True

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        message = logging.LogRecord("", level, "", 0, msg, args, None).getMessage()
        self._lines.append(LogLine(logging.getLevelName(level), message))
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # to log the line of the caller, not this one
        self.logger.log(level, msg, *args, **kwargs)


class EventList:
    """Collects explicit Kubernetes events instead of posting them. Log messages are not posted as events here."""

    def __init__(self, settings: OperatorSettings) -> None:
        self.settings = settings
        self.events: list[ReportedEvent] = []

    def enqueue(
        self, ref: ObjectReference, *, type: str, reason: str, message: str, backoffs: Delays, is_explicit: bool = True
    ) -> None:
        self.events.append(ReportedEvent(type, reason, message))


class Mark(NamedTuple):
    """How much was recorded before a call; calls can be nested, because of sub-handlers."""

    lines: int
    events: int


class CallContext:
    """The part of a call that does not depend on the kind of the handler."""

    def __init__(
        self, handlers: Sequence[Handler], given: GivenObject | None, options: CallingOptions, loops: Loops
    ) -> None:
        self.options = options
        self.settings = options["settings"] if "settings" in options else OperatorSettings()
        self.executor = DirectExecutor(self.settings.execution, loops)
        self.attempt = make_attempt(options)
        self.sink = EventList(self.settings)
        self._lines: list[LogLine] = []
        self._content = read_object(given)
        selector = next((item.selector for item in handlers if isinstance(item, ResourceHandler)), None)
        self.resource: Resource = options.get("resource") or guess_resource(self._content, selector)

    def complete(self, *, is_deleted: bool = False) -> dict[str, Any]:
        """Return the given object with the missing parts made up."""
        return complete(self._content, self.resource, is_deleted=is_deleted)

    def make_kwargs(self, content: dict[str, Any], *, is_local: bool = False) -> dict[str, Any]:
        """Make the common kwargs of objects' causes; ``is_local`` if logs never become Kubernetes events."""
        body = Body(make_object(content).for_users())
        logger = (LocalObjectLogger if is_local else ObjectLogger)(body=body, settings=self.settings)
        return {"resource": self.resource, "body": body, "patch": Patch(body=body), **self.make_common_kwargs(logger)}

    def make_common_kwargs(self, logger: Logger) -> dict[str, Any]:
        """Make the common kwargs of all causes."""
        return {
            "logger": RecordingLogger(logger, self._lines),
            "memo": self.options["memo"] if "memo" in self.options else Memo(),
            "indices": make_indices(self.options.get("indices", {}), self.resource),
        }

    def mark(self) -> Mark:
        """Note how much is recorded so far."""
        return Mark(len(self._lines), len(self.sink.events))

    def make_run(self, handler: Handler, outcome: Outcome | None, mark: Mark, /, **fields: Any) -> HandlerRun:
        """Describe how the handler has ended, with all records since the mark. No outcome if it was not called."""
        ending = {} if outcome is None else _describe(outcome)
        fields = {"outcome": "skipped", **ending, **fields}
        logs, events = self._lines[mark.lines :], self.sink.events[mark.events :]
        return HandlerRun(id=handler.id, logs=tuple(logs), events=tuple(events), **fields)


def _describe(outcome: Outcome) -> dict[str, Any]:
    ending: HandlerEnding = "succeeded"
    if not outcome.final:
        ending = "retried"
    elif outcome.exception is not None:
        ending = "failed"
    elif outcome.ignored is not None:
        ending = "ignored"
    return {
        "outcome": ending,
        "result": outcome.result,
        "exception": outcome.ignored if outcome.exception is None else outcome.exception,
        "delay": None if outcome.final else outcome.delay or 0,
    }
