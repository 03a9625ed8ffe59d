"""Finalizers: ours is put before the first handler and removed after the last one; those of others are untouched."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Obj, Objects, get_essence, get_finalizers, get_progress
from tests.behaviour.running import Calls, Decorator, Logs, Operator, do_nothing

pytestmark = pytest.mark.lagging

THEIRS = "example.com/theirs"


async def test_it_is_put_before_the_first_handler_and_removed_after_the_last_one(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="create_fn")(lambda meta, **_: calls.append(meta.get("finalizers")))
    for id in ("delete1", "delete2", "delete3"):
        kopf.on.delete("kopfexamples", id=id)(lambda meta, **_: calls.append(meta.get("finalizers")))
    await operator.start_and_handle(kex)
    assert calls == [[FINALIZER]]
    for obj in kex.get_history():
        if get_progress(obj) or get_essence(obj):
            assert get_finalizers(obj) == [FINALIZER]
    await kex.delete_and_wait()
    assert calls == [[FINALIZER]] * 4


async def test_others_finalizers_are_kept_in_their_order(operator: Operator, kex: Objects) -> None:
    kopf.on.delete("kopfexamples")(lambda **_: None)
    obj = await operator.start_and_handle(kex, finalizers=[THEIRS, "example.com/more"])
    assert get_finalizers(obj) == [THEIRS, "example.com/more", FINALIZER]
    await kex.edit(
        {"op": "replace", "path": "/metadata/finalizers", "value": [THEIRS, FINALIZER, "example.com/another"]}
    )
    await kex.delete()
    obj = await kex.wait(lambda obj: FINALIZER not in get_finalizers(obj))
    assert get_finalizers(obj) == [THEIRS, "example.com/another"]
    await kex.release_and_wait()


async def test_a_finalizer_removed_by_others_meanwhile_is_not_put_back(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.delete("kopfexamples")
    async def delete_fn(**_: Any) -> None:
        calls.append("called")
        await kex.edit(
            {"op": "test", "path": "/metadata/finalizers/0", "value": THEIRS},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        )

    await operator.start_and_handle(kex, finalizers=[THEIRS])
    await kex.delete_and_wait()
    assert calls == ["called"]


async def test_without_mandatory_deletion_handlers_there_is_no_finalizer(operator: Operator, kex: Objects) -> None:
    for decorator in (kopf.on.create, kopf.on.update, kopf.on.resume, kopf.on.event):
        decorator("kopfexamples", id="fn")(do_nothing)
    kopf.on.delete("kopfexamples", optional=True, when=lambda name, **_: name == "optional")(do_nothing)
    await operator.start()
    for name in ("none", "optional"):
        await kex.create_and_wait(name)
        await kex.delete_and_wait(name)
    assert not any(get_finalizers(obj) for _, obj in kex.history)


async def test_optional_deletion_handlers_are_called_if_the_object_is_blocked_by_other_handlers(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """By each kind of them, there is an object."""

    async def fn(name: str, stopped: kopf.AsyncDaemonStopperChecker | None = None, **_: Any) -> None:
        if name == "daemon" and stopped is not None:
            await stopped.wait()
        elif name == "mandatory":
            calls.append((name, "mandatory"))

    kopf.on.delete("kopfexamples", optional=True, id="optional")(calls.noting(lambda name, **_: (name, "optional")))
    blocking: dict[str, Any] = {
        "mandatory": kopf.on.delete,
        "daemon": kopf.daemon,
        "timer": functools.partial(kopf.timer, interval=1000),
    }
    for kind, decorator in blocking.items():
        decorator("kopfexamples", id=kind, labels={"kind": kind})(fn)
    await operator.start()
    for kind in blocking:
        await kex.create(kind, labels={"kind": kind})
        await kex.wait(get_finalizers, kind)
        await kex.delete_and_wait(kind)
    assert calls == [
        ("mandatory", "optional"),
        ("mandatory", "mandatory"),
        ("daemon", "optional"),
        ("timer", "optional"),
    ]


@pytest.mark.fastforward
async def test_optional_deletion_handlers_are_not_called_if_the_object_is_blocked_by_others(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """As the documentation says: others can hold it for days after it is handled."""
    kopf.on.event("kopfexamples")(lambda event, **_: calls.append(event["type"]))
    kopf.on.delete("kopfexamples", optional=True)(lambda **_: calls.append("optional"))
    await operator.start_and_create(kex)
    await kex.merge({"metadata": {"finalizers": ["example.com/others"]}})
    await kex.delete()
    await calls.wait(lambda types: types.count("MODIFIED") == 2)
    await kex.merge({"metadata": {"finalizers": None}})
    await kex.wait_gone()
    await calls.wait(lambda types: "DELETED" in types)
    assert "optional" not in calls.items


async def test_a_failed_deletion_handler_releases_the_object(operator: Operator, kex: Objects) -> None:
    @kopf.on.delete("kopfexamples")
    def delete_fn(**_: Any) -> None:
        raise kopf.PermanentError("never")

    await operator.start_and_handle(kex)
    await kex.delete_and_wait()


@pytest.mark.fastforward
async def test_a_retried_deletion_handler_holds_the_object(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.delete("kopfexamples")
    async def delete_fn(retry: int, meta: kopf.Meta, **_: Any) -> None:
        calls.append((retry, get_finalizers(await kex.get())))
        if retry < 3:
            raise kopf.TemporaryError("not yet", delay=3600)

    await operator.start_and_handle(kex)
    await kex.delete_and_wait()
    assert calls == [(retry, [FINALIZER]) for retry in range(4)]


async def test_it_is_put_to_existing_objects_when_deletion_handlers_appear(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples")(lambda **_: None)
    await operator.start_and_handle(kex)
    await operator.stop()

    kopf.on.delete("kopfexamples", id="delete_fn")(lambda **_: calls.append("called"))
    await operator.start()
    await kex.wait(lambda obj: get_finalizers(obj) == [FINALIZER])
    await kex.delete_and_wait()
    assert calls == ["called"]


async def test_the_name_of_it_is_in_the_settings(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.delete("kopfexamples")(lambda **_: calls.append("called"))
    operator.set("persistence.finalizer", "example.com/mine")
    obj = await operator.start_and_handle(kex, finalizers=[FINALIZER])  # of another operator
    assert get_finalizers(obj) == [FINALIZER, "example.com/mine"]
    await kex.delete()
    obj = await kex.wait(lambda obj: get_finalizers(obj) == [FINALIZER])
    assert calls == ["called"]
    await kex.release_and_wait()


async def test_two_changes_of_finalizers_at_once_are_both_done(operator: Operator, kex: Objects) -> None:
    """Others change the finalizers while ours is about to be put: nobody's change is lost."""
    kopf.on.delete("kopfexamples")(lambda **_: None)
    operator.cluster.faults.inject(action="delay", latency=0.1, verb="patch", resource="kopfexamples", times=1)
    await operator.start_and_create(kex, finalizers=["example.com/a"])
    operator.cluster.faults.clear()
    await kex.edit({"op": "replace", "path": "/metadata/finalizers", "value": ["example.com/b"]})
    obj = await kex.wait_handled()
    assert get_finalizers(obj) == ["example.com/b", FINALIZER]


