"""Memos: arbitrary values in memory, for the operator and for each object; the same for all of its handlers."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_finalizers
from tests.behaviour.running import Calls, Decorator, Operator


async def test_all_handlers_of_one_object_share_its_memo(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.event("kopfexamples")
    @kopf.on.create("kopfexamples", id="create1")
    @kopf.on.create("kopfexamples", id="create2")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    def fn(memo: kopf.Memo, name: str, **_: Any) -> None:
        memo.setdefault("names", []).append(name)
        calls.append((name, memo.names))

    await operator.start()
    for name in ("a", "b"):
        await kex.create_and_wait(name)
        await kex.change_and_wait(name, field="new")
        await kex.delete_and_wait(name)
    for name in ("a", "b"):
        memos = [names for owner, names in calls if owner == name]
        assert len(memos) > 5
        assert all(names is memos[0] for names in memos)
        assert set(memos[0]) == {name}


async def test_the_memo_of_the_operator_is_copied_to_objects(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.startup()
    def startup_fn(memo: kopf.Memo, **_: Any) -> None:
        memo.shared = []
        memo.value = "of the operator"

    kopf.on.cleanup()(lambda memo, **_: calls.append((memo.given, memo.shared, memo.value)))

    @kopf.on.create("kopfexamples")
    def create_fn(memo: kopf.Memo, name: str, **_: Any) -> None:
        calls.append((memo.given, [*memo.shared], memo.value))
        memo.shared.append(name)
        memo.value = f"of {name}"

    await operator.start(memo=kopf.Memo(given=True))
    await kex.create_and_wait("a")
    await kex.create_and_wait("b")
    await operator.stop()
    assert calls == [
        (True, [], "of the operator"),
        (True, ["a"], "of the operator"),
        (True, ["a", "b"], "of the operator"),
    ]


async def test_the_memo_of_the_operator_is_the_same_in_all_its_handlers(operator: Operator, calls: Calls) -> None:
    @kopf.on.startup()
    @kopf.on.cleanup()
    def fn(memo: kopf.Memo, activity: Any, **_: Any) -> None:
        calls.append((activity.value, memo))

    @kopf.on.login()
    def login_fn(memo: kopf.Memo, **kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append(("login", memo))
        return kopf.login_with_kubeconfig(**kwargs)

    kopf.on.event("kopfexamples")(lambda **_: None)
    memo = kopf.Memo()
    await operator.start(memo=memo)
    await operator.stop()
    assert {what for what, _ in calls} == {"startup", "login", "cleanup"}
    assert all(used is memo for _, used in calls)


async def test_later_changes_of_the_operator_memo_are_not_replicated_but_shared_values_are_shared(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """Neither to the objects that have put something into their memos, nor to those that have not."""

    @kopf.on.create("kopfexamples")
    def create_fn(memo: kopf.Memo, name: str, **_: Any) -> None:
        if name == "filled":
            memo.own = True

    @kopf.on.update("kopfexamples")
    @kopf.daemon("kopfexamples", labels={"daemon": "yes"})
    def fn(memo: kopf.Memo, name: str, **_: Any) -> None:
        calls.append((name, memo.value, memo.shared, memo.get("added")))

    memo = kopf.Memo(value="old", shared=["old"])
    await operator.start(memo=memo)
    for name in ("empty", "filled"):
        await kex.create_and_wait(name)
    memo.value = "new"
    memo.added = "new"
    memo.shared.append("new")
    for name in ("empty", "filled"):
        for field in ("new1", "new2"):
            await kex.change_and_wait(name, field=field)
        assert calls == [(name, "old", ["old", "new"], None)] * 2
        calls.items.clear()
        await kex.merge({"metadata": {"labels": {"daemon": "yes"}}}, name)
        await calls.wait_length(2)
        assert calls == [(name, "old", ["old", "new"], None)] * 2
        calls.items.clear()


@dataclasses.dataclass
class PlainContext:
    """A class of a user, with no support of copying but that of Python."""

    shared: list[str]
    value: str = "of the operator"


async def test_custom_classes_are_copied_for_each_object(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    def fn(memo: PlainContext, name: str, **_: Any) -> None:
        calls.append((memo, memo.value))
        memo.value = f"of {name}"
        memo.shared.append(name)

    context = PlainContext(shared=[])
    await operator.start(memo=context)
    for name in ("a", "b"):
        await kex.create_and_wait(name)
        await kex.change_and_wait(name, field="new")
    assert [value for _, value in calls] == ["of the operator", "of a", "of the operator", "of b"]
    assert calls[0][0] is calls[1][0] is not calls[2][0]
    assert context == PlainContext(shared=["a", "a", "b", "b"])


@dataclasses.dataclass
class CustomContext:
    """A class of a user: one instance of it for all objects."""

    template: str

    def __copy__(self) -> CustomContext:
        return self


async def test_custom_classes(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.create("kopfexamples")(lambda memo, **kwargs: calls.append((memo, memo.template.format(**kwargs))))
    context = CustomContext(template="Hello, {name}!")
    await operator.start(memo=context)
    await kex.create_and_wait("a")
    await kex.create_and_wait("b")
    assert calls == [(context, "Hello, a!"), (context, "Hello, b!")]
    assert all(memo is context for memo, _ in calls)


async def test_memos_live_as_long_as_the_operator(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.resume("kopfexamples")
    def fn(memo: kopf.Memo, reason: kopf.Reason, **_: Any) -> None:
        calls.append((reason.value, memo.get("counter")))
        memo.counter = memo.get("counter", 0) + 1

    await operator.start_and_handle(kex)
    await operator.restart()
    await calls.wait_length(2)
    operator.cluster.faults.compact()
    operator.cluster.faults.cut_watches()
    await kex.change_and_wait(field="new")
    assert calls == [("create", None), ("resume", None), ("update", 1)]


@pytest.mark.fastforward
async def test_the_documented_example(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.event("kopfexamples")
    async def pinged(memo: kopf.Memo, **_: Any) -> None:
        memo.counter = memo.get("counter", 0) + 1

    @kopf.timer("kopfexamples", interval=10)
    async def tick(memo: kopf.Memo, **_: Any) -> None:
        calls.append(memo.counter)
        memo.counter = 0

    await operator.start_and_call(kex, calls, times=2)
    for n in range(5):
        await kex.merge({"spec": {"field": f"new{n}"}})
    await calls.wait(lambda items: 5 in items)


@pytest.mark.parametrize("decorator", [kopf.daemon, kopf.timer], ids=["daemon", "timer"])
@pytest.mark.parametrize("first", ["background", "handler"])
async def test_they_share_the_memo_with_handlers_whoever_writes_first(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    decorator: Decorator,
    first: str,
) -> None:
    """Even if nothing was in the memo for a long time."""

    @decorator("kopfexamples")
    async def background_fn(memo: kopf.Memo, **_: Any) -> None:
        if first == "background":
            memo.value = "of the background"
        calls.append("started")
        while "answer" not in memo:
            await asyncio.sleep(0.001)
        calls.append((memo.get("value"), memo.answer))

    @kopf.on.update("kopfexamples")
    async def update_fn(memo: kopf.Memo, **_: Any) -> None:
        memo.setdefault("value", "of the handler")
        memo.answer = "updated"

    await operator.start_and_call(kex, calls)
    await kex.wait_handled()
    await kex.merge({"spec": {"field": "new"}})
    await calls.wait_length(2)
    assert calls[1] == ("of the background" if first == "background" else "of the handler", "updated")


async def test_the_filters_and_the_indexing_functions_share_it_too(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.index("kopfexamples")
    async def idx(memo: kopf.Memo, **_: Any) -> None:
        memo.indexed = memo.get("indexed", 0) + 1

    kopf.on.create("kopfexamples", when=lambda memo, **_: memo.indexed > 0)(
        calls.noting(lambda memo, **_: memo.indexed)
    )
    await operator.start_and_handle(kex)
    assert len(calls) == 1


async def test_daemons_after_a_filter_flip_have_the_same_memo(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples", labels={"match": "yes"})
    async def fn(memo: kopf.Memo, stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        memo.starts = memo.get("starts", 0) + 1
        calls.append(memo.starts)
        await stopped.wait()

    await operator.start_and_create(kex, labels={"match": "yes"})
    for n in range(1, 4):
        await calls.wait_length(n)
        await kex.wait(get_finalizers)
        await kex.merge({"metadata": {"labels": {"match": "no"}}})
        await kex.wait(lambda obj: obj["metadata"]["labels"]["match"] == "no" and not get_finalizers(obj))
        await kex.merge({"metadata": {"labels": {"match": "yes"}}})
    await calls.wait_length(4)
    assert calls == [1, 2, 3, 4]


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.daemon], ids=["handler", "daemon"])
async def test_recreated_objects_have_new_memos(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    decorator: Decorator,
) -> None:
    @decorator("kopfexamples")
    async def fn(memo: kopf.Memo, stopped: kopf.AsyncDaemonStopperChecker | None = None, **_: Any) -> None:
        calls.append(dict(memo))
        memo.value = "something"
        if stopped is not None:
            await stopped.wait()

    await operator.start()
    for n in range(1, 4):
        obj = await kex.create()
        await calls.wait_length(n)
        await kex.delete()
        await kex.wait_gone(uid=obj["metadata"]["uid"])
    assert calls == [{}, {}, {}]
