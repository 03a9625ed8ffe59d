"""Tasks of an operator: they fail together, and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def fail_together(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait until any of the tasks fails; none of them may end otherwise."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        if (exc := task.exception()) is not None:
            raise unwrap(exc)
    raise RuntimeError(f"These tasks of the operator have ended unexpectedly: {[task.get_name() for task in done]!r}")


async def either(coro: Coroutine[Any, Any, T], guard: asyncio.Task[Any]) -> T:
    """Return the result of the coroutine, unless the guarding task fails earlier."""
    task = asyncio.create_task(coro)
    try:
        await asyncio.wait([task, guard], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await fail_together([guard])
        return task.result()
    finally:
        await cancel([task])


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def unwrap(exc: BaseException) -> BaseException:
    """
    Unwrap the error of a group of tasks, which usually has only one error.

    Of several errors of the same class, e.g. from both kinds of webhook configurations, return the first one.
    """
    if not isinstance(exc, BaseExceptionGroup):
        return exc
    reasons = [unwrap(reason) for reason in exc.exceptions]
    return reasons[0] if len({type(reason) for reason in reasons}) == 1 else exc