async def insist_on_the_finalizer(kex: Objects, name: str) -> None:
    """Put it back as often as it is removed, but not forever."""

    def is_removed_again(obj: Obj) -> bool:
        return not get_finalizers(obj) and int(obj["metadata"]["resourceVersion"]) > versions[-1]

    versions = [0]
    for _ in range(3):
        await kex.wait(is_removed_again, name)
        obj = await kex.merge({"metadata": {"finalizers": [FINALIZER]}}, name)
        versions.append(int(obj["metadata"]["resourceVersion"]))


async def test_those_who_insist_on_the_finalizer_are_not_fought_with_but_cannot_block_the_deletion(
    operator: Operator,
    kex: Objects,
    logs: Logs,
) -> None:
    """E.g., another operator with the same (default) name of the finalizer, which needs it for this object."""
    said = ".*does not need the finalizer .*, but something else puts it back.*"
    kopf.on.delete("kopfexamples", labels={"ours": "yes"})(do_nothing)
    await operator.start()
    for name in ("obj", "deleted"):
        await kex.create(name, finalizers=[FINALIZER])
        await insist_on_the_finalizer(kex, name)
        await logs.wait(said, name=name)
    await kex.delete_and_wait("deleted")
    await kex.merge({"spec": {"field": "new"}})
    await kex.create_and_wait("another", labels={"ours": "yes"})
    assert get_finalizers(await kex.get()) == [FINALIZER]
    await kex.merge({"metadata": {"labels": {"ours": "yes"}}})  # now it is needed, so it is ours from now on
    await kex.wait_handled(field="new")
    await kex.merge({"metadata": {"labels": {"ours": None}}})
    await kex.wait(lambda obj: not get_finalizers(obj))
    assert len(logs.find(said, name="obj")) == 1


@pytest.mark.parametrize("kind", [kopf.daemon, kopf.timer])
async def test_optional_daemons_and_timers_need_no_finalizer(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    kind: Decorator,
) -> None:
    options = {"interval": 0.01} if kind is kopf.timer else {}

    @kind("kopfexamples", optional=True, **options)
    async def fn(name: str, stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append(name)
        if kind is kopf.daemon:
            await stopped.wait()
            calls.append(stopped.reason)

    await operator.start_and_call(kex, calls)
    await kex.delete()
    assert not any(get_finalizers(obj) for obj in kex.get_history())
    await kex.wait_gone()
    if kind is kopf.daemon:
        await calls.wait_length(2)
        assert kopf.DaemonStoppingReason.RESOURCE_DELETED in calls[1]
    else:
        await kex.create("another")
        await calls.wait(lambda names: "another" in names)
        known = len(calls)
        await calls.wait_length(known + 3)
        assert "obj" not in calls.items[known:]


@pytest.mark.parametrize("how", ["unblocked", "blocked", "released"])
async def test_handlers_that_delete_their_own_object_end_quietly(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    how: str,
) -> None:
    """The patch after it is answered with 404."""

    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, name: str, **_: Any) -> str:
        calls.append("created")
        patch.meta.labels["too-late"] = "yes"
        patch.fns.append(lambda body: body["spec"].update(some="value"))
        await kex.delete(name)
        if how == "released":
            await kex.release(name)
        return "a result for nobody"

    if how != "unblocked":
        kopf.on.delete("kopfexamples")(calls.noting("deleted") if how == "blocked" else do_nothing)
    await operator.start()
    for name in ("obj", "another"):
        await kex.create(name)
        await kex.wait_gone(name)
    await operator.stop()
    assert calls == (["created", "deleted"] if how == "blocked" else ["created"]) * 2
    assert not logs.get_messages(level=logging.WARNING)
