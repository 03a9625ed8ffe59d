from __future__ import annotations

import asyncio

import pytest

from kopf._operator.tasks import cancel, either, fail_together, unwrap


class OneError(Exception):
    pass


class OtherError(Exception):
    pass


ONE, TWO, OTHER = OneError("1"), OneError("2"), OtherError("3")
MIXED = ExceptionGroup("", [ONE, OTHER])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ONE, ONE),
        (ExceptionGroup("", [ONE]), ONE),
        (ExceptionGroup("", [ExceptionGroup("", [ONE]), ExceptionGroup("", [TWO])]), ONE),
        (MIXED, MIXED),
        (ExceptionGroup("", [MIXED]), MIXED),
    ],
)
def test_groups_are_reduced_to_the_reason_if_there_is_one(error: Exception, reason: Exception) -> None:
    assert unwrap(error) is reason


async def wait_forever() -> None:
    await asyncio.Event().wait()


async def fail(error: BaseException) -> None:
    raise error


async def test_the_error_of_the_first_one_that_fails_is_raised() -> None:
    tasks = [asyncio.create_task(wait_forever()), asyncio.create_task(fail(ExceptionGroup("", [ONE])))]
    with pytest.raises(OneError):
        await fail_together(tasks)
    await cancel(tasks)
    assert tasks[0].cancelled()


async def test_tasks_that_end_are_errors() -> None:
    task = asyncio.create_task(asyncio.sleep(0), name="helper")
    with pytest.raises(RuntimeError, match=r"ended unexpectedly: \['helper'\]"):
        await fail_together([task])


async def test_the_result_comes_unless_the_guard_fails() -> None:
    guard = asyncio.create_task(wait_forever())
    assert await either(asyncio.sleep(0, "result"), guard) == "result"
    await cancel([guard])
    with pytest.raises(OneError):
        await either(wait_forever(), asyncio.create_task(fail(ONE)))
