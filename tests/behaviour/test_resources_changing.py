"""Resources that appear, change, and vanish while the operator runs."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import kopf
from kopf._client.resources.discovery import discover
from kopf_cluster.requests import Request
from tests.behaviour.objects import API, FINALIZER, Objects, get_finalizers, watch
from tests.behaviour.resources import CRDS, create, define, make_crd, undefine
from tests.behaviour.running import Calls, Logs, Operator, do_nothing
from tests.patience import PATIENCE, wait_until


def note(calls: Calls, *args: Any, **options: Any) -> None:
    @kopf.on.event(*args, **options)
    async def fn(resource: kopf.Resource, name: str, type: str | None, **_: Any) -> None:
        if type != "DELETED":
            calls.append((repr(resource), name))


@pytest.mark.fastforward
async def test_resources_that_appear_are_served(operator: Operator, api: API, calls: Calls, logs: Logs) -> None:
    """Also by categories, in groups that did not exist before; it is said when there is nothing to serve yet."""
    note(calls, "example.com", "lates")
    note(calls, category="latecat")
    await operator.launch()
    await logs.wait(".*No resource is found for.*'lates'.*")
    define(operator.cluster, "lates", group="example.com")
    define(operator.cluster, "laters", group="kopf.dev", categories=["latecat"])
    await create(api, "lates", "a", group="example.com")
    await create(api, "laters", "b")
    await calls.wait_length(2)
    assert sorted(calls) == [("laters.v1.kopf.dev", "b"), ("lates.v1.example.com", "a")]


async def test_resources_that_vanish_are_not_served_until_they_are_back(
    operator: Operator,
    api: API,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    define(operator.cluster, "temps")
    note(calls, "temps")
    note(calls, "kopfexamples")
    await operator.start(watching=("temps",))
    await create(api, "temps", "first")
    await calls.wait_length(1)
    await undefine(api, "temps")
    await logs.wait("Stopping the watch-stream for temps.v1.kopf.dev.*")
    operator.cluster.reset_counters()
    await kex.create()
    await calls.wait_length(2)
    define(operator.cluster, "temps")
    await create(api, "temps", "second")
    await calls.wait_length(3)
    assert [name for _, name in calls] == ["first", "obj", "second"]


async def test_daemons_and_indices_of_vanished_resources_end(operator: Operator, api: API, calls: Calls) -> None:
    define(operator.cluster, "temps")
    indices: list[kopf.Index[Any, Any]] = []

    @kopf.index("temps")
    def idx(name: str, **_: Any) -> str:
        return name

    @kopf.daemon("temps")
    async def fn(stopped: kopf.AsyncDaemonStopperChecker, idx: kopf.Index[Any, Any], **_: Any) -> None:
        indices.append(idx)
        calls.append("started")
        await stopped.wait()
        calls.append("stopped")

    await operator.start(watching=("temps",))
    async with watch(api, "Temp", "temps") as temps:
        await temps.create()
        await temps.wait(lambda obj: get_finalizers(obj) == [FINALIZER])
        await calls.wait_length(1)
        await undefine(api, "temps")
        await calls.wait_length(2)
        await wait_undefined(api)
        await wait_until(lambda: not indices[0])
    assert calls == ["started", "stopped"]


async def wait_undefined(api: API) -> None:
    """Wait until the definition is gone, with all objects."""
    async with asyncio.timeout(PATIENCE):
        while "temps.kopf.dev" in {crd["metadata"]["name"] for crd in (await api.request("GET", CRDS))["items"]}:
            await asyncio.sleep(0.001)


@pytest.mark.fastforward
async def test_names_that_become_ambiguous_are_not_served_until_it_is_resolved(
    operator: Operator,
    api: API,
    calls: Calls,
    logs: Logs,
) -> None:
    define(operator.cluster, "temps", group="kopf.dev")
    note(calls, "temps")
    await operator.start(watching=("temps",))
    await create(api, "temps", "first")
    await calls.wait_length(1)
    define(operator.cluster, "temps", group="example.com")
    await logs.wait(".*'temps'.*ambiguous.*")
    await logs.wait("Stopping the watch-stream for temps.v1.kopf.dev.*")
    await undefine(api, "temps", group="kopf.dev")
    await create(api, "temps", "second", group="example.com")
    await calls.wait_length(2)
    assert calls == [("temps.v1.kopf.dev", "first"), ("temps.v1.example.com", "second")]


@pytest.mark.fastforward
async def test_new_names_of_served_resources_are_noticed(operator: Operator, api: API, calls: Calls) -> None:
    """The resource gets into a category for which there are more handlers."""
    define(operator.cluster, "temps")
    note(calls, "temps", id="by-name")
    for id in ("by-category", "by-shortcut"):
        options: dict[str, Any] = {"category": "newcat"} if id == "by-category" else {"shortcut": "newshort"}

        kopf.on.create(id=id, param=id, **options)(calls.noting(lambda param, name, **_: (param, name)))

    await operator.start(watching=("temps",))
    await create(api, "temps", "before")
    await calls.wait_length(1)
    define(operator.cluster, "temps", categories=["newcat"], shortNames=["newshort"])
    await calls.wait(lambda items: {("by-category", "before"), ("by-shortcut", "before")} <= {*items})
    await create(api, "temps", "after")
    await calls.wait(lambda items: {("by-category", "after"), ("by-shortcut", "after")} <= {*items})


async def test_a_new_preferred_version_replaces_the_previous_one(operator: Operator, api: API, calls: Calls) -> None:
    define(operator.cluster, "temps", group="example.com", versions=("v1beta1",))
    note(calls, "temps")
    await operator.start(watching=("temps",))
    await create(api, "temps", "first", group="example.com", version="v1beta1")
    await calls.wait_length(1)
    define(operator.cluster, "temps", group="example.com", versions=("v1beta1", "v1"))
    await calls.wait(lambda items: ("temps.v1.example.com", "first") in items)
    await create(api, "temps", "second", group="example.com", version="v1")
    await calls.wait(lambda items: ("temps.v1.example.com", "second") in items)
    assert ("temps.v1beta1.example.com", "second") not in calls


@pytest.mark.parametrize("options", [{"versions": ("v1", "v2")}, {"status": True}], ids=str)
async def test_changes_right_after_the_discovery_are_noticed(
    operator: Operator, api: API, logs: Logs, options: dict[str, Any]
) -> None:
    """E.g. if the operator is upgraded together with its definitions: these are not watched yet."""
    define(operator.cluster, "temps")
    kopf.on.event("temps")(do_nothing)
    discovered = asyncio.Event()

    async def discover_and_change(*args: Any, **kwargs: Any) -> Any:
        discovery = await discover(*args, **kwargs)
        if not discovered.is_set():
            discovered.set()
            define(operator.cluster, "temps", **options)
        return discovery

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr("kopf._operator.resource_observer.discover", discover_and_change)
        await operator.launch()
        version = "v2" if "versions" in options else "v1"
        await logs.wait(f"Starting the watch-stream for temps.{version}.kopf.dev.*", times=1 if version == "v2" else 2)


@pytest.mark.parametrize("change", ["scope", "kind"])
async def test_resources_that_are_defined_anew_are_served_as_they_are_now(
    operator: Operator, api: API, calls: Calls, logs: Logs, change: str
) -> None:
    """As with `kubectl replace --force`: the operator sees no moment without the resource."""
    define(operator.cluster, "temps")

    @kopf.on.create("temps")
    async def fn(namespace: str | None, resource: kopf.Resource, **_: Any) -> None:
        calls.append((namespace, resource.kind))

    await operator.start(watching=("temps",))
    await undefine(api, "temps")
    await wait_undefined(api)
    options: dict[str, Any] = {"scope": "Cluster"} if change == "scope" else {"kind": "Changed"}
    define(operator.cluster, "temps", **options)
    await logs.wait("Starting the watch-stream for temps.v1.kopf.dev.*", times=2)
    kind, namespace = ("Temp", None) if change == "scope" else ("Changed", "default")
    place = "temps" if change == "scope" else "namespaces/default/temps"
    obj = {"apiVersion": "kopf.dev/v1", "kind": kind, "metadata": {"name": "obj"}}
    await api.request("POST", f"/apis/kopf.dev/v1/{place}", obj)
    await calls.wait_length(1)
    assert calls == [(namespace, kind)]


async def test_scanning_can_be_disabled(operator: Operator, api: API, kex: Objects, calls: Calls) -> None:
    note(calls, "temps")
    note(calls, "kopfexamples")
    operator.set("scanning.disabled", True)
    await operator.start()
    define(operator.cluster, "temps")
    await create(api, "temps", "obj")
    await kex.create()
    await calls.wait_length(1)
    await operator.stop()
    assert calls == [("kopfexamples.v1.kopf.dev", "obj")]
    assert not any(key[:2] == ("watch", "temps") for key in operator.cluster.counters)


@pytest.mark.fastforward
@pytest.mark.parametrize("fault", [{"status": 503}, {"action": "delay", "latency": 1000}], ids=["broken", "hung"])
async def test_unavailable_groups_hold_nobody(
    operator: Operator,
    api: API,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    fault: dict[str, Any],
) -> None:
    """E.g. of the API extensions, whose servers are down. It is said once, and they are served when they are back."""
    define(operator.cluster, "temps", group="example.com")
    await create(api, "temps", "a", group="example.com")
    note(calls, "example.com", "temps")
    note(calls, "kopf.dev", "kopfexamples")
    rule = operator.cluster.faults.inject(path="^/apis/example.com/v1$", **fault)
    await kex.create()
    started = asyncio.get_running_loop().time()
    await operator.launch()
    await calls.wait_length(1)
    assert asyncio.get_running_loop().time() - started < 15
    await asyncio.sleep(600)
    assert calls == [("kopfexamples.v1.kopf.dev", "obj")]
    operator.cluster.faults.remove(rule)
    await calls.wait_length(2)
    await logs.wait("All API groups are available again.")
    assert len(logs.find("Some API groups are unavailable.*")) == 1


def count_discoveries(operator: Operator) -> list[str]:
    """The paths of the discovery from now on."""
    paths: list[str] = []

    def note_path(call: Any, request: Request) -> None:
        path = "/".join(request.path)
        if path in ("api", "apis", "apis/example.com", "apis/kopf.dev"):
            paths.append(path)

    operator.cluster.faults.advisers.append(note_path)
    return paths


@pytest.mark.fastforward
async def test_aggregated_apis_that_are_registered_later_are_served(
    operator: Operator, api: API, calls: Calls, logs: Logs
) -> None:
    """There are no events of definitions then. The absence is logged once, and costs nothing after the end."""
    define(operator.cluster, "temps", group="example.com")
    await create(api, "temps", "a", group="example.com")
    note(calls, "example.com", "temps")
    rule = operator.cluster.faults.inject(404, path="^/apis/example.com(/v1)?$")
    await operator.launch()
    await logs.wait("No resource is found for 'temps' of example.com.*")
    await asyncio.sleep(60)
    paths = count_discoveries(operator)
    await asyncio.sleep(600)
    assert 9 <= paths.count("apis/example.com") <= 10
    assert not calls
    operator.cluster.faults.remove(rule)
    await asyncio.sleep(61)
    assert calls == [("temps.v1.example.com", "a")]
    assert len(logs.find("No resource is found.*")) == 1
    assert not logs.find("Cannot discover the resources.*")
    paths.clear()
    await asyncio.sleep(3600)
    assert not paths


@pytest.mark.fastforward
@pytest.mark.parametrize("case", ["disabled", "built-in", "everything", "category"])
async def test_nothing_is_looked_for_that_nobody_waits_for(
    operator: Operator, kex: Objects, calls: Calls, case: str
) -> None:
    """Built-in groups do not change; of several kinds, nobody knows how many there must be."""
    note(calls, "kopf.dev", "kopfexamples")
    if case == "disabled":
        operator.set("scanning.disabled", True)
        note(calls, "example.com", "temps")
    elif case == "built-in":
        note(calls, "apps", "temps")
    elif case == "everything":
        note(calls, "example.com", kopf.EVERYTHING)
    else:
        note(calls, category="temporary")
    await kex.create()
    await operator.start()
    await calls.wait_length(1)
    await asyncio.sleep(60)
    paths = count_discoveries(operator)
    await asyncio.sleep(3600)
    assert not paths


@pytest.mark.fastforward
async def test_terminating_resources_are_served_until_they_are_gone(operator: Operator, api: API, calls: Calls) -> None:
    """Otherwise, the objects with our finalizers would never let them go."""
    release = asyncio.Event()

    @kopf.on.delete("temps")
    async def fn(name: str, **_: Any) -> None:
        calls.append(f"{name} begins")
        await release.wait()
        calls.append(f"{name} ends")

    define(operator.cluster, "temps")
    await operator.start(watching=("temps",))
    async with watch(api, "Temp", "temps") as temps:
        for name in ("a", "b"):
            await temps.create(name)
            await temps.wait(lambda obj: get_finalizers(obj) == [FINALIZER], name)
        await undefine(api, "temps")
        await calls.wait_length(2)
        await asyncio.sleep(10)  # longer than it takes to notice that the definition has changed
        release.set()
        await calls.wait_length(4)
        await wait_undefined(api)
    assert sorted(calls) == ["a begins", "a ends", "b begins", "b ends"]


@pytest.mark.parametrize("is_permitted", [True, False])
async def test_results_are_saved_when_the_status_subresource_is_switched_off(
    operator: Operator, api: API, calls: Calls, is_permitted: bool
) -> None:
    """As for deleted objects, the server answers 404."""
    define(operator.cluster, "temps", status=True)
    if not is_permitted:
        operator.cluster.faults.inject(403, resource="customresourcedefinitions", agent="kopf/")

    @kopf.on.create("temps", id="fn")
    async def fn(name: str, **_: Any) -> str:
        calls.append(name)
        if name == "first":
            define(operator.cluster, "temps", status=False)
        return "done"

    await operator.start(watching=("temps",))
    async with watch(api, "Temp", "temps") as temps:
        for name in ("first", "second"):
            await temps.create(name)
            obj = await temps.wait_handled(name)
            assert obj["status"] == {"fn": "done"}
    assert calls == ["first", "second"]


async def test_deleted_objects_cost_few_requests(operator: Operator, api: API) -> None:
    """Once a second, it is checked that they are not missing because of a lost subresource."""
    define(operator.cluster, "temps", status=True)

    @kopf.on.create("temps", id="fn")
    async def fn(name: str, **_: Any) -> str:
        await api.request("DELETE", f"/apis/kopf.dev/v1/namespaces/default/temps/{name}")
        return "done"

    def count(verb: str, resource: str, code: int) -> int:
        return operator.cluster.counters.get((verb, resource, code), 0)

    await operator.start(watching=("temps",))
    before, began = count("get", "", 200), time.monotonic()
    for number in range(20):
        await create(api, "temps", f"obj{number}")
    async with asyncio.timeout(PATIENCE):
        while count("patch", "temps/status", 404) < 20:
            await asyncio.sleep(0.01)
    others = 5  # it discovers a few times, as the definition is new
    assert count("get", "", 200) - before <= time.monotonic() - began + 1 + others


@pytest.mark.parametrize("is_permitted", [True, False])
@pytest.mark.parametrize("way", ["result", "functions", "spec"])
async def test_results_are_saved_when_the_status_subresource_is_switched_on_meanwhile(
    operator: Operator, api: API, calls: Calls, logs: Logs, way: str, is_permitted: bool
) -> None:
    """The server accepts the patch of the whole object, but ignores its status."""
    define(operator.cluster, "temps", status=False)
    if not is_permitted:
        operator.cluster.faults.inject(403, resource="customresourcedefinitions", agent="kopf/")

    def count(body: Any) -> None:
        status = body.setdefault("status", {})
        status["count"] = status.get("count", 0) + 1
        body["metadata"].setdefault("labels", {})["count"] = str(status["count"])

    @kopf.on.create("temps", id="fn")
    async def fn(name: str, patch: kopf.Patch, **_: Any) -> str:
        calls.append(name)
        if name == "first":
            define(operator.cluster, "temps", status=True)
        if way == "functions":
            patch.fns.append(count)
        if way == "spec":
            patch.spec["field"] = "changed"
        return "done"

    await operator.start(watching=("temps",))
    async with watch(api, "Temp", "temps") as temps:
        for name in ("first", "second"):
            await temps.create(name)
            obj = await temps.wait(lambda obj: (obj.get("status") or {}).get("fn") == "done", name)
            assert obj["status"] == ({"fn": "done", "count": 1} if way == "functions" else {"fn": "done"})
            assert obj["metadata"].get("labels") == ({"count": "1"} if way == "functions" else None)
            assert obj["spec"]["field"] == ("changed" if way == "spec" else "value")
    assert calls == ["first", "second"]
    await operator.stop()
    assert not logs.find("The API drops.*")


async def test_dropped_statuses_cost_few_requests(operator: Operator, api: API, logs: Logs) -> None:
    """Once a second, it is checked that they are not ignored because of a new subresource."""
    logs.expected.append("The API drops the field")
    definition = make_crd("Temp", "temps")
    definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object"}}
    operator.cluster.apply(definition)
    kopf.on.create("temps", id="fn")(lambda **_: "done")
    await operator.start(watching=("temps",))
    before, began = operator.cluster.counters["get", "", 200], time.monotonic()
    async with watch(api, "Temp", "temps") as temps:
        names = [f"obj{number}" for number in range(20)]
        for name in names:
            await create(api, "temps", name)
        await temps.wait_all_handled(names)
    others = 5  # it discovers a few times, as the definition is new
    assert operator.cluster.counters["get", "", 200] - before <= time.monotonic() - began + 1 + others
