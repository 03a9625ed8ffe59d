"""Which handlers are the same, and which are not: methods, closures, and several decorators on one function."""

from __future__ import annotations

import types
from typing import Any

import pytest

import kopf
from tests.behaviour.conftest import Load
from tests.behaviour.objects import Objects, get_progress, has_progress
from tests.behaviour.running import Calls, Decorator, Logs, Operator


class Database:
    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def create(self, **_: Any) -> str:
        self.calls.append("database")
        return "database"


class User(Database):
    def create(self, **_: Any) -> str:
        self.calls.append("user")
        return "user"


async def test_methods_of_different_classes_are_different_handlers(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples")(Database(calls).create)
    kopf.on.create("kopfexamples")(User(calls).create)
    obj = await operator.start_and_handle(kex)
    assert calls == ["database", "user"]
    assert obj["status"] == {"Database.create": "database", "User.create": "user"}
    await logs.wait("Creation is processed: 2 succeeded; 0 failed.")
    assert not logs.find(".*have the same id.*")


async def test_closures_have_the_names_that_the_original_has_persisted(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    def factory(name: str) -> Any:
        def fn(retry: int, **_: Any) -> None:
            calls.append((name, retry))
            raise kopf.TemporaryError("not yet", delay=60)

        fn.__qualname__ = f"{name}.<locals>.fn"
        return fn

    def parent(**_: Any) -> None:
        @kopf.subhandler()
        def sub(**_: Any) -> None:
            raise kopf.TemporaryError("not yet", delay=60)

    parent.__qualname__ = "parent"
    for fn in (factory("one"), factory("two"), parent):
        kopf.on.create("kopfexamples")(fn)
    await operator.start_and_create(kex)
    sub = "parent.test_closures_have_the_names_that_the_original_has_persisted._locals_.parent._locals_.sub"
    obj = await kex.wait(lambda obj: len(get_progress(obj)) >= 4)
    assert has_progress("one._locals_.fn", "two._locals_.fn", "parent")(obj)
    assert calls == [("one", 0), ("two", 0)]
    assert any(key.startswith(sub[:50]) for key in get_progress(obj))


async def test_what_the_original_has_begun_under_the_qualified_names_is_continued(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples")(Database(calls).create)
    kopf.on.create("kopfexamples")(User(calls).create)
    record = '{"started":"2026-11-22T01:36:46.913216+00:00","purpose":"create","retries":1,"success":true}'
    await operator.find_and_handle(kex, annotations={"kopf.zalando.org/Database.create": record})
    assert calls == ["user"]


async def test_different_functions_with_one_id_are_warned_of(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    load: Load,
) -> None:
    one = load("""
        import kopf

        @kopf.on.create("kopfexamples", id="same")
        def one(**_): ...
    """)
    two = _load_another(load)
    kopf.on.login(registry=kopf.get_default_registry())(kopf.login_with_kubeconfig)
    await operator.start(registry=kopf.get_default_registry())
    record = await logs.wait(".*have the same id.*")
    message = record.getMessage()
    assert "'same'" in message
    assert f"{one.__file__}:4" in message
    assert f"{two.__file__}:4" in message
    assert "id=" in message
    assert record.levelname == "WARNING"
    assert len(logs.find(".*have the same id.*")) == 1


def _load_another(load: Load) -> types.ModuleType:
    return load("""
        import kopf

        @kopf.on.create("kopfexamples", id="same")
        def two(**_): ...
    """)


async def test_one_function_decorated_several_times_is_not_warned_of(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    @kopf.on.resume("kopfexamples")
    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    @kopf.on.update("kopfexamples", field="spec.x")
    def fn(**_: Any) -> None:
        calls.append("called")

    await operator.start_and_handle(kex)
    assert not logs.find(".*have the same id.*")


async def test_different_functions_with_one_id_are_counted_as_the_one_that_is_called(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="same")(calls.noting("one"))
    kopf.on.create("kopfexamples", id="same")(calls.noting("two"))
    await operator.start_and_handle(kex)
    await logs.wait("Creation is processed: 1 succeeded; 0 failed.")
    assert calls == ["one"]


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

    await operator.find_and_handle(kex, "existing")
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
