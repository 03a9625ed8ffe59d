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


@pytest.mark.parametrize("prefix", ["", "parent."], ids=["handlers", "sub-handlers"])
async def test_what_was_resumed_before_the_restart_is_resumed_again(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    prefix: str,
) -> None:
    def declare(declarator: Any, *args: str) -> None:
        declarator(*args, id="quick")(calls.noting("quick"))
        declarator(*args, id="slow")(
            calls.noting(lambda retry, **_: f"slow {retry}", error=kopf.TemporaryError("Not yet.", delay=100), times=2)
        )

    if prefix:
        kopf.on.resume("kopfexamples", id="parent")(lambda **_: declare(kopf.subhandler))
    else:
        declare(kopf.on.resume, "kopfexamples")
    await kex.create()
    await operator.start()
    await kex.wait(lambda obj: {f"{prefix}quick", f"{prefix}slow"} <= get_progress(obj).keys())
    await operator.stop()
    assert calls == ["quick", "slow 0"]
    await operator.start()
    await kex.wait_handled()
    assert calls == ["quick", "slow 0", "quick", "slow 1", "slow 2"]


async def test_creation_that_was_interrupted_is_continued_but_resuming_is_not(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="create")(calls.noting("create"))
    kopf.on.resume("kopfexamples", id="resume")(calls.noting("resume"))
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
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    both = calls.noting("both")
    kopf.on.create("kopfexamples", id="both")(both)
    kopf.on.resume("kopfexamples", id="both")(both)
    interrupt_creation(calls)
    await kex.create()
    await operator.start()
    await calls.wait_length(2)
    await operator.restart()
    await kex.wait_handled()
    assert calls == ["both", "wait", "wait"]


@pytest.mark.parametrize(
    "filters",
    [
        {"when": lambda labels, **_: "mine" in labels},
        {"labels": {"mine": kopf.PRESENT}},
    ],
    ids=["when", "labels"],
)
async def test_an_object_that_no_handler_was_for_is_resumed_when_one_is(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    filters: Any,
) -> None:
    operator.set("watching.push_selectors", False)  # otherwise, it is not even known at the start
    kopf.on.resume("kopfexamples", id="resume", **filters)(calls.noting(lambda reason, **_: f"resume at {reason}"))
    kopf.on.update("kopfexamples", id="update", **filters)(calls.noting("update"))
    await kex.create(labels={"mine": "yes"})
    await operator.start()
    await kex.wait_handled()
    await operator.stop()
    await kex.merge({"metadata": {"labels": {"mine": None}}})
    await operator.start_and_handle(kex, "other", labels={"mine": "yes"})
    await kex.merge({"spec": {"field": "unseen"}})
    calls.items.clear()
    await kex.merge({"metadata": {"labels": {"mine": "again"}}})
    await kex.wait_handled(field="unseen")
    await kex.change_and_wait(field="new")
    assert calls == ["resume at update", "update", "update"]
