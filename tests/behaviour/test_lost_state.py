"""State that is lost: someone else removes or overwrites our annotations; the operator remembers what it has done."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest

import kopf
from kopf._controller.changes import object_memory
from tests.behaviour.objects import LAST_HANDLED, Obj, Objects, get_annotations, get_essence, is_handled
from tests.behaviour.running import Calls, Logs, Operator, do_nothing

LOST = "Something else has removed the last handled configuration of the object.*"


def is_restored(kex: Objects, expected: int, obj: Obj) -> bool:
    return len(kex.get_history()) == expected and is_handled(obj)


def declare(calls: Calls) -> None:
    fn = calls.noting(lambda reason, spec, **_: (reason.value, spec["field"]))
    kopf.on.delete("kopfexamples")(fn)
    kopf.on.update("kopfexamples")(fn)
    kopf.on.create("kopfexamples")(fn)


async def test_handled_objects_are_not_taken_for_new_ones(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    declare(calls)
    await operator.start_and_handle(kex)
    for _ in range(3):
        expected = len(kex.get_history()) + 2  # the removal, and the restoration
        await kex.merge({"metadata": {"annotations": None}})
        await kex.wait(functools.partial(is_restored, kex, expected))
    assert calls == [("create", "value")]
    (record,) = logs.find(LOST)
    assert record.levelno == logging.WARNING
    await kex.delete_and_wait()
    assert calls == [("create", "value"), ("delete", "value")]


async def test_changes_together_with_the_loss_are_handled(operator: Operator, kex: Objects, calls: Calls) -> None:
    declare(calls)
    await operator.start_and_handle(kex)
    await kex.merge({"metadata": {"annotations": None}, "spec": {"field": "new"}})
    await kex.wait_handled(field="new")
    assert calls == [("create", "value"), ("update", "new")]


@pytest.mark.parametrize(("size", "old"), [(None, {"spec": {"v": 0, "w": 7}}), (1, {})], ids=["known", "forgotten"])
async def test_it_is_known_what_has_changed_together_with_the_loss(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    size: int | None,
    old: Any,
) -> None:
    """It is remembered as long as there is room; then, everything has changed."""
    if size is not None:
        monkeypatch.setattr(object_memory, "MAX_SIZE", size)
    kopf.on.create("kopfexamples", id="create")(do_nothing)
    kopf.on.update("kopfexamples", id="update")(calls.noting(lambda old, **_: old))
    kopf.on.field("kopfexamples", id="same", field="spec.w")(calls.noting(lambda old, new, **_: (old, new)))
    await operator.start_and_handle(kex, spec={"v": 0, "w": 7})
    await kex.merge({"metadata": {"annotations": None}, "spec": {"v": 1}})
    await kex.wait_handled(v=1)
    assert calls == [(None, 7), old, *([(None, 7)] if size else [])]


async def test_another_operator_process_knows_nothing_of_them(operator: Operator, kex: Objects, calls: Calls) -> None:
    declare(calls)
    await operator.start_and_handle(kex)
    await operator.stop()
    await kex.merge({"metadata": {"annotations": None}})
    await operator.start()
    await kex.wait_handled()
    assert calls == [("create", "value"), ("create", "value")]


async def test_those_who_insist_on_the_removal_are_not_fought_with(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """Another controller always brings its objects to what it believes they should be."""
    declare(calls)

    @kopf.on.event("kopfexamples", id="controller")
    async def controller(name: str, body: kopf.Body, **_: Any) -> None:
        if name == "obj" and LAST_HANDLED in body.metadata.annotations:
            await kex.merge({"metadata": {"annotations": {LAST_HANDLED: None}}})

    await operator.start_and_create(kex)
    for number in range(20):
        await kex.create_and_wait(f"another{number}")
    assert [call for call in calls if call[0] == "create"].count(("create", "value")) == 21
    restorations = sum(LAST_HANDLED in get_annotations(obj) for obj in kex.get_history())
    assert restorations < 10
    # The changes are still noticed.
    await kex.merge({"spec": {"field": "new"}})
    await calls.wait(lambda items: ("update", "new") in items)
    assert calls.items.count(("update", "new")) == 1


async def test_states_of_others_are_taken_seriously(operator: Operator, kex: Objects, calls: Calls) -> None:
    """The whole object is replaced with an older backup of it, with an older last handled configuration."""
    declare(calls)
    backup = await operator.start_and_handle(kex)
    await kex.change_and_wait(field="new")
    await kex.merge({"spec": backup["spec"], "metadata": {"annotations": get_annotations(backup)}})
    await kex.create_and_wait("another")
    obj = await kex.wait(is_handled)
    assert get_essence(obj) == {"spec": {"field": "value"}}
    assert ("create", "value") in calls.items
