"""Deletion: it overtakes everything else, and is handled once; what comes after it under its name is another object."""

from __future__ import annotations

import asyncio
import collections
import os
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Objects, get_essence, get_progress, has_progress, is_handled
from tests.behaviour.running import Calls, Logs, Operator, now

pytestmark = pytest.mark.lagging


@pytest.mark.fastforward
@pytest.mark.parametrize("reason", ["create", "update", "resume"])
async def test_it_overtakes_pending_retries(operator: Operator, kex: Objects, calls: Calls, reason: str) -> None:
    decorator = {"create": kopf.on.create, "update": kopf.on.update, "resume": kopf.on.resume}[reason]

    decorator("kopfexamples", id="pending")(calls.noting(reason, error=kopf.TemporaryError("not yet", delay=3600)))
    kopf.on.delete("kopfexamples", id="delete_fn")(calls.noting("delete"))
    if reason == "resume":
        await kex.create(
            annotations={"kopf.zalando.org/last-handled-configuration": '{"spec":{"field":"value"}}'},
            finalizers=[FINALIZER],
        )
    await operator.start()
    if reason != "resume":
        await kex.create()
    if reason == "update":
        await kex.wait_handled()
        await kex.merge({"spec": {"field": "new"}})
    await kex.wait_seen(lambda obj: "pending" in get_progress(obj))
    started = now()
    await kex.delete_and_wait()
    assert calls == [reason, "delete"]
    assert now() - started < 60


async def test_a_handler_that_is_running_is_not_interrupted(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="create1")
    @kopf.on.create("kopfexamples", id="create2")
    async def create_fn(**_: Any) -> None:
        calls.append("creating")
        await kex.delete()
        calls.append("created")

    kopf.on.delete("kopfexamples", id="delete_fn")(calls.noting("deleted"))
    await operator.start_and_create(kex)
    await kex.wait_gone()
    # The second one was not started, as the object is being deleted then.
    assert calls == ["creating", "created", "deleted"]


