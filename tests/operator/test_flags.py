"""Flags of all kinds: how they are waited for, raised, and released."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from kopf._operator.flags import Flag, raise_flag, release_flag, wait_flag
from tests.patience import PATIENCE

KINDS = [asyncio.Event, threading.Event, asyncio.Future, concurrent.futures.Future]
FUTURES = [asyncio.Future, concurrent.futures.Future]


def is_raised(flag: Flag) -> bool:
    return flag.is_set() if isinstance(flag, asyncio.Event | threading.Event) else flag.done()


@pytest.mark.parametrize("kind", KINDS)
async def test_raised_flags_are_noticed(kind: type[Flag]) -> None:
    flag = kind()
    waiting = asyncio.create_task(wait_flag(flag))
    await asyncio.sleep(0)
    assert not waiting.done()
    for _ in range(2):
        raise_flag(flag)
    await asyncio.wait_for(waiting, PATIENCE)


@pytest.mark.parametrize("kind", FUTURES)
async def test_failed_and_cancelled_futures_are_raised_flags(kind: type[asyncio.Future[None]]) -> None:
    failed, cancelled = kind(), kind()
    failed.set_exception(ValueError())
    cancelled.cancel()
    await asyncio.wait_for(asyncio.gather(wait_flag(failed), wait_flag(cancelled)), PATIENCE)
    failed.exception()


def test_flags_of_other_event_loops_are_refused() -> None:
    loop = asyncio.new_event_loop()
    with pytest.raises(ValueError, match="another event loop"):
        asyncio.run(wait_flag(loop.create_future()))
    loop.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [None, ValueError("boo!"), asyncio.CancelledError()])
async def test_those_who_wait_are_let_go(kind: type[Flag], error: BaseException | None) -> None:
    flag = kind()
    release_flag(flag, error)
    assert is_raised(flag)
    if isinstance(flag, asyncio.Future | concurrent.futures.Future):
        assert flag.cancelled() is not isinstance(error, ValueError)
        assert flag.cancelled() or flag.exception() is error


@pytest.mark.parametrize("kind", FUTURES)
async def test_raised_flags_remain_as_they_are(kind: type[asyncio.Future[None]]) -> None:
    flag = kind()
    raise_flag(flag)
    release_flag(flag, ValueError())
    assert flag.result() is None
