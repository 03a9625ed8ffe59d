"""Continuity: what happens while the operator is down is handled when it is up again; what was done is not repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_progress, has_progress
from tests.behaviour.running import Calls, Operator, get_duration

pytestmark = [pytest.mark.lagging, pytest.mark.usefixtures("by_network")]


async def test_changes_are_handled_together(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.update("kopfexamples", id="fn")(calls.noting(lambda diff, **_: sorted(map(tuple, diff))))
    await operator.start_and_handle(kex, spec={"a": 1, "b": 1})
    await operator.stop()
    await kex.merge({"spec": {"a": 2}})
    await kex.merge({"spec": {"a": 3}})
    await kex.merge({"spec": {"b": None, "c": 4}})
    await operator.start()
    await kex.wait_handled()
    assert calls == [
        [("add", ("spec", "c"), None, 4), ("change", ("spec", "a"), 1, 3), ("remove", ("spec", "b"), 1, None)]
    ]


async def test_creations_are_handled(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.create("kopfexamples", id="fn")(calls.noting(lambda name, **_: name))
    await operator.start()
    await operator.stop()
    names = await kex.create_all([f"obj{i}" for i in range(30)])
    await operator.start()
    await kex.wait_all_handled(names)
    assert sorted(calls) == sorted(names)


async def test_finished_handlers_are_not_repeated_after_restarts(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """The operator is stopped after every handler."""
    for id in ("a", "b", "c", "d"):

        @kopf.on.create("kopfexamples", id=id, param=id)
        async def fn(param: str, **_: Any) -> str:
            if calls == goal:
                raise kopf.TemporaryError("not in this life", delay=1)
            calls.append(param)
            return f"of {param}"

    await kex.create()
    goal: list[str] = []
    for id in ("a", "b", "c"):
        goal.append(id)
        await operator.start(lifecycle=kopf.lifecycles.one_by_one)
        await kex.wait_seen(lambda obj, id=id: get_progress(obj).get(id, {}).get("success"))  # type: ignore[misc]
        await operator.stop()
        assert calls == goal
    goal.append("d")
    await operator.start()
    obj = await kex.wait_handled()
    assert calls == ["a", "b", "c", "d"]
    assert obj["status"] == {"a": "of a", "b": "of b", "c": "of c", "d": "of d"}


@pytest.mark.fastforward
async def test_the_schedule_of_retries_goes_on_after_restarts(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.create("kopfexamples", id="fn")(
        calls.noting(lambda retry, **_: retry, error=kopf.TemporaryError("not yet", delay=1000), times=1)
    )
    await operator.start_and_create(kex)
    await kex.wait_seen(has_progress("fn"))
    # The timestamps on the object are those of the wall clock; each operator begins with the actual one.
    await operator.restart()
    assert await get_duration(kex.wait_handled()) == pytest.approx(1000, abs=30)
    assert calls == [0, 1]


@pytest.mark.fastforward
async def test_handlers_that_hang_are_cancelled_on_exit_and_repeated_later(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    async def fn(**_: Any) -> None:
        calls.append("called")
        if len(calls) == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                calls.append("cancelled")
                raise

    await operator.start_and_call(kex, calls)
    assert await get_duration(operator.stop()) < 10
    assert calls == ["called", "cancelled"]
    await operator.start()
    await kex.wait_handled()
    assert calls == ["called", "cancelled", "called"]


async def test_handlers_that_are_about_to_finish_are_awaited_on_exit(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    leaving = asyncio.Event()

    @kopf.on.create("kopfexamples", id="first")
    async def first(**_: Any) -> str:
        calls.append("called")
        leaving.set()
        await asyncio.sleep(0.1)
        return "done"

    kopf.on.create("kopfexamples", id="second")(calls.noting("second"))
    await operator.start_and_create(kex)
    await leaving.wait()
    await operator.stop()
    obj = await kex.get()
    assert obj["status"] == {"first": "done"}
    assert get_progress(obj)["first"]["success"] is True
    await operator.start()
    await kex.wait_handled()
    assert calls == ["called", "second"]


async def test_handlers_of_the_new_version_of_the_operator_do_not_touch_handled_objects(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="old")(calls.noting(lambda name, **_: ("old", name)))
    handled = await operator.start_and_handle(kex)
    await operator.stop()

    new = calls.noting(lambda name, **_: ("new", name))
    kopf.on.update("kopfexamples", id="new")(new)
    kopf.on.create("kopfexamples", id="new")(new)
    await operator.start_and_handle(kex, "another")
    assert calls == [("old", "obj"), ("old", "another"), ("new", "another")]
    assert (await kex.get())["metadata"]["resourceVersion"] == handled["metadata"]["resourceVersion"]


@pytest.mark.fastforward
async def test_changes_during_the_downtime_in_the_middle_of_the_handling(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """The creation goes on with the newest state; the finished handlers are not repeated for it."""
    kopf.on.create("kopfexamples", id="first")(calls.noting(lambda spec, **_: ("first", spec["field"])))

    kopf.on.create("kopfexamples", id="second")(
        calls.noting(
            lambda spec, **_: ("second", spec["field"]), error=kopf.TemporaryError("not yet", delay=1000), times=1
        )
    )

    await operator.start_and_create(kex)
    await kex.wait_seen(has_progress("second"))
    await operator.stop()
    await kex.merge({"spec": {"field": "new"}})
    await operator.start()
    await kex.wait_handled(field="new")
    assert calls == [("first", "value"), ("second", "value"), ("second", "new")]


@pytest.mark.fastforward
async def test_changes_in_the_middle_of_the_creation_are_not_lost_if_the_operator_restarts_then(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """The handlers that were done before see the change as an update."""
    for id in ("first", "second"):

        @kopf.on.create("kopfexamples", id=id, param=id)
        async def create_fn(param: str, retry: int, spec: kopf.Spec, **_: Any) -> None:
            calls.append((param, spec["field"]))
            if param == "second" and not retry:
                raise kopf.TemporaryError("not yet", delay=1000)

    kopf.on.update("kopfexamples")(calls.noting(lambda old, new, **_: (old, new)))
    await operator.start_and_create(kex)
    await kex.wait_seen(has_progress("first", "second"))
    await operator.stop()
    await kex.merge({"spec": {"field": "new"}})
    await operator.start()
    await kex.wait_handled(field="new")
    old, new = {"spec": {"field": "value"}}, {"spec": {"field": "new"}}
    assert calls == [("first", "value"), ("second", "value"), ("second", "new"), (old, new)]
