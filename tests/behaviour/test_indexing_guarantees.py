"""What can be relied upon: indices are full before anything else is handled, are everywhere, and are safe to read."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator, do_nothing


def make(plural: str = "kopfexamples", **options: Any) -> None:
    @kopf.index(plural, **options)
    def idx(name: str, **_: Any) -> dict[str, str]:
        return {"all": name}


def read(idx: kopf.Index[Any, Any]) -> list[str]:
    return sorted(idx.get("all", []))


async def test_they_are_full_before_any_handler_of_any_resource(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
) -> None:
    make()
    expected = {("kopfstatusexamples", "fn0", "obj")} | {("kopfexamples", "fn0", f"obj{i}") for i in range(10)}
    for number, decorator in enumerate((kopf.on.event, kopf.on.create, kopf.on.resume, kopf.daemon, kopf.timer)):
        expected |= {(plural, f"fn{number}", name) for plural, _, name in expected}
        for plural in ("kopfexamples", "kopfstatusexamples"):
            decorator(plural, id=f"fn{number}", param=(plural, f"fn{number}"))(
                calls.noting(lambda param, name, idx, **_: ((*param, name), read(idx)))
            )
    operator.set("watching.chunk_size", 3)
    operator.cluster.faults.inject(action="delay", latency=0.05, verb="list", resource="kopfexamples", times=2)
    await kex.create_all(f"obj{i}" for i in range(10))
    await sub.create()
    await operator.start()
    await calls.wait(lambda items: {call for call, _ in items} == expected)
    assert all(names == [f"obj{i}" for i in range(10)] for _, names in calls)


async def test_denied_resources_do_not_hold_the_others_forever(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    logs.expected.append("Cannot watch kopfstatusexamples.v1.kopf.dev")
    make("kopfstatusexamples")
    make("absent-resource", id="absent")

    kopf.on.create("kopfexamples", id="fn")(calls.noting(lambda idx, absent, **_: (read(idx), read(absent))))
    operator.cluster.faults.inject(403, resource="kopfstatusexamples")
    await operator.start_and_handle(kex)
    assert calls == [([], [])]
    operator.cluster.faults.clear()


async def test_they_are_in_the_kwargs_of_all_handlers_and_callbacks(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    make()

    def note(what: str, **kwargs: Any) -> bool:
        calls.append((what, type(kwargs.get("idx")).__name__))
        return True

    for what, activity in {"startup": kopf.on.startup, "cleanup": kopf.on.cleanup, "login": kopf.on.login}.items():

        @activity(id=what)
        async def activity_fn(what: str = what, **kwargs: Any) -> None:
            note(what, **kwargs)

    for what, decorator in {
        "event": kopf.on.event,
        "create": kopf.on.create,
        "update": kopf.on.update,
        "delete": kopf.on.delete,
        "resume": kopf.on.resume,
        "daemon": kopf.daemon,
        "timer": kopf.timer,
        "index": kopf.index,
    }.items():

        @decorator(
            "kopfexamples",
            id=what,
            param=what,
            when=lambda param, **kwargs: note(f"when of {param}", **kwargs),
            labels={"label": lambda value, param, **kwargs: note(f"label of {param}", **kwargs)},
        )
        async def fn(param: str, **kwargs: Any) -> None:
            note(param, **kwargs)
            if param == "create":

                @kopf.subhandler()
                async def sub_fn(**kwargs: Any) -> None:
                    note("subhandler", **kwargs)

    def get_delay(**kwargs: Any) -> float:
        note("initial_delay", **kwargs)
        return 0

    kopf.daemon("kopfexamples", initial_delay=get_delay)(do_nothing)

    def check(value: Any, **kwargs: Any) -> bool:
        return note("new", **kwargs)

    @kopf.on.field("kopfexamples", field="spec.field", new=check)
    async def field_fn(**kwargs: Any) -> None:
        note("field", **kwargs)

    await operator.find_and_handle(kex, "before", labels={"label": "x"})
    await kex.create_and_wait("obj", labels={"label": "x"})
    await kex.change_and_wait(field="new")
    await calls.wait(lambda items: {"daemon", "timer"} <= {what for what, _ in items})
    await kex.delete_and_wait()
    await operator.stop()
    kinds = ["event", "create", "update", "delete", "resume", "daemon", "timer", "index"]
    expected = {
        *kinds,
        *(f"when of {kind}" for kind in kinds),
        *(f"label of {kind}" for kind in kinds),
        "startup",
        "cleanup",
        "login",
        "subhandler",
        "initial_delay",
        "field",
        "new",
    }
    assert {what for what, _ in calls} == expected
    assert {cls for _, cls in calls} == {"Index"}


async def test_they_override_the_kwargs_of_the_framework(operator: Operator, kex: Objects, calls: Calls) -> None:
    names = {"body", "patch", "retry", "param", "stopped", "logger", "spec", "memo", "old"}

    def note(kind: str) -> Any:
        return calls.noting(lambda **kwargs: (kind, {name for name in names if isinstance(kwargs[name], kopf.Index)}))

    for name in names:
        make(id=name)
    for decorator in (kopf.on.event, kopf.on.update, kopf.daemon, kopf.timer, kopf.on.startup):
        args = () if decorator is kopf.on.startup else ("kopfexamples",)
        decorator(*args, id=decorator.__name__)(note(decorator.__name__))
    kopf.on.update("kopfexamples", field="spec.field", id="field")(note("field"))
    await operator.find_and_handle(kex)
    await kex.merge({"spec": {"field": "new"}})
    await calls.wait(lambda items: len({kind for kind, _ in items}) == 6)
    assert all(found == names for _, found in calls)


async def test_filters_by_fields_do_not_affect_the_name(operator: Operator, kex: Objects, calls: Calls) -> None:
    make(field="spec.field", value="value")

    kopf.on.create("kopfexamples", id="fn")(
        calls.noting(lambda **kwargs: read(kwargs["idx"]) if "idx" in kwargs else sorted(kwargs))
    )
    await operator.start_and_handle(kex, "other", spec={"field": "other"})
    await kex.create_and_wait()
    assert calls == [[], ["obj"]]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_the_limit_of_workers_does_not_matter(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    kind: str,
) -> None:
    make()

    def sync_fn(idx: kopf.Index[Any, Any], **_: Any) -> None:
        calls.append(len(read(idx)))

    async_fn = calls.noting(lambda idx, **_: len(read(idx)))
    kopf.on.create("kopfexamples", id="fn")(sync_fn if kind == "sync" else async_fn)
    operator.set("queueing.worker_limit", 1)
    await kex.create_all(f"obj{i}" for i in range(50))
    await operator.start()
    await calls.wait_length(50)
    assert calls == [50] * 50


async def test_a_hung_handler_does_not_hold_the_indexing(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
) -> None:
    make()

    @kopf.on.create("kopfexamples")
    async def hung_fn(**_: Any) -> None:
        await allowed.wait()

    @kopf.on.create("kopfstatusexamples", id="fn")
    async def fn(idx: kopf.Index[Any, Any], **_: Any) -> None:
        while read(idx) != ["a", "b"]:
            await asyncio.sleep(0.001)
        calls.append("seen")

    allowed = asyncio.Event()
    operator.set("queueing.worker_limit", 1)
    await operator.start(watching=("kopfexamples", "kopfstatusexamples"))
    await kex.create("a")
    await kex.create("b")
    await sub.create()
    await calls.wait_length(1)
    allowed.set()


async def test_iterating_while_it_changes(operator: Operator, kex: Objects, sub: Objects, calls: Calls) -> None:
    """Keys and values that disappear in the middle of an iteration are no errors."""

    @kopf.index("kopfexamples")
    def idx(name: str, **_: Any) -> Any:
        return {name: name, "all": name}

    @kopf.on.create("kopfstatusexamples", id="fn")
    async def fn(idx: kopf.Index[Any, Any], **_: Any) -> None:
        iterators: list[Any] = [iter(idx), iter(idx.keys()), iter(idx.values()), iter(idx.items()), iter(idx["all"])]
        for iterator in iterators:
            next(iterator)
        for i in range(10):
            await kex.delete(f"obj{i}")
        while idx:
            await asyncio.sleep(0.001)
        calls.append([sum(1 for _ in iterator) for iterator in iterators])

    await kex.create_all(f"obj{i}" for i in range(10))
    await operator.start(watching=("kopfexamples", "kopfstatusexamples"))
    await sub.create()
    await calls.wait_length(1)
    assert all(count <= 10 for count in calls[0])


async def test_reading_from_threads_while_it_changes(operator: Operator, kex: Objects, calls: Calls) -> None:
    """As documented: a thread is started in the startup handler, and reads the index it has got there."""

    @kopf.index("kopfexamples")
    def idx(name: str, spec: kopf.Spec, **_: Any) -> Any:
        return {spec["field"]: name, "all": name, name: spec["field"]}

    def read_all(index: kopf.Index[Any, Any]) -> None:
        try:
            while not ended.is_set():
                dict(index.items())
                for store in index.values():
                    list(store)
                for key in index:
                    list(index.get(key, []))
                repr(index)
                len(index)
                "all" in index  # noqa: B015  # only that it does not fail
        except BaseException as e:
            calls.append(e)

    @kopf.on.startup()
    async def startup_fn(idx: kopf.Index[Any, Any], **_: Any) -> None:
        thread = threading.Thread(target=read_all, args=(idx,))
        thread.start()
        threads.append(thread)

    threads: list[threading.Thread] = []
    ended = threading.Event()
    try:
        await operator.start()
        for _ in range(5):
            await kex.create_all(f"obj{i}" for i in range(10))
            for i in range(10):
                await kex.merge({"spec": {"field": f"new{i}"}}, f"obj{i}")
            for i in range(10):
                await kex.delete(f"obj{i}")
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert calls == []


async def test_restarted_operators_begin_with_empty_indices(operator: Operator, kex: Objects, calls: Calls) -> None:
    make()

    fn = calls.noting(lambda idx, activity, **_: (activity.value, read(idx)))
    kopf.on.cleanup(id="fn")(fn)
    kopf.on.startup(id="fn")(fn)
    kopf.on.create("kopfexamples")(do_nothing)
    await operator.start_and_handle(kex)
    await operator.restart()
    await operator.stop()
    assert calls.items[:3] == [("startup", []), ("cleanup", ["obj"]), ("startup", [])]
