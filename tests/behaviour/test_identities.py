"""Which handlers are the same, and which are not: methods, closures, and functions of the same name."""

from __future__ import annotations

import types
from typing import Any

import kopf
from tests.behaviour.conftest import Load
from tests.behaviour.objects import Objects, get_progress, has_progress
from tests.behaviour.running import Calls, Logs, Operator


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
    await kex.create(annotations={"kopf.zalando.org/Database.create": record})
    await operator.start()
    await kex.wait_handled()
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
