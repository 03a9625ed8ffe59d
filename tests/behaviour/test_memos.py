"""Memos: arbitrary values in memory, for each object and for the operator."""

from __future__ import annotations

import dataclasses
from typing import Any

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Operator


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
