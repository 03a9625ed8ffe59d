"""Changes while the previous ones are being handled: every handler ends up with the latest state, and in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_essence, get_progress, has_progress, is_handled
from tests.behaviour.running import Calls, Decorator, Operator, do_nothing, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


async def change_once(kex: Objects, patch: Any, done: list[bool]) -> None:
    if not done:
        done.append(True)
        await kex.merge(patch)


async def test_a_change_that_is_undone_is_undone_for_those_who_have_seen_it(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    done: list[bool] = []

    @kopf.on.update("kopfexamples", id="first")
    async def first(spec: kopf.Spec, **_: Any) -> None:
        calls.append(("first", spec["field"]))
        await change_once(kex, {"spec": {"field": "value"}}, done)

    kopf.on.update("kopfexamples", id="second")(calls.noting(lambda spec, **_: ("second", spec["field"])))
    await operator.start_and_handle(kex)
    await kex.merge({"spec": {"field": "new"}})
    await calls.wait_length(2)
    await kex.create_and_wait("another")
    obj = await kex.wait(is_handled)
    assert get_essence(obj) == {"spec": {"field": "value"}}
    assert [value for id, value in calls if id == "first"] == ["new", "value"]
    assert [value for id, value in calls if id == "second"] in ([], ["value"])


async def test_a_change_on_top_of_a_change_is_seen_by_all(operator: Operator, kex: Objects, calls: Calls) -> None:
    done: list[bool] = []

    @kopf.on.update("kopfexamples", id="first")
    async def first(spec: kopf.Spec, old: Any, **_: Any) -> None:
        calls.append(("first", old["spec"]["field"], spec["field"]))
        await change_once(kex, {"spec": {"field": "newest"}}, done)

    kopf.on.update("kopfexamples", id="second")(
        calls.noting(lambda spec, old, **_: ("second", old["spec"]["field"], spec["field"]))
    )
    await operator.start_and_handle(kex)
    await kex.merge({"spec": {"field": "new"}})
    await kex.wait_handled(field="newest")
    assert [call[2] for call in calls if call[0] == "first"] == ["new", "newest"]
    assert [call[2] for call in calls if call[0] == "second"][-1] == "newest"


async def test_changes_of_other_fields_do_not_repeat_the_handlers_of_fields(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    done: list[bool] = []

    @kopf.on.update("kopfexamples", field="spec.field", id="first")
    async def first(new: Any, **_: Any) -> None:
        calls.append(("first", new))
        await change_once(kex, {"spec": {"other": "thing"}}, done)

    kopf.on.update("kopfexamples", field="spec.field", id="second")(calls.noting(lambda new, **_: ("second", new)))
    await operator.start_and_handle(kex)
    await kex.merge({"spec": {"field": "new"}})
    await kex.wait_handled(field="new", other="thing")
    assert calls == [("first", "new"), ("second", "new")]


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.update], ids=["create", "update"])
async def test_own_patches_do_not_repeat_the_handler_ahead_of_its_schedule(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    decorator: Any,
) -> None:
    async def fn(patch: kopf.Patch, retry: int, **_: Any) -> None:
        calls.append((retry, round(now() - started)))
        patch.spec["attempts"] = len(calls)
        if len(calls) < 50:
            raise kopf.TemporaryError("not yet", delay=100)

    decorator("kopfexamples", retries=4)(fn)
    await operator.start()
    started = now()
    await kex.create()
    if decorator is kopf.on.update:
        await kex.wait_handled()
        started = now()
        await kex.merge({"spec": {"field": "new"}})
    await kex.wait(lambda obj: obj["spec"].get("attempts") == 4)
    assert [retry for retry, _ in calls.items[:4]] == [0, 1, 2, 3]
    assert [time for _, time in calls.items[:4]] == pytest.approx([0, 100, 200, 300], abs=1)


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.update], ids=["create", "update"])
async def test_changes_by_others_do_not_cut_the_delays_of_retries(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    decorator: Decorator,
) -> None:
    """The next attempt will see the fresh state anyway; and it was asked to wait."""

    started: float
    decorator("kopfexamples", id="fn")(
        calls.noting(
            lambda spec, retry, **_: (retry, spec.get("other"), round(now() - started)),
            error=kopf.TemporaryError("not yet", delay=100),
            times=2,
        )
    )

    if decorator is kopf.on.update:
        kopf.on.create("kopfexamples")(do_nothing)

    await operator.start()
    started = now()
    await kex.create()
    if decorator is kopf.on.update:
        await kex.wait_handled()
        started = now()
        await kex.merge({"spec": {"field": "new"}})
    await kex.wait_seen(has_progress("fn"))
    for number in range(10):
        await kex.merge({"spec": {"other": number}})
    obj = await kex.wait_handled(other=9)
    assert [(retry, other) for retry, other, _ in calls.items[:3]] == [(0, None), (1, 9), (2, 9)]
    assert [time for _, _, time in calls.items[:3]] == pytest.approx([0, 100, 200], abs=1)
    assert not get_progress(obj)


async def test_a_change_before_the_first_handler_is_not_an_update(
    operator: Operator, kex: Objects, calls: Calls
) -> None:
    """The operator is late: it sees the new object, adds the finalizer, and only then sees the change."""
    kopf.on.create("kopfexamples", id="create")(calls.noting(lambda spec, **_: ("create", spec["field"])))
    kopf.on.update("kopfexamples", id="update")(calls.noting(lambda spec, **_: ("update", spec["field"])))
    kopf.on.delete("kopfexamples", id="delete")(do_nothing)
    await operator.start()
    operator.cluster.faults.lag_watches(1)
    await kex.create(spec={"field": "value"})
    await asyncio.sleep(0.5)
    await kex.change_and_wait(field="new")
    await kex.create_and_wait("another")
    assert calls[0] == ("create", "new")
    assert ("update", "new") not in calls
