"""Sub-handlers: declared or executed by a handler while it runs, and then handled as regular ones."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_progress
from tests.behaviour.running import Calls, Decorator, Operator, do_nothing

pytestmark = pytest.mark.lagging


def by_decorator(calls: Calls, items: dict[str, Any]) -> None:
    for item, value in items.items():

        @kopf.subhandler(id=item)
        def fn(name: str, item: str = item, value: Any = value, **_: Any) -> Any:
            calls.append((item, name))
            return value


def by_register(calls: Calls, items: dict[str, Any]) -> None:
    def fn(item: str, value: Any, *, name: str, **_: Any) -> Any:
        calls.append((item, name))
        return value

    for item, value in items.items():
        kopf.register(functools.partial(fn, item, value), id=item)


async def by_execute(calls: Calls, items: dict[str, Any]) -> None:
    def fn(item: str, value: Any, *, name: str, **_: Any) -> Any:
        calls.append((item, name))
        return value

    await kopf.execute(fns={item: functools.partial(fn, item, value) for item, value in items.items()})


async def by_execute_async(calls: Calls, items: dict[str, Any]) -> None:
    async def fn(item: str, value: Any, *, name: str, **_: Any) -> Any:
        calls.append((item, name))
        return value

    await kopf.execute(fns={item: functools.partial(fn, item, value) for item, value in items.items()})


@pytest.mark.parametrize(
    "decorator",
    [kopf.on.create, kopf.on.update, kopf.on.resume, kopf.on.delete],
    ids=lambda decorator: decorator.__name__,
)
async def test_all_ways_for_all_reasons(operator: Operator, kex: Objects, calls: Calls, decorator: Decorator) -> None:
    """Each of the ways is that of one object."""
    sync_ways: dict[str, Callable[..., None]] = {"decorator": by_decorator, "register": by_register}
    async_ways: dict[str, Callable[..., Any]] = {"execute": by_execute, "execute-async": by_execute_async}

    @decorator("kopfexamples", id="parent", when=lambda name, **_: name in sync_ways)
    def sync_fn(name: str, spec: kopf.Spec, **_: Any) -> None:
        sync_ways[name](calls, spec["items"])

    @decorator("kopfexamples", id="parent", when=lambda name, **_: name in async_ways)
    async def async_fn(name: str, spec: kopf.Spec, **_: Any) -> None:
        await async_ways[name](calls, spec["items"])

    names = [*sync_ways, *async_ways]
    for name in names:
        await kex.create(name, spec={"items": {"a": 1, "b": {"c": 2}}}, finalizers=["example.com/theirs"])
    await operator.start()
    for name in names:
        if decorator is not kopf.on.resume:
            await kex.wait_handled(name)
        if decorator is kopf.on.update:
            await kex.merge({"spec": {"field": "new"}}, name)
        if decorator is kopf.on.delete:
            await kex.delete(name)
    for name in names:
        obj = await kex.wait(lambda obj: "parent/b" in obj.get("status", {}) and not get_progress(obj), name)
        assert [call for call in calls if call[1] == name] == [("a", name), ("b", name)]
        assert obj["status"] == {"parent/a": 1, "parent/b": {"c": 2}}
        if decorator is kopf.on.delete:
            await kex.wait(lambda obj: obj["metadata"]["finalizers"] == ["example.com/theirs"], name)
        await kex.release(name)


@pytest.mark.lagging(False)
async def test_they_get_the_kwargs_of_their_cause(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.update("kopfexamples", id="parent")
    def parent(**_: Any) -> None:
        kopf.subhandler(id="sub", param=123)(lambda **kwargs: calls.append(kwargs))

    await operator.start_and_handle(kex)
    await kex.change_and_wait(field="new")
    kwargs = calls[0]
    assert kwargs["param"] == 123
    assert kwargs["retry"] == 0
    assert kwargs["reason"] == kopf.Reason.UPDATE
    assert kwargs["diff"] == (("change", ("spec", "field"), "value", "new"),)
    assert kwargs["name"] == "obj"
    assert kwargs["spec"]["field"] == "new"


async def test_progress_of_them_and_of_their_parents(operator: Operator, kex: Objects) -> None:
    """Those that wait for their first attempts have records, too."""

    @kopf.on.create("kopfexamples", id="parent")
    async def parent(**_: Any) -> None:
        for id in ("a", "b", "c"):
            kopf.register(do_nothing, id=id)

    obj = await operator.start_and_handle(kex)
    assert not get_progress(obj)
    seen = []
    for moment in filter(None, map(get_progress, kex.get_history())):
        assert sorted(moment["parent"]["subrefs"]) == ["parent/a", "parent/b", "parent/c"]
        seen.append({key: (record["retries"], record["success"]) for key, record in moment.items()})
    # The success of the last one is the end of the parent too, and so of the whole handling.
    assert seen == [
        {"parent": (1, False), "parent.a": (1, True), "parent.b": (0, False), "parent.c": (0, False)},
        {"parent": (2, False), "parent.a": (1, True), "parent.b": (1, True), "parent.c": (0, False)},
    ]


async def test_nested_subhandlers(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="top")
    def top(**_: Any) -> None:
        @kopf.subhandler(id="mid")
        def mid(**_: Any) -> str:
            for id in ("x", "y"):

                @kopf.subhandler(id=id)
                def low(id: str = id, **_: Any) -> str:
                    calls.append(id)
                    return f"of {id}"

            return "of mid"

        kopf.subhandler(id="last")(lambda **_: calls.append("last"))

    obj = await operator.start_and_handle(kex)
    assert sorted(calls) == ["last", "x", "y"]
    assert obj["status"] == {"top/mid": "of mid", "top/mid/x": "of x", "top/mid/y": "of y"}
    subrefs = {ref for obj in kex.get_history() for ref in get_progress(obj).get("top", {}).get("subrefs", [])}
    assert subrefs == {"top/mid", "top/last", "top/mid/x", "top/mid/y"}


@pytest.mark.lagging(False)
async def test_ids_are_the_names_of_functions_by_default(operator: Operator, kex: Objects) -> None:
    @kopf.on.create("kopfexamples", id="parent")
    async def parent(**_: Any) -> None:
        @kopf.subhandler()
        def decorated(**_: Any) -> int:
            return 1

        def registered(**_: Any) -> int:
            return 2

        async def executed(**_: Any) -> int:
            return 3

        kopf.register(registered)
        await kopf.execute()
        await kopf.execute(fns=[executed])

    obj = await operator.start_and_handle(kex)
    place = "test_ids_are_the_names_of_functions_by_default.<locals>.parent.<locals>"
    assert obj["status"] == {
        f"parent/{place}.decorated": 1,
        f"parent/{place}.registered": 2,
        f"parent/{place}.executed": 3,
    }


@pytest.mark.lagging(False)
async def test_no_subhandlers_at_all(operator: Operator, kex: Objects) -> None:
    @kopf.on.create("kopfexamples", id="parent")
    async def parent(**_: Any) -> str:
        await kopf.execute(fns={})
        await kopf.execute()
        return "done"

    obj = await operator.start_and_handle(kex)
    assert obj["status"] == {"parent": "done"}


async def test_handlers_of_a_registry_can_be_executed(operator: Operator, kex: Objects, calls: Calls) -> None:
    """Those that would be called for this object and this change, with their own options & progress."""
    inner = kopf.OperatorRegistry()

    @kopf.on.create("kopfexamples", registry=inner, id="a", param="created")
    @kopf.on.update("kopfexamples", registry=inner, id="b", param="updated")
    @kopf.on.create("kopfexamples", registry=inner, id="c", labels={"l": "other"})
    @kopf.on.create("kopfstatusexamples", registry=inner, id="d")
    @kopf.on.event("kopfexamples", registry=inner, id="e", param="event")
    async def inner_fn(param: str, **_: Any) -> str:
        calls.append(param)
        return param

    @kopf.on.create("kopfexamples", id="parent")
    @kopf.on.update("kopfexamples", id="parent")
    async def parent(**_: Any) -> None:
        await kopf.execute(registry=inner)
        calls.append("leaving")

    await operator.start_and_handle(kex)
    obj = await kex.change_and_wait(field="new")
    assert calls == ["created", "leaving", "updated", "leaving"]
    assert obj["status"] == {"parent/a": "created", "parent/b": "updated"}


@pytest.mark.lagging(False)
async def test_the_lifecycle_of_subhandlers_can_be_chosen(operator: Operator, kex: Objects, calls: Calls) -> None:
    def backwards(handlers: Any, **_: Any) -> Any:
        return handlers[::-1]

    @kopf.on.create("kopfexamples", id="parent")
    async def parent(**_: Any) -> None:
        calls.append("entering")
        await kopf.execute(fns={item: lambda item=item, **_: calls.append(item) for item in "abc"}, lifecycle=backwards)
        calls.append("leaving")

    await operator.start(lifecycle=kopf.lifecycles.one_by_one)
    await kex.create_and_wait()
    assert calls == ["entering", "c", "b", "a", "leaving"]


@pytest.mark.fastforward
async def test_lifecycles_of_subhandlers_that_choose_nothing(operator: Operator, kex: Objects, calls: Calls) -> None:
    def refuse(handlers: Any, **_: Any) -> Any:
        return handlers if len(calls) > 20 else []

    @kopf.on.create("kopfexamples", id="parent")
    async def parent(**_: Any) -> None:
        calls.append("entering")
        await kopf.execute(fns={"a": lambda **_: calls.append("a")}, lifecycle=refuse)

    await operator.start()
    started = asyncio.get_running_loop().time()
    await kex.create_and_wait()
    assert calls == [*["entering"] * 21, "a"]
    assert asyncio.get_running_loop().time() - started >= 15


FILTERS: list[tuple[dict[str, Any], bool]] = [
    ({"labels": {"l": "v"}}, True),
    ({"labels": {"l": "w"}}, False),
    ({"annotations": {"a": kopf.PRESENT}}, True),
    ({"annotations": {"a": kopf.ABSENT}}, False),
    ({"when": lambda spec, reason, **_: spec["field"] == "new" and reason == "update"}, True),
    ({"when": lambda **_: False}, False),
    ({"field": "spec.field"}, True),
    ({"field": "spec.other"}, False),
    ({"field": "spec.field", "value": "value"}, True),
    ({"field": "spec.field", "value": "another"}, False),
    ({"field": "spec.field", "old": "value", "new": "new"}, True),
    ({"field": "spec.field", "old": "new"}, False),
    ({"field": "spec.field", "new": lambda value, **_: value == "value"}, False),
]


@pytest.mark.lagging(False)
async def test_all_filters_are_available(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.update("kopfexamples", id="parent")
    async def parent(**_: Any) -> None:
        for number, (options, _expected) in enumerate(FILTERS):
            kopf.subhandler(id=str(number), param=number, **options)(calls.noting(lambda param, **_: param))

    await operator.start_and_handle(
        kex, labels={"l": "v"}, annotations={"a": "w"}, spec={"field": "value", "other": "same"}
    )
    await kex.change_and_wait(field="new")
    assert sorted(calls) == [number for number, (_, expected) in enumerate(FILTERS) if expected]


async def test_under_handlers_of_fields_they_only_see_these_fields(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """So their own fields are in there, too; and so on, from level to level."""
    seen: set[Any] = set()

    def see(old: Any, new: Any, **_: Any) -> bool:
        seen.add((old["x"], new["x"]))
        return True

    def declare(name: str, **options: Any) -> None:
        kopf.subhandler(id=name, **options)(calls.noting(lambda old, new, **_: (name, old, new)))

    @kopf.on.update("kopfexamples", id="parent", field="spec.field")
    async def parent(**_: Any) -> None:
        declare("x", field="x")
        declare("x = 2", field="x", value=2)
        declare("y.z: 1 -> 2", field="y.z", old=1, new=2)
        declare("absolute", field="spec.field.x")
        declare("all", when=see)

        @kopf.subhandler(id="y", field="y")
        async def middle(**_: Any) -> None:
            declare("z", field="z")
            declare("y", field="y")

        @kopf.subhandler(id="other")
        async def other(**_: Any) -> None:
            declare("deep", field="y.z")

    await operator.start_and_handle(kex, spec={"field": {"x": 1, "y": {"z": 1}}})
    await kex.merge({"spec": {"field": {"x": 2, "y": {"z": 2}}}})
    await kex.wait_handled(field={"x": 2, "y": {"z": 2}})
    whole = ({"x": 1, "y": {"z": 1}}, {"x": 2, "y": {"z": 2}})
    assert sorted(calls, key=lambda call: str(call[0])) == [
        ("all", *whole),
        ("deep", 1, 2),
        ("x", 1, 2),
        ("x = 2", 1, 2),
        ("y.z: 1 -> 2", 1, 2),
        ("z", 1, 2),
    ]
    assert seen == {(1, 2)}


@pytest.mark.lagging(False)
async def test_fields_are_only_in_the_ids_of_those_that_could_not_be_told_apart(
    operator: Operator,
    kex: Objects,
) -> None:
    async def fn(param: str, **_: Any) -> str:
        return param

    @kopf.on.create("kopfexamples", id="parent")
    async def parent(**_: Any) -> None:
        kopf.register(fn, id="f", field="spec.field", param="field")
        kopf.register(fn, id="f", field="spec.other", param="other")

    await operator.start_and_handle(kex, spec={"field": 1, "other": 2})
    obj = await kex.get()
    assert obj["status"] == {"parent/f": "field", "parent/f/spec.other": "other"}
