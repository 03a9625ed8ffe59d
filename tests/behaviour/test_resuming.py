"""Objects are resumed by every operator, even if the previous one was interrupted in the middle of that."""
from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_progress
from tests.behaviour.running import Calls, Operator

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


def interrupt_creation(calls: Calls) -> None:
    """Declare a handler that does not end until the operator is stopped; the next operator calls it again."""
    @kopf.on.create("kopfexamples", id="wait")
    async def wait(**_: Any) -> None:
        calls.append("wait")
        if calls.items.count("wait") == 1:
            await asyncio.Event().wait()


async def test_what_was_resumed_before_the_restart_is_resumed_again(
        operator: Operator, kex: Objects, calls: Calls,
) -> None:
    @kopf.on.resume("kopfexamples", id="quick")
    async def quick(**_: Any) -> None:
        calls.append("quick")

    @kopf.on.resume("kopfexamples", id="slow")
    async def slow(retry: int, **_: Any) -> None:
        calls.append(f"slow {retry}")
        if retry < 2:
            raise kopf.TemporaryError("Not yet.", delay=100)

    await kex.create()
    await operator.start()
    await kex.wait(lambda obj: {"quick", "slow"} <= get_progress(obj).keys())
    await operator.stop()
    assert calls == ["quick", "slow 0"]
    await operator.start()
    await kex.wait_handled()
    assert calls == ["quick", "slow 0", "quick", "slow 1", "slow 2"]


async def test_creation_that_was_interrupted_is_continued_but_resuming_is_not(
        operator: Operator, kex: Objects, calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="create")
    async def create(**_: Any) -> None:
        calls.append("create")

    @kopf.on.resume("kopfexamples", id="resume")
    async def resume(**_: Any) -> None:
        calls.append("resume")

    interrupt_creation(calls)
    await kex.create()
    await operator.start()
    await calls.wait_length(3)
    await operator.stop()
    assert calls == ["create", "resume", "wait"]
    await operator.start()
    await kex.wait_handled()
    assert calls == ["create", "resume", "wait", "resume", "wait"]


async def test_a_function_for_both_creation_and_resuming_is_called_once(
        operator: Operator, kex: Objects, calls: Calls,
) -> None:
    @kopf.on.resume("kopfexamples", id="both")
    @kopf.on.create("kopfexamples", id="both")
    async def both(**_: Any) -> None:
        calls.append("both")

    interrupt_creation(calls)
    await kex.create()
    await operator.start()
    await calls.wait_length(2)
    await operator.stop()
    await operator.start()
    await kex.wait_handled()
    assert calls == ["both", "wait", "wait"]


async def test_sub_handlers_of_resuming_are_called_again_too(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.resume("kopfexamples", id="parent")
    async def parent(**_: Any) -> None:
        @kopf.subhandler(id="quick")
        async def quick(**_: Any) -> None:
            calls.append("quick")

        @kopf.subhandler(id="slow")
        async def slow(retry: int, **_: Any) -> None:
            calls.append(f"slow {retry}")
            if retry < 2:
                raise kopf.TemporaryError("Not yet.", delay=100)

    await kex.create()
    await operator.start()
    await kex.wait(lambda obj: {"parent.quick", "parent.slow"} <= get_progress(obj).keys())
    await operator.stop()
    await operator.start()
    await kex.wait_handled()
    assert calls == ["quick", "slow 0", "quick", "slow 1", "slow 2"]