async def test_objects_deleted_before_they_are_noticed_are_not_handled(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    fn = calls.noting(lambda name, reason, **_: (name, reason.value))
    kopf.on.delete("kopfexamples", id="fn")(fn)
    kopf.on.create("kopfexamples", id="fn")(fn)
    await kex.create(finalizers=["example.com/theirs"])
    await kex.delete()
    await operator.start_and_handle(kex, "another")
    await kex.release_and_wait()
    assert calls == [("another", "create")]


@pytest.mark.fastforward
async def test_the_deletion_is_retried_and_its_progress_is_its_own(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    @kopf.on.delete("kopfexamples", id="fn")
    async def fn(reason: kopf.Reason, retry: int, **_: Any) -> None:
        calls.append((reason.value, retry))
        if reason == kopf.Reason.CREATE or retry < 2:
            raise kopf.TemporaryError("not yet", delay=100)

    await operator.start_and_call(kex, calls, times=3)
    await kex.delete_and_wait()
    assert calls == [("create", 0), ("create", 1), ("create", 2), ("delete", 0), ("delete", 1), ("delete", 2)]


@pytest.mark.fastforward
async def test_changes_while_being_deleted_do_not_repeat_the_handlers(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.update("kopfexamples", id="update_fn")(calls.noting("updated"))
    kopf.on.delete("kopfexamples", id="first")(calls.noting("first"))
    kopf.on.delete("kopfexamples", id="second")(
        calls.noting(lambda retry, **_: f"second-{retry}", error=kopf.TemporaryError("not yet", delay=100), times=2)
    )
    await operator.start_and_handle(kex)
    await kex.delete()
    await calls.wait_length(2)
    await kex.merge({"spec": {"field": "new"}})
    await kex.wait_gone()
    assert calls == ["first", "second-0", "second-1", "second-2"]


async def test_others_finalizers_hold_the_object_but_not_the_handling(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.delete("kopfexamples", id="fn")(calls.noting("deleted"))
    await operator.start_and_handle(kex, finalizers=["example.com/theirs"])
    await kex.delete()
    await kex.wait(lambda obj: obj["metadata"]["finalizers"] == ["example.com/theirs"])
    await kex.merge({"spec": {"field": "new"}})
    await operator.restart()
    await kex.merge({"spec": {"field": "newer"}})
    await kex.create_and_wait("another")
    await kex.release_and_wait()
    assert calls == ["deleted"]


async def test_objects_released_by_others_by_force(operator: Operator, kex: Objects, logs: Logs, calls: Calls) -> None:
    """The finalizer is removed by hand while the handlers are being retried."""
    kopf.on.delete("kopfexamples", id="fn")(calls.noting("called", error=kopf.TemporaryError("not yet", delay=0.1)))
    await operator.start_and_handle(kex)
    await kex.delete()
    await calls.wait_length(2)
    await kex.release_and_wait()
    await logs.wait("Deleted, really deleted, and we are notified.")
    seen = len(calls)
    await kex.create_and_wait("another")
    assert len(calls) == seen


@pytest.mark.parametrize("way", ["by hand", "by a restart"])
async def test_objects_deleted_while_there_is_no_operator(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    way: str,
) -> None:
    """They are held by the finalizer, until it is removed as documented: with the next operator, or without it."""
    kopf.on.delete("kopfexamples", id="fn")(calls.noting("called"))
    await operator.start_and_handle(kex)
    await operator.stop()
    await kex.delete()
    assert (await kex.get())["metadata"]["deletionTimestamp"]
    if way == "by hand":
        await kex.merge({"metadata": {"finalizers": []}})
    else:
        await operator.start()
    await kex.wait_gone()
    assert calls == ([] if way == "by hand" else ["called"])


async def test_recreated_objects_are_new_objects(operator: Operator, kex: Objects, calls: Calls) -> None:
    fn = calls.noting(lambda uid, reason, **_: (uid, reason.value))
    kopf.on.delete("kopfexamples", id="fn")(fn)
    kopf.on.update("kopfexamples", id="fn")(fn)
    kopf.on.create("kopfexamples", id="fn")(fn)
    await operator.start()
    uids = []
    for _ in range(5):
        obj = await kex.create()
        uids.append(uid := obj["metadata"]["uid"])
        await kex.wait(is_handled, uid=uid)
        await kex.delete()
        await kex.wait_gone(uid=uid)
    assert calls == [(uid, reason) for uid in uids for reason in ("create", "delete")]


async def test_objects_recreated_while_nobody_watches(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    async def fn(uid: str, memo: kopf.Memo, **_: Any) -> None:
        calls.append((uid, dict(memo)))
        memo.touched = True

    @kopf.on.event("kopfexamples")
    async def event_fn(event: kopf.RawEvent, uid: str, **_: Any) -> None:
        if event["type"] == "DELETED":
            calls.append((uid, "deleted"))

    await operator.start()
    first = (await kex.create())["metadata"]["uid"]
    await kex.wait_handled()
    operator.cluster.faults.inject(503, verb="watch", resource="kopfexamples", times=2)
    operator.cluster.faults.compact()
    operator.cluster.faults.cut_watches()
    await kex.delete()
    second = (await kex.create())["metadata"]["uid"]
    await calls.wait_length(3)
    assert calls == [(first, {}), (first, "deleted"), (second, {})]


async def test_recreated_while_a_handler_of_the_old_one_runs(operator: Operator, kex: Objects, calls: Calls) -> None:
    """What is left of the old object must not be written to the new one."""

    @kopf.on.create("kopfexamples", id="fn")
    async def fn(spec: kopf.Spec, uid: str, **_: Any) -> str:
        calls.append((spec["number"], uid))
        if spec["number"] == 1:
            await kex.delete()
            await kex.create(spec={"number": 2})
        return f"result of {uid}"

    await operator.start()
    old = (await kex.create(spec={"number": 1}))["metadata"]["uid"]
    obj = await kex.wait(lambda obj: obj["spec"]["number"] == 2 and is_handled(obj))
    assert [number for number, _ in calls] == [1, 2]
    assert obj["status"] == {"fn": f"result of {obj['metadata']['uid']}"}
    for state in kex.get_history():
        if state["metadata"]["uid"] != old:
            assert get_essence(state) in (None, {"spec": {"number": 2}})
            assert old not in str(state.get("status"))


@pytest.mark.fastforward
async def test_the_progress_of_overtaken_updates_is_removed_with_the_first_one_of_the_deletion(
    operator: Operator,
    kex: Objects,
) -> None:
    @kopf.on.update("kopfexamples", id="update_fn")
    async def update_fn(**_: Any) -> None:
        raise kopf.TemporaryError("not yet", delay=1000)

    @kopf.on.delete("kopfexamples", id="delete_fn")
    async def delete_fn(retry: int, **_: Any) -> None:
        if not retry:
            raise kopf.TemporaryError("not yet", delay=10)

    await operator.start_and_handle(kex)
    await kex.merge({"spec": {"field": "new"}})
    await kex.wait_seen(has_progress("update_fn"))
    await kex.delete()
    obj = await kex.wait_seen(has_progress("delete_fn"))
    assert get_progress(obj).keys() == {"delete_fn"}
    await kex.wait_gone()


COUNT = int(os.environ.get("KOPF_TEST_DELETIONS") or 5)
"""How many objects are deleted at once with each of the companions."""


COMPANIONS = {
    "daemon": {"daemon": "lasting"},
    "quick": {"daemon": "quick"},
    "timer": {"timer": "yes"},
    "both": {"daemon": "lasting", "timer": "yes"},
}


@pytest.mark.fastforward
@pytest.mark.parametrize("handlers", [1, 2])
async def test_deletion_handlers_beside_daemons_and_timers(
    operator: Operator,
    objects: Objects,
    calls: Calls,
    handlers: int,
) -> None:
    accompanied: set[str] = set()

    def note(name: str) -> None:
        """With many objects, there are too many runs of timers to look through all of them again and again."""
        if name not in accompanied:
            accompanied.add(name)
            calls.append(f"{name} runs")

    for number in range(handlers):
        kopf.on.delete(objects.plural, id=f"delete{number}", param=number)(
            calls.noting(lambda name, param, **_: (name, param), result="deleted")
        )

    @kopf.daemon(objects.plural, id="daemon_fn", labels={"daemon": kopf.PRESENT})
    async def daemon_fn(name: str, labels: kopf.Labels, stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        note(name)
        if labels["daemon"] != "quick":
            await stopped.wait()

    # With many objects, rarer: a loop that does nothing but timers has no time for deletions.
    @kopf.timer(objects.plural, interval=max(0.1, COUNT / 125), id="timer_fn", labels={"timer": kopf.PRESENT})
    async def timer_fn(name: str, **_: Any) -> None:
        note(name)
        await asyncio.sleep(0.01)

    names = [f"{companions}-{number}" for companions in COMPANIONS for number in range(COUNT)]
    await operator.start(watching=(objects.plural,))
    for name in names:
        await objects.create(name, labels=COMPANIONS[name.partition("-")[0]])
    await calls.wait(lambda _: len(accompanied) == len(names))
    await objects.delete_all(names)
    while sum(type_ == "DELETED" for type_, _ in objects.history) < len(names):
        await asyncio.sleep(1)
    await asyncio.sleep(5)
    counts = collections.Counter(call for call in calls if isinstance(call, tuple))
    assert counts == {(name, number): 1 for name in names for number in range(handlers)}


@pytest.mark.fastforward
async def test_states_from_before_the_release_are_not_handled_again(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    delete_fn = calls.noting("deleted")
    kopf.on.delete("kopfexamples", id="two")(delete_fn)
    kopf.on.delete("kopfexamples", id="one")(delete_fn)
    await operator.start_and_handle(kex, finalizers=["example.com/other"])
    operator.cluster.faults.lag_watches(3)
    await kex.delete()
    await kex.merge({"metadata": {"labels": {"l": "1"}}})
    await calls.wait_length(2)
    await asyncio.sleep(10)
    await kex.release_and_wait()
    assert len(calls) == 2
