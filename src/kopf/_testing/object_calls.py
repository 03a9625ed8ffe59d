"""Calls of the handlers that look at an object as it is: raw events, indices, timers, daemons."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from kopf._controller.background.stop_signals import (
    AsyncDaemonStopperChecker,
    DaemonStopper,
    DaemonStoppingReason,
    SyncDaemonStopperChecker,
)
from kopf._handlers.attempts import Outcome, deliver_result
from kopf._handlers.causes import BackgroundCause, ResourceCause, WatchingCause
from kopf._handlers.filters import matches
from kopf._handlers.handlers import (
    DaemonHandler,
    Handler,
    IndexingHandler,
    ResourceHandler,
    SpawningHandler,
    WatchingHandler,
)
from kopf._testing.call_context import CallContext
from kopf._testing.calling_options import STOP_AFTER
from kopf._testing.handler_choice import list_reasons
from kopf._testing.handler_run import HandlerRun

PATIENCE = 10.0
"""How long a daemon may take to exit when it is stopped, if it is never cancelled; in seconds."""


async def call_object_handler(context: CallContext, handlers: Sequence[ResourceHandler]) -> HandlerRun:
    """Call the first of the handlers that matches the object: the same function can be declared several times."""
    content, stopper = context.complete(), DaemonStopper()
    cause = _make_cause(context, handlers[0], content, stopper)
    mark = context.mark()
    handler = next((item for item in handlers if matches(item, cause)), None)
    facts: dict[str, Any] = {"reason": list_reasons(handlers[0])[0], "patch": cause.patch, "body": content}
    if handler is None:
        return context.make_run(handlers[0], None, mark, **facts)
    if isinstance(handler, DaemonHandler):
        outcome = await _run_daemon(context, handler, cause, stopper)
    else:
        outcome = await context.executor.execute(handler, cause, context.attempt)
    if outcome is None:
        return context.make_run(handler, None, mark, **facts, outcome="cancelled")
    if not isinstance(handler, IndexingHandler):
        deliver_result(handler, outcome, cause.patch)
    return context.make_run(handler, outcome, mark, **facts)


def _make_cause(
    context: CallContext, handler: Handler, content: dict[str, Any], stopper: DaemonStopper
) -> ResourceCause:
    match handler:
        case WatchingHandler():
            type = context.options.get("type", "ADDED")
            return WatchingCause(**context.make_kwargs(content, is_local=True), type=type)
        case SpawningHandler():
            checker = AsyncDaemonStopperChecker if handler.is_async else SyncDaemonStopperChecker
            return BackgroundCause(**context.make_kwargs(content), stopped=checker(stopper))
    return ResourceCause(**context.make_kwargs(content, is_local=True))


async def _run_daemon(
    context: CallContext, handler: DaemonHandler, cause: ResourceCause, stopper: DaemonStopper
) -> Outcome | None:
    """Run it until it exits, and ask it to exit in time. If it was cancelled instead, there is no outcome."""
    delay = context.options.get("stop_after", STOP_AFTER)
    if delay <= 0:
        stopper.set(DaemonStoppingReason.RESOURCE_DELETED)
    attempt = functools.partial(context.executor.execute, handler, cause, context.attempt)
    if handler.is_async:
        return await context.executor.loops.wait(_attend(attempt, handler, stopper, delay))
    with _stopping_from_thread(stopper, delay):
        return await attempt()


async def _attend(
    attempt: Callable[[], Awaitable[Outcome]], handler: DaemonHandler, stopper: DaemonStopper, delay: float
) -> Outcome | None:
    stopping = asyncio.get_running_loop().call_later(delay, stopper.set, DaemonStoppingReason.RESOURCE_DELETED)
    is_cancellable = handler.cancellation_timeout is not None
    patience = (handler.cancellation_backoff or 0) if is_cancellable else PATIENCE
    try:
        async with asyncio.timeout(delay + patience):
            return await attempt()
    except TimeoutError:
        if is_cancellable:
            return None
        raise TimeoutError(
            f"{handler} was stopped after {delay} s, but it still runs after {PATIENCE} s more. Check "
            "`stopped` in the daemon, or declare it with cancellation_timeout=."
        ) from None
    finally:
        stopping.cancel()


@contextlib.contextmanager
def _stopping_from_thread(stopper: DaemonStopper, delay: float) -> Iterator[None]:
    """Stop the daemon from another thread after this delay: the daemon occupies this thread."""
    timer = threading.Timer(delay, stopper.set, [DaemonStoppingReason.RESOURCE_DELETED])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
