"""Flags of all kinds: how they are waited for, raised, and released."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from kopf._operator.flags import Flag, raise_flag, release_flag

KINDS = [asyncio.Event, threading.Event, asyncio.Future, concurrent.futures.Future]
FUTURES = [asyncio.Future, concurrent.futures.Future]


def is_raised(flag: Flag) -> bool:
    return flag.is_set() if isinstance(flag, asyncio.Event | threading.Event) else flag.done()


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
