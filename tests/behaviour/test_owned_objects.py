"""Owned objects: the handlers of an object are called when what it owns is changed, if they ask for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf._values.objects import KubeObject
from tests.behaviour.objects import Obj, Objects
from tests.behaviour.peerings import PeeringObject
from tests.behaviour.running import Calls, Logs, Operator, do_nothing

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


def refer(parent: Obj) -> list[Obj]:
    """Make the owner references of a child."""
    names = {"name": parent["metadata"]["name"], "uid": parent["metadata"]["uid"]}
    return [{"apiVersion": parent["apiVersion"], "kind": parent["kind"], **names}]


def note(what: str, calls: Calls) -> Callable[..., Any]:
    async def fn(reason: str, name: str, **_: Any) -> None:
        calls.append((what, str(reason), name))

    return fn


async def test_changes_of_children_call_those_who_ask(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
) -> None:
    """Only those, and only for the very object that owns the changed one."""
    kopf.on.create("kopfexamples", id="both", owns="kopfstatusexamples")(note("both", calls))
    kopf.on.update("kopfexamples", id="both", owns=["kopfstatusexamples"])(note("both", calls))
    kopf.on.create("kopfexamples", id="other")(note("other", calls))
    kopf.on.resume("kopfexamples", id="resume")(note("resume", calls))
    parent = await operator.start_and_handle(kex, "one")
    await kex.create_and_wait("two")
    assert calls == [
        ("both", "create", "one"),
        ("other", "create", "one"),
        ("both", "create", "two"),
        ("other", "create", "two"),
    ]
    version = parent["metadata"]["resourceVersion"]

    child = await sub.create("child", ownerReferences=refer(parent))
    await calls.wait_length(5)
    await asyncio.sleep(10)
    assert (await sub.get("child"))["metadata"] == child["metadata"], "the owned are left alone"
    await sub.merge({"status": {"ready": True}}, "child", subresource="status")
    await calls.wait_length(6)
    await sub.merge({"metadata": {"ownerReferences": None}}, "child")
    await calls.wait_length(7)
    await sub.merge({"spec": {"field": "other"}}, "child")  # it has no owner anymore
    await sub.create("lost", ownerReferences=refer(parent))
    await calls.wait_length(8)
    await sub.delete("lost")
    await calls.wait_length(9)
    assert calls.items[4:] == [("both", "resume", "one")] * 5
    assert (await kex.get("one"))["metadata"]["resourceVersion"] == version, "nothing is written for that"


async def test_those_who_own_are_called_at_the_start(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
) -> None:
    """What is owned could have changed while the operator was down. The children that are there do not matter twice."""
    kopf.on.create("kopfexamples", id="create", owns="kopfstatusexamples")(note("create", calls))
    kopf.on.create("kopfexamples", id="other")(note("other", calls))
    parent = await operator.start_and_handle(kex)
    await operator.stop()
    await sub.create_all(["before"])
    await sub.merge({"metadata": {"ownerReferences": refer(parent)}}, "before")
    await operator.start()
    await calls.wait_length(3)
    await sub.merge({"spec": {"field": "other"}}, "before")
    await calls.wait_length(4)
    assert calls == [
        ("create", "create", "obj"),
        ("other", "create", "obj"),
        ("create", "resume", "obj"),
        ("create", "resume", "obj"),
    ]


async def test_waiting_handlers_are_retried_when_a_child_has_changed(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
) -> None:
    """What they wait for is just that, usually; all others wait for as long as they want."""
    ready = asyncio.Event()

    @kopf.on.create("kopfexamples", owns="kopfstatusexamples", backoff=7777)
    async def waiting(retry: int, **_: Any) -> None:
        calls.append(("waiting", retry))
        if not ready.is_set():
            raise kopf.TemporaryError("not ready", delay=100_000)

    @kopf.on.create("kopfexamples")
    async def other(retry: int, **_: Any) -> None:
        calls.append(("other", retry))
        if not retry:
            raise kopf.TemporaryError("later", delay=10_000)

    started = asyncio.get_running_loop().time()
    parent = await operator.start_and_create(kex)
    await calls.wait_length(2)
    await sub.create("child", ownerReferences=refer(parent))
    await calls.wait_length(3)
    assert calls[2] == ("waiting", 1)
    assert asyncio.get_running_loop().time() - started < 5000
    ready.set()
    await sub.merge({"status": {"ready": True}}, "child", subresource="status")
    await calls.wait_length(4)
    assert calls[3] == ("waiting", 2)
    assert asyncio.get_running_loop().time() - started < 5000
    await kex.wait_handled()
    assert calls.items[4:] == [("other", 1)]


async def test_changes_amid_a_call_lead_to_one_more_call(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
) -> None:
    going_on = asyncio.Event()

    @kopf.on.create("kopfexamples", owns="kopfstatusexamples")
    async def fn(**_: Any) -> None:
        calls.append("begun")
        await going_on.wait()

    parent = await operator.start_and_create(kex)
    await calls.wait_length(1)
    await sub.create("child", ownerReferences=refer(parent))
    for number in range(5):
        await sub.merge({"spec": {"number": number}}, "child")
    await asyncio.sleep(5)
    going_on.set()
    await calls.wait_length(2)
    await kex.wait_handled()
    await asyncio.sleep(60)
    assert len(calls) == 2


async def test_handlers_see_their_own_writes_when_woken(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
) -> None:
    """However late the own changes come back from the server."""

    @kopf.on.create("kopfexamples", owns="kopfstatusexamples")
    async def fn(status: Any, patch: kopf.Patch, **_: Any) -> None:
        calls.append(status.get("count", 0))
        patch.status["count"] = status.get("count", 0) + 1

    parent = await operator.start_and_handle(kex)
    await sub.create("child", ownerReferences=refer(parent))
    await calls.wait_length(2)
    for number in range(3):
        await sub.merge({"spec": {"number": number}}, "child")
        await calls.wait_length(3 + number)
    assert calls == [0, 1, 2, 3, 4]


async def test_owners_that_are_being_deleted_are_not_woken(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    kopf.on.create("kopfexamples", id="fn", owns="kopfstatusexamples")(note("fn", calls))
    kopf.on.delete("kopfexamples", id="gone")(note("gone", calls))
    parent = await operator.start_and_handle(kex, finalizers=["example.com/other"])
    await sub.create("child", ownerReferences=refer(parent))
    await calls.wait_length(2)
    await kex.delete()
    await calls.wait_length(3)
    await sub.merge({"spec": {"field": "other"}}, "child")
    await asyncio.sleep(10)
    assert calls == [("fn", "create", "obj"), ("fn", "resume", "obj"), ("gone", "delete", "obj")]
    logs.check()


@pytest.mark.parametrize("lifecycle", [kopf.lifecycles.all_at_once, kopf.lifecycles.one_by_one])
async def test_subhandlers_are_called_again_too(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    lifecycle: Any,
) -> None:
    """Also if they are done with this very change, which is not over because of another handler."""

    @kopf.on.create("kopfexamples", owns="kopfstatusexamples")
    async def fn(**_: Any) -> None:
        for name in ("a", "b"):

            @kopf.subhandler(id=name)
            async def item_fn(item: str = name, **_: Any) -> None:
                calls.append(item)

    @kopf.on.create("kopfexamples")
    async def slow(retry: int, **_: Any) -> None:
        if not retry:
            raise kopf.TemporaryError("later", delay=1000)

    await operator.start(lifecycle=lifecycle)
    parent = await kex.create()
    await calls.wait_length(2)
    await sub.create("child", ownerReferences=refer(parent))
    await calls.wait_length(4)
    await kex.wait_handled()
    await sub.merge({"spec": {"field": "other"}}, "child")
    await calls.wait_length(6)
    await asyncio.sleep(10)
    assert calls == ["a", "b"] * 3


async def test_filters_apply_as_always(operator: Operator, kex: Objects, sub: Objects, calls: Calls) -> None:
    kopf.on.create("kopfexamples", id="fn", labels={"some": "label"}, owns="kopfstatusexamples")(note("fn", calls))
    parent = await operator.start_and_handle(kex, labels={"some": "label"})
    await kex.merge({"metadata": {"labels": {"some": "other"}}})
    await asyncio.sleep(10)
    await sub.create("child", ownerReferences=refer(parent))
    await asyncio.sleep(10)
    assert calls == [("fn", "create", "obj")]
    await kex.merge({"metadata": {"labels": {"some": "label"}}})
    await asyncio.sleep(10)
    await sub.merge({"spec": {"field": "other"}}, "child")
    await calls.wait_length(2)
    assert calls == [("fn", "create", "obj"), ("fn", "resume", "obj")]


async def test_what_happens_during_a_pause_is_not_lost(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    peering: PeeringObject,
) -> None:
    kopf.on.create("kopfexamples", id="fn", owns="kopfstatusexamples")(note("fn", calls))
    await operator.start(standalone=False)
    parent = await kex.create_and_wait()
    await peering.put("other", priority=100, lifetime=1e9)
    await asyncio.sleep(10)
    await sub.create("child", ownerReferences=refer(parent))
    await sub.create("gone", ownerReferences=refer(parent))
    await sub.delete("gone")
    await asyncio.sleep(10)
    assert len(calls) == 1
    await peering.remove("other")
    await calls.wait_length(2)
    await asyncio.sleep(10)
    assert calls == [("fn", "create", "obj"), ("fn", "resume", "obj")]


async def test_handlers_that_are_declared_later_are_called_for_what_is_there(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    registry: kopf.OperatorRegistry,
) -> None:
    kopf.on.create("kopfexamples", id="create")(note("create", calls))
    parent = await operator.start_and_handle(kex)
    await sub.create("child", ownerReferences=refer(parent))
    await asyncio.sleep(10)
    kopf.on.resume("kopfexamples", id="fn", owns="kopfstatusexamples")(note("fn", calls))
    await calls.wait_length(2)
    await sub.merge({"spec": {"field": "other"}}, "child")
    await calls.wait_length(3)
    assert calls == [("create", "create", "obj"), ("fn", "resume", "obj"), ("fn", "resume", "obj")]


@pytest.mark.parametrize(("owns", "error"), [(5, "owns= must be"), ([5], "owns= must be"), ("", "cannot be empty")])
def test_wrong_names_of_the_owned(owns: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error):
        kopf.on.create("kopfexamples", owns=owns)(do_nothing)


def test_nothing_is_kept_where_nothing_is_owned() -> None:
    """The latest states are only for those who can be woken."""
    from kopf._controller.changes.object_memory import ObjectMemory

    memory = ObjectMemory()
    assert memory.is_blank
    memory.latest = KubeObject.from_dict({"metadata": {"name": "obj"}})
    assert not memory.is_blank
