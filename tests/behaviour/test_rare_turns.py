"""Rare turns of the handling: nothing is repeated, forgotten, or held forever, when several things come together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import API, Objects, get_finalizers, get_progress, watch
from tests.behaviour.running import Calls, Logs, Operator, do_nothing, now

pytestmark = pytest.mark.fastforward


@pytest.fixture
async def prunes(api: API) -> AsyncIterator[Objects]:
    """The objects of a resource with a strict schema: the API drops the unknown fields of what is written."""
    crd = make_crd("Prune", "prunes", status=False)
    spec = {"type": "object", "properties": {"field": {"type": "integer"}}}
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    api.cluster.apply(crd)
    async with watch(api, "Prune", "prunes") as objects:
        yield objects


@pytest.mark.parametrize("failing", ["update", "daemon"])
async def test_a_deletion_is_not_held_by_a_failing_filter(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    failing: str,
) -> None:
    def is_wanted(spec: kopf.Spec, **_: Any) -> bool:
        if spec["bad"] and failing == "daemon":
            raise ValueError("a bad spec")
        return True

    def is_edited(spec: kopf.Spec, **_: Any) -> bool:
        if spec["bad"] and failing == "update":
            raise ValueError("a bad spec")
        return False

    kopf.daemon("kopfexamples", id="daemon", when=is_wanted, labels={"x": "y"})(calls.accompanying("runs"))
    kopf.on.update("kopfexamples", id="update", when=is_edited)(do_nothing)
    logs.expected.append("a bad spec")
    await operator.start_and_create(kex, spec={"bad": False}, labels={"x": "y"})
    await calls.wait_length(1)
    await kex.merge({"spec": {"bad": True}})
    if failing == "update":
        await kex.merge({"metadata": {"labels": {"x": None}}})
    await asyncio.sleep(120)
    started = now()
    await kex.delete_and_wait()
    assert now() - started < 1000


async def test_a_deletion_goes_on_when_a_daemon_exits_in_the_middle_of_an_event_handler(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.event("kopfexamples", id="event")
    async def event(meta: kopf.Meta, **_: Any) -> None:
        if meta.get("deletionTimestamp"):
            await asyncio.sleep(20)

    kopf.on.delete("kopfexamples", id="delete")(calls.noting("deleted"))

    @kopf.daemon("kopfexamples", id="daemon")
    async def daemon(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        calls.append("runs")
        await stopped.wait()
        await asyncio.sleep(8)

    await operator.start_and_create(kex)
    await calls.wait_length(1)
    started = now()
    await kex.delete_and_wait()
    assert now() - started < 1000
    assert calls == ["runs", "deleted"]


async def test_a_timer_starts_by_a_status_that_was_changed_during_the_creation(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="create")
    async def create(**_: Any) -> None:
        calls.append("creates")
        await kex.merge({"status": {"ready": True}})
        await asyncio.sleep(2)

    kopf.timer("kopfexamples", id="timer", interval=1000, when=lambda status, **_: status["ready"])(
        calls.noting("runs")
    )
    await operator.start()
    started = now()
    await kex.create(status={"ready": False})
    await calls.wait(lambda items: "runs" in items)
    assert now() - started < 1000
    assert calls == ["creates", "runs"]


async def test_resuming_is_not_repeated_by_an_edit_in_the_middle_of_an_update(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="create")(do_nothing)
    kopf.on.resume("kopfexamples", id="resume")(calls.noting("resumes"))
    kopf.on.update("kopfexamples", id="update")(
        calls.noting("updates", error=kopf.TemporaryError("not yet", delay=30), times=1)
    )
    await operator.start_and_handle(kex)
    await operator.stop()
    await kex.merge({"spec": {"field": 5}})
    calls.items.clear()
    await operator.start()
    await calls.wait(lambda items: {"resumes", "updates"} <= {*items})
    await kex.change_and_wait(field=6)
    await asyncio.sleep(300)
    assert calls.items.count("resumes") == 1


async def test_subhandlers_run_again_after_an_update_in_which_they_were_absent(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="create")(do_nothing)

    @kopf.on.update("kopfexamples", id="parent")
    async def parent(spec: kopf.Spec, **_: Any) -> None:
        for item in spec["items"]:
            kopf.subhandler(id=item, param=item)(calls.noting(lambda param, **_: param))

    @kopf.on.update("kopfexamples", id="other")
    async def other(spec: kopf.Spec, **_: Any) -> None:
        calls.append("other")
        if spec["wait"]:
            raise kopf.TemporaryError("not yet", delay=30)

    await operator.start_and_handle(kex, spec={"items": [], "wait": False})
    await kex.merge({"spec": {"items": ["a", "b"], "wait": True}})
    await calls.wait(lambda items: {"other", "a", "b"} <= {*items})
    await asyncio.sleep(3)
    await kex.merge({"spec": {"items": ["a"], "wait": False}})
    obj = await kex.wait_handled(items=["a"])
    assert not get_progress(obj)
    calls.items.clear()
    await kex.merge({"spec": {"items": ["a", "b"], "wait": True}})
    await asyncio.sleep(10)
    assert "b" in calls.items


async def test_updates_are_not_repeated_when_the_api_drops_what_they_want(
    operator: Operator,
    prunes: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("prunes", id="create")(do_nothing)

    @kopf.on.update("prunes", id="one")
    async def one(patch: kopf.Patch, **_: Any) -> None:
        calls.append("one")
        patch.spec["unknown"] = 1

    kopf.on.update("prunes", id="two")(calls.noting("two", error=kopf.TemporaryError("not yet", delay=30), times=1))
    await operator.start_and_handle(prunes, spec={"field": 1})
    await prunes.merge({"spec": {"field": 2}})
    await asyncio.sleep(120)
    assert calls == ["one", "two", "two"]


async def test_a_creation_is_not_followed_by_an_update_when_the_api_drops_what_it_wants(
    operator: Operator,
    prunes: Objects,
    calls: Calls,
) -> None:
    @kopf.on.create("prunes", id="one")
    async def one(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["unknown"] = 1

    kopf.on.create("prunes", id="two")(do_nothing)
    kopf.on.update("prunes", id="update")(calls.noting(lambda diff, **_: diff))
    await operator.start_and_handle(prunes, spec={"field": 1})
    await asyncio.sleep(30)
    assert calls == []


async def test_a_deletion_is_not_held_by_progress_too_big_to_be_saved(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="create")(
        calls.noting("creates", error=kopf.TemporaryError("x" * 300_000, delay=5))
    )
    kopf.on.delete("kopfexamples", id="delete")(
        calls.noting(lambda retry, **_: f"deletes {retry}", error=kopf.TemporaryError("not yet", delay=5), times=1)
    )
    await operator.start_and_create(kex)
    await calls.wait_length(1)
    await asyncio.sleep(30)
    started = now()
    await kex.delete_and_wait()
    assert now() - started < 3000
    assert [call for call in calls if call != "creates"] == ["deletes 0", "deletes 1"]


async def test_a_deletion_is_not_held_by_a_failing_transformation(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    def transform(body: Any) -> None:
        body["metadata"]["finalizers"].remove("absent")

    @kopf.on.delete("kopfexamples", id="delete")
    async def delete(patch: kopf.Patch, **_: Any) -> None:
        calls.append("deletes")
        patch.fns.append(transform)

    logs.expected.append(r"ValueError: list\.remove")
    await operator.start_and_create(kex)
    await kex.wait(get_finalizers)
    started = now()
    await kex.delete_and_wait()
    assert now() - started < 3000
    assert calls == ["deletes"]


async def test_a_patch_too_deep_to_be_sent_is_blamed_itself_and_not_its_object(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="a")
    async def a(patch: kopf.Patch, **_: Any) -> None:
        calls.append("a")
        deep: dict[str, Any] = {}
        for _level in range(200_000):
            deep = {"x": deep}
        patch.spec["deep"] = deep

    kopf.on.create("kopfexamples", id="b")(calls.noting("b"))
    logs.expected.append("could not be handled.*NestingError")
    await operator.start_and_create(kex)
    await asyncio.sleep(3000)
    assert calls.items.count("a") == 1
    [message] = logs.get_messages("obj", level=logging.WARNING)
    assert "could not be handled" in message
    assert "NestingError" in message
    assert not logs.find(".*The object cannot be decoded.*")
