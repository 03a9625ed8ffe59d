"""What is lost: annotations that others remove or overwrite, and responses; what was done, is not done again."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf._controller.changes import object_memory
from kopf_cluster import LocalCluster
from tests.behaviour.conftest import IS_THOROUGH
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


COUNT = 4 if IS_THOROUGH else 2
"""How many objects are there of each case."""


def append(*path: str) -> Callable[[kopf.Patch, str], None]:
    """Make a function that has an item appended to a list of the object."""

    def fn(patch: kopf.Patch, item: str) -> None:
        def change(body: Any) -> None:
            for key in path[:-1]:
                body = body.setdefault(key, {})
            body.setdefault(path[-1], []).append(item)

        patch.fns.append(change)

    return fn


def append_to_both(patch: kopf.Patch, item: str) -> None:
    append("spec", "items")(patch, item)
    append("status", "items")(patch, item)


CHANGES: dict[str, Callable[[kopf.Patch, str], None]] = {
    "spec": append("spec", "items"),
    "status": append("status", "items"),
    "both": append_to_both,
}


def declare_creation(plural: str, change: Any, **options: Any) -> set[str]:
    for id in ("one", "two"):

        @kopf.on.create(plural, id=id, param=id, **options)
        async def create_fn(param: str, patch: kopf.Patch, **_: Any) -> None:
            change(patch, param)

    return {"one", "two"}


def declare_subhandlers(plural: str, change: Any, **options: Any) -> set[str]:
    @kopf.on.create(plural, id="parent", **options)
    async def parent(patch: kopf.Patch, **_: Any) -> None:
        async def sub(param: str, patch: kopf.Patch, **_: Any) -> None:
            change(patch, param)

        for id in ("a", "b"):
            kopf.register(sub, id=id, param=id)

    return {"a", "b"}


def declare_resuming(plural: str, change: Any, **options: Any) -> set[str]:
    @kopf.on.resume(plural, **options)
    async def resume_fn(patch: kopf.Patch, **_: Any) -> None:
        change(patch, "resumed")

    return {"resumed"}


def declare_daemon(plural: str, change: Any, **options: Any) -> set[str]:
    @kopf.daemon(plural, **options)
    async def daemon_fn(patch: kopf.Patch, retry: int, **_: Any) -> None:
        change(patch, f"attempt {retry}")
        if retry < 3:
            raise kopf.TemporaryError("again", delay=100)

    return {f"attempt {retry}" for retry in range(4)}


def declare_timer(plural: str, change: Any, **options: Any) -> set[str]:
    numbers: dict[str, int] = {}

    @kopf.timer(plural, interval=1000, **options)
    async def timer_fn(name: str, patch: kopf.Patch, **_: Any) -> None:
        numbers[name] = numbers.get(name, 0) + 1
        if numbers[name] <= 3:
            change(patch, str(numbers[name]))

    return {"1", "2", "3"}


def declare_event(plural: str, change: Any, **options: Any) -> set[str]:
    @kopf.on.event(plural, **options)
    async def event_fn(body: kopf.Body, patch: kopf.Patch, type: str | None, **_: Any) -> None:
        if type is None:
            change(patch, "seen")

    return {"seen"}


DECLARATIONS: dict[str, Callable[..., set[str]]] = {
    "create": declare_creation,
    "sub": declare_subhandlers,
    "resume": declare_resuming,
    "daemon": declare_daemon,
    "timer": declare_timer,
    "event": declare_event,
}


def list_items(obj: Obj) -> list[list[str]]:
    return [items for stanza in ("spec", "status") if (items := obj.get(stanza, {}).get("items")) is not None]


@pytest.mark.fastforward
@pytest.mark.parametrize("backoffs", [(), (1, 1, 2, 3, 5)], ids=["not-repeated", "repeated"])
async def test_functions_are_applied_once(
    operator: Operator,
    cluster: LocalCluster,
    objects: Objects,
    logs: Logs,
    backoffs: tuple[float, ...],
) -> None:
    """What events bring, is lost with the errors of the API if the requests are not repeated."""
    logs.expected.append("could not be handled")
    expected: dict[str, set[str]] = {}
    for (kind, declare), (what, change) in itertools.product(DECLARATIONS.items(), CHANGES.items()):
        if kind != "event" or backoffs:
            case = f"{kind}-{what}"
            items = declare(objects.plural, change, when=lambda name, case=case, **_: name.startswith(case))
            expected |= {f"{case}-{number}": items for number in range(COUNT)}
    operator.set("networking.error_backoffs", backoffs)
    await objects.create_all(expected)
    cluster.faults.inject(action="lose-answer", verb="patch", rate=0.6)
    await operator.start(watching=(objects.plural,))
    for name, items in expected.items():
        await objects.wait(
            lambda obj: all(set(found) >= items for found in list_items(obj)) and list_items(obj),  # noqa: B023
            name,
        )
    cluster.faults.clear()
    await asyncio.sleep(5000)  # whatever would be repeated, is repeated by then
    for name, items in expected.items():
        for found in list_items(objects.get_history(name)[-1]):
            assert sorted(found) == sorted(items), name


@pytest.mark.fastforward
async def test_what_the_first_of_two_requests_has_done_is_not_done_again(
    operator: Operator,
    cluster: LocalCluster,
    sub: Objects,
) -> None:
    """The status goes first; then somebody else changes the object, so the other request is for an old version."""

    @kopf.on.create("kopfstatusexamples")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        append_to_both(patch, "item")

    cluster.faults.inject(409, times=1, verb="patch", resource="kopfstatusexamples")
    await operator.start_and_create(sub)
    obj = await sub.wait(lambda obj: obj.get("spec", {}).get("items"))
    assert list_items(obj) == [["item"], ["item"]]
