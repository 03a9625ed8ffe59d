"""Reconciling while the operator itself changes: it is paused and goes on, its handlers and its resources change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, MERGE_PATCH, Obj, Objects
from tests.behaviour.peerings import PeeringObject
from tests.behaviour.resources import create_in, define_namespaces, make_crd
from tests.behaviour.running import Calls, Logs, Operator, do_nothing, now
from tests.behaviour.test_reconciling import PATH, count_requests, declare_yielding, edit, list_maps, make_map

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


async def pause(peering: PeeringObject, logs: Logs) -> None:
    await peering.put("other", priority=100, lifetime=1e9)
    await logs.wait("Pausing operations in favour of .*")


def count_writes(operator: Operator) -> int:
    return sum(count_requests(operator, verb, "configmaps") for verb in ("create", "patch", "update", "delete"))


# ------------------------------------------------------------------ pauses


async def test_what_happens_to_children_in_a_pause_is_undone_after_it(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
    peering: PeeringObject,
    logs: Logs,
) -> None:
    declare_yielding("yielding", calls, interval=30)
    await operator.start(standalone=False, watching=("kopfexamples", "configmaps"))
    await kex.create_and_wait("one", spec={"items": {"deleted": "1", "edited": "2", "lost": "3", "replaced": "4"}})
    await kex.create_and_wait("two", spec={"items": {"other": "1"}})
    await pause(peering, logs)
    await asyncio.sleep(10)
    count = len(calls)
    await edit(api, "edited", {"data": {"key": "x"}})
    await edit(api, "lost", {"metadata": {"ownerReferences": None}})
    await api.request("DELETE", f"{PATH}/deleted")
    await api.request("DELETE", f"{PATH}/replaced")
    await api.request("POST", PATH, make_map("replaced", key="foreign"))
    await kex.merge({"spec": {"items": {"edited": "5"}}}, "one")
    await kex.delete("two")
    await asyncio.sleep(1)
    writes = count_writes(operator)
    await asyncio.sleep(100)
    assert (len(calls), count_writes(operator)) == (count, writes)
    await peering.remove("other")
    await asyncio.sleep(100)
    assert {name: item["data"]["key"] for name, item in (await list_maps(api)).items()} == {
        "deleted": "1",
        "edited": "5",
        "lost": "3",
        "replaced": "foreign",
    }


@pytest.mark.parametrize("step", ["create", "delete"])
async def test_calls_that_a_pause_comes_into_write_no_further(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
    peering: PeeringObject,
    logs: Logs,
    step: str,
) -> None:
    """By then, another operator makes the children as it sees fit."""
    going_on = asyncio.Event()

    @kopf.reconcile("kopfexamples", owns="configmaps")
    async def fn(spec: Any, **_: Any) -> AsyncIterator[Obj]:
        calls.append("called")
        yield make_map("a")
        if spec["step"] == step:
            await going_on.wait()
        if spec["step"] != "delete":
            yield make_map("b")

    await operator.start(standalone=False, watching=("kopfexamples", "configmaps"))
    if step == "delete":
        await kex.create_and_wait(spec={"step": "none"})
        await kex.merge({"spec": {"step": step}})
    else:
        await kex.create(spec={"step": step})
    await asyncio.sleep(10)
    before = await list_maps(api)
    await pause(peering, logs)
    going_on.set()
    await asyncio.sleep(100)
    assert await list_maps(api) == before
    count = len(calls)
    await peering.remove("other")
    await calls.wait_length(count + 1)
    await asyncio.sleep(10)
    assert set(await list_maps(api)) == ({"a"} if step == "delete" else {"a", "b"})


async def test_calls_that_a_pause_comes_into_have_not_failed(
    operator: Operator,
    sub: Objects,
    calls: Calls,
    api: API,
    peering: PeeringObject,
    logs: Logs,
) -> None:
    going_on = asyncio.Event()

    @kopf.reconcile("kopfstatusexamples", owns="configmaps", conditions=True, retries=1)
    async def fn(**_: Any) -> AsyncIterator[Obj]:
        calls.append("called")
        await going_on.wait()
        yield make_map("a")

    await operator.start(standalone=False, watching=("kopfstatusexamples", "configmaps"))
    await sub.create()
    await calls.wait_length(1)
    await pause(peering, logs)
    going_on.set()
    await asyncio.sleep(100)
    assert "conditions" not in (await sub.get()).get("status", {})
    await peering.remove("other")
    await sub.wait(lambda obj: obj.get("status", {}).get("conditions"))
    assert [item["reason"] for item in (await sub.get())["status"]["conditions"]] == ["ChildrenReady"]
    assert set(await list_maps(api)) == {"a"}
    assert not logs.find("Handler .* failed.*")


# ------------------------------------------------------------------ other handlers


async def test_handlers_that_are_declared_later_do_not_end_the_intervals(
    operator: Operator, kex: Objects, calls: Calls
) -> None:
    kopf.reconcile("kopfexamples", interval=100)(calls.noting(lambda name, **_: name))
    await operator.start_and_handle(kex, "old")
    await asyncio.sleep(250)
    assert len(calls) == 3
    kopf.on.event("kopfexamples")(do_nothing)
    await asyncio.sleep(1000)
    assert 12 <= len(calls) <= 14
    await kex.create_and_wait("new")
    await asyncio.sleep(50)
    assert calls.items.count("new") == 1


async def test_handlers_that_are_declared_later_do_not_end_the_retries(
    operator: Operator, kex: Objects, calls: Calls
) -> None:
    @kopf.reconcile("kopfexamples")
    async def fn(retry: int, **_: Any) -> None:
        calls.append(retry)
        if len(calls) == 2:
            raise kopf.TemporaryError("later", delay=100)

    await operator.start_and_handle(kex)
    await operator.restart()
    await calls.wait_length(2)
    kopf.on.event("kopfexamples")(do_nothing)
    await calls.wait_length(3)


async def test_handlers_that_are_declared_later_do_not_end_the_references(
    operator: Operator, kex: Objects, calls: Calls, api: API
) -> None:
    uses = kopf.ref("configmaps", lambda spec, **_: spec.get("config"))
    kopf.reconcile("kopfexamples", uses=uses)(calls.noting("called"))
    await operator.start(watching=("kopfexamples", "configmaps"))
    await kex.create_and_wait(spec={"config": "a"})
    kopf.on.event("kopfexamples")(do_nothing)
    await asyncio.sleep(10)
    count = len(calls)
    await api.request("POST", PATH, make_map("a"))
    await calls.wait_length(count + 1)


# ------------------------------------------------------------------ namespaces


async def test_namespaces_deleted_in_the_middle(operator: Operator, kex: Objects, api: API, logs: Logs) -> None:
    """Nothing can be created there anymore; the object is about to be deleted, too, so this is no failure."""

    @kopf.reconcile("kopfexamples", owns="configmaps")
    async def fn(**_: Any) -> AsyncIterator[Obj]:
        await api.request("DELETE", "/api/v1/namespaces/leaving")
        yield make_map("a")

    define_namespaces(operator.cluster, "leaving")
    await operator.start(watching=("kopfexamples", "configmaps"))
    await create_in(api, "leaving")
    await logs.wait(".* ends, as the object is about to be deleted, too: ConfigMap leaving/a cannot be created: .*")
    await asyncio.sleep(100)
    assert not logs.get_messages(level=logging.WARNING)


async def test_namespaces_of_children_that_come_and_go(operator: Operator, kex: Objects, api: API, logs: Logs) -> None:
    """The owner is cluster-wide, so it stays: it is tried again, until the namespace is there again."""
    crd = make_crd("ClusterExample", "clusterexamples")
    crd["spec"]["scope"] = "Cluster"
    operator.cluster.apply(crd)

    @kopf.reconcile("clusterexamples", owns="configmaps")
    async def fn(**_: Any) -> AsyncIterator[Obj]:
        yield {**make_map("a"), "metadata": {"name": "a", "namespace": "leaving"}}

    await operator.start(watching=("clusterexamples", "configmaps"))
    obj = {"apiVersion": "kopf.dev/v1", "kind": "ClusterExample", "metadata": {"name": "obj"}}
    await api.request("POST", "/apis/kopf.dev/v1/clusterexamples", obj)
    await logs.wait(".*failed temporarily: ConfigMap leaving/a cannot be created: its namespace is .*")
    define_namespaces(operator.cluster, "leaving")
    await asyncio.sleep(10)
    assert await api.request("GET", "/api/v1/namespaces/leaving/configmaps/a")
    assert not logs.find(".*failed with an exception.*")


async def test_children_stay_in_line_when_a_newer_version_of_their_kind_appears(
    operator: Operator, kex: Objects, api: API, logs: Logs
) -> None:
    """The definition often belongs to others. The handler still yields the former version, which is still served."""
    path = "/apis/kopf.dev/v1beta1/namespaces/default/children"

    @kopf.reconcile("kopfexamples", owns="children")
    async def fn(spec: Any, **_: Any) -> AsyncIterator[Obj]:
        for name, size in spec["items"].items():
            metadata = {"name": name}
            yield {"apiVersion": "kopf.dev/v1beta1", "kind": "Child", "metadata": metadata, "spec": {"size": size}}

    async def get_sizes() -> dict[str, Any]:
        items = (await api.request("GET", path))["items"]
        return {item["metadata"]["name"]: item["spec"]["size"] for item in items}

    operator.cluster.apply(make_crd("Child", "children", versions=("v1beta1",)))
    await operator.start(watching=("kopfexamples", "children"))
    await kex.create_and_wait(spec={"items": {"a": 1, "b": 2}})
    operator.cluster.apply(make_crd("Child", "children", versions=("v1beta1", "v1")))
    await logs.wait("Starting the watch-stream for children.v1.kopf.dev.*")
    await asyncio.sleep(10)
    await kex.merge({"spec": {"items": {"a": 3, "b": None, "c": 4}}})
    await asyncio.sleep(10)
    assert await get_sizes() == {"a": 3, "c": 4}
    await api.request("PATCH", f"{path}/a", {"spec": {"size": 5}}, MERGE_PATCH)
    await api.request("DELETE", f"{path}/c")
    await asyncio.sleep(10)
    assert await get_sizes() == {"a": 3, "c": 4}
    writes = count_requests(operator, "patch", "children")
    await asyncio.sleep(100)
    assert count_requests(operator, "patch", "children") == writes


CHILD = {"apiVersion": "kopf.dev/v1", "kind": "Child", "metadata": {"name": "child"}}


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.reconcile], ids=["creation", "reconciler"])
async def test_children_are_created_as_soon_as_their_kind_is_defined(
    operator: Operator, kex: Objects, calls: Calls, api: API, decorator: Any
) -> None:
    """For the first time, or again: then, the children are gone with the former definition."""

    async def fn(**_: Any) -> None:
        calls.append("called")
        await kopf.apply(CHILD)

    decorator("kopfexamples", owns="children.kopf.dev", backoff=10_000)(fn)
    await operator.start_and_call(kex, calls)
    started = now()
    operator.cluster.apply(make_crd("Child", "children"))
    await kex.wait_handled()
    operator.cluster.delete("customresourcedefinitions", "children.kopf.dev")
    await asyncio.sleep(100)
    operator.cluster.apply(make_crd("Child", "children"))
    await asyncio.sleep(100)
    assert await api.request("GET", "/apis/kopf.dev/v1/namespaces/default/children/child")
    assert now() - started < 1000, "it has not waited for the retry"


async def test_used_objects_are_noticed_though_their_kind_is_defined_later(
    operator: Operator, kex: Objects, calls: Calls, api: API
) -> None:
    uses = kopf.ref("children.kopf.dev", lambda **_: "child")
    kopf.reconcile("kopfexamples", uses=uses)(calls.noting("called"))
    await operator.start_and_call(kex, calls)
    await kex.wait_handled()
    operator.cluster.apply(make_crd("Child", "children"))
    await calls.wait_length(2)
    await api.request("POST", "/apis/kopf.dev/v1/namespaces/default/children", CHILD)
    await calls.wait_length(3)
    await asyncio.sleep(100)
    assert len(calls) == 3
