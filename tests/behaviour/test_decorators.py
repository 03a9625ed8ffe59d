"""Several decorators on one function: which of them are separate handlers, and which are the same one."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Decorator, Operator


@pytest.mark.parametrize("options", [{}, {"field": "spec.field"}], ids=["object", "field"])
async def test_creation_and_resuming_by_one_function(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    options: dict[str, Any],
) -> None:
    @kopf.on.resume("kopfexamples", **options)
    @kopf.on.create("kopfexamples", **options)
    def fn(name: str, reason: kopf.Reason, **_: Any) -> None:
        calls.append((name, reason.value))

    await kex.create("existing")
    await operator.start()
    await kex.wait_handled("existing")
    await kex.create_and_wait("new")
    assert calls == [("existing", "create"), ("new", "create")]
    await operator.restart()
    await calls.wait_length(4)
    assert sorted(calls.items[2:]) == [("existing", "resume"), ("new", "resume")]


async def test_a_function_is_called_once_for_each_of_its_fields(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.update("kopfexamples", param=10, field="spec.field")
    @kopf.on.update("kopfexamples", param=1, field="spec")
    def fn(param: int, old: Any, new: Any, diff: kopf.Diff, **_: Any) -> None:
        calls.append((param, dict(old) if param == 1 else old, dict(new) if param == 1 else new, diff))

    await operator.start_and_handle(kex)
    await kex.change_and_wait(field="new")
    assert sorted(calls) == [
        (1, {"field": "value"}, {"field": "new"}, (("change", ("field",), "value", "new"),)),
        (10, "value", "new", (("change", (), "value", "new"),)),
    ]


async def test_a_function_with_one_id_is_called_once_for_one_occasion(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", labels={"l": "v"})
    @kopf.on.create("kopfexamples", annotations={"a": "w"})
    @kopf.on.create("kopfexamples")
    def fn(**_: Any) -> None:
        calls.append("called")

    await operator.start_and_handle(kex, labels={"l": "v"}, annotations={"a": "w"})
    assert calls == ["called"]


@pytest.mark.parametrize(
    "decorator", [kopf.on.event, kopf.on.create, kopf.daemon, kopf.timer], ids=lambda decorator: decorator.__name__
)
async def test_any_of_the_declarations_can_match(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    decorator: Decorator,
) -> None:
    """With different filters of the same function, it is called if any of them matches, and once if all do."""

    @decorator("kopfexamples", labels={"a": "yes"})
    @decorator("kopfexamples", labels={"b": "yes"})
    async def fn(name: str, type: str | None = "ADDED", **_: Any) -> None:
        if type == "ADDED":
            calls.append((name, "fn"))

    @kopf.on.create("kopfexamples")
    async def parent(name: str, **_: Any) -> None:
        async def sub(**_: Any) -> None:
            calls.append((name, "sub"))

        kopf.register(sub, labels={"a": "yes"})
        kopf.register(sub, labels={"b": "yes"})

    await operator.start_and_handle(kex, "none")
    for name in ("a", "b", "ab"):
        await kex.create_and_wait(name, labels=dict.fromkeys(name, "yes"))
        await calls.wait(lambda items: len([who for who, _ in items if who == name]) == 2)  # noqa: B023
        await kex.change_and_wait(name, field="new")
    assert sorted(calls) == [(name, what) for name in ("a", "ab", "b") for what in ("fn", "sub")]


async def test_static_methods(operator: Operator, kex: Objects, calls: Calls) -> None:
    class Namespace:
        @staticmethod
        @kopf.on.create("kopfexamples", id="inner")
        def inner(name: str, **_: Any) -> None:
            calls.append(("inner", name))

        @kopf.on.create("kopfexamples", id="outer")
        @staticmethod
        async def outer(name: str, **_: Any) -> None:
            calls.append(("outer", name))

    await operator.start_and_handle(kex)
    assert calls == [("inner", "obj"), ("outer", "obj")]


async def test_a_function_with_different_ids_is_called_for_each_of_them(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="b", param="b")
    @kopf.on.create("kopfexamples", id="a", param="a")
    def fn(param: str, **_: Any) -> str:
        calls.append(param)
        return param

    obj = await operator.start_and_handle(kex)
    assert calls == ["a", "b"]
    assert obj["status"] == {"a": "a", "b": "b"}


async def test_one_function_for_all_reasons_runs_for_each_of_them(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """In particular, the progress of one reason is not mistaken for that of another."""

    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    def fn(reason: kopf.Reason, **_: Any) -> None:
        calls.append(reason.value)

    @kopf.on.create("kopfexamples", id="another")
    @kopf.on.update("kopfexamples", id="another")
    @kopf.on.delete("kopfexamples", id="another")
    def another(**_: Any) -> None:
        pass

    await operator.start_and_handle(kex)
    await kex.change_and_wait(field="new")
    await kex.delete_and_wait()
    assert calls == ["create", "update", "delete"]


async def test_different_resources_by_one_function(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", param="first")
    @kopf.on.create("kopf.dev", "v1", "kopfstatusexamples", param="second")
    def fn(param: str, resource: kopf.Resource, **_: Any) -> None:
        calls.append((param, resource.plural))

    await operator.start(watching=("kopfexamples", "kopfstatusexamples"))
    await kex.create_and_wait()
    await sub.create_and_wait()
    assert calls == [("first", "kopfexamples"), ("second", "kopfstatusexamples")]


async def test_functions_remain_themselves() -> None:
    def fn(**_: Any) -> str:
        return "result"

    for decorator in (kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume, kopf.on.event):
        assert decorator("kopfexamples")(fn) is fn
    for activity in (kopf.on.startup, kopf.on.cleanup, kopf.on.login):
        assert activity()(fn) is fn
    assert fn() == "result"
