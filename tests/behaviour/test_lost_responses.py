"""Patches that were applied, but whose responses were lost: the transformation functions are not applied again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import Obj, Objects
from tests.behaviour.running import Logs, Operator

pytestmark = pytest.mark.fastforward

COUNT = 4
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
