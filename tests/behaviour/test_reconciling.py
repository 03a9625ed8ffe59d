"""Reconciling: what is yielded for an object is there; what is not yielded anymore is not; others' objects stay."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, MERGE_PATCH, Obj, Objects, Refused, get_essence
from tests.behaviour.running import Calls, Logs, Operator, get_pauses, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]

PATH = "/api/v1/namespaces/default/configmaps"


def make_map(name: str, **data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def list_maps(api: API) -> dict[str, Obj]:
    """All of them by their names, but for those that are in each namespace."""
    items = (await api.request("GET", PATH))["items"]
    items = [{"apiVersion": "v1", "kind": "ConfigMap", **item} for item in items]
    return {item["metadata"]["name"]: item for item in items if not item["metadata"]["name"].startswith("kube-")}


async def edit(api: API, name: str, patch: Obj) -> Obj:
    return await api.request("PATCH", f"{PATH}/{name}", patch, MERGE_PATCH)  # type: ignore[no-any-return]


def declare_yielding(form: str, calls: Calls, name: Any = "kopfexamples", **options: Any) -> None:
    """Declare a reconciler in any of the forms that it can have."""

    def make(spec: Any) -> list[Obj]:
        calls.append("called")
        return [make_map(item, key=value) for item, value in spec["items"].items()]

    async def yielding(spec: Any, **_: Any) -> AsyncGenerator[Obj, Obj]:
        for item in make(spec):
            child = yield item
            assert child["data"]["key"] == item["data"]["key"]

    def yielding_in_thread(spec: Any, **_: Any) -> Generator[Obj, Obj, None]:
        for item in make(spec):
            child = yield item
            assert child["data"]["key"] == item["data"]["key"]

    async def returning(spec: Any, **_: Any) -> list[Obj]:
        return make(spec)

    def returning_in_thread(spec: Any, **_: Any) -> list[Obj]:
        return make(spec)

    fns: dict[str, Any] = {fn.__name__: fn for fn in (yielding, yielding_in_thread, returning, returning_in_thread)}
    fns |= {"wrapping_yielding": lambda **_: yielding(**_), "wrapping_returning": lambda **_: returning(**_)}
    kopf.reconcile(name, owns="configmaps", id="fn", **options)(fns[form])


async def start_yielding(operator: Operator, kex: Objects, calls: Calls, items: Obj, **options: Any) -> Obj:
    """Start with such a reconciler, and wait until there are these children of an object; get the object."""
    declare_yielding("yielding", calls, **options)
    await operator.start(watching=("kopfexamples", "configmaps"))
    return await kex.create_and_wait(spec={"items": items})


@pytest.mark.lagging(False)
@pytest.mark.parametrize(
    "form",
    [
        "yielding",
        "yielding_in_thread",
        "returning",
        "returning_in_thread",
        "wrapping_yielding",
        "wrapping_returning",
    ],
)
async def test_children_follow_what_is_yielded(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
    form: str,
) -> None:
    declare_yielding(form, calls)
    await operator.start(watching=("kopfexamples", "configmaps"))
    parent = await kex.create_and_wait(spec={"items": {"a": "1", "b": "2"}})
    await asyncio.sleep(10)
    assert calls == ["called"], "own writes are no reason to be called again"
    maps = await list_maps(api)
    assert {name: item["data"] for name, item in maps.items()} == {"a": {"key": "1"}, "b": {"key": "2"}}
    for item in maps.values():
        assert item["metadata"]["labels"] == {"kopf.dev/reconciler": "fn"}
        assert [ref["uid"] for ref in item["metadata"]["ownerReferences"]] == [parent["metadata"]["uid"]]

    await kex.merge({"spec": {"items": {"a": None, "b": "3", "c": "4"}}})
    await asyncio.sleep(10)
    assert {name: item["data"] for name, item in (await list_maps(api)).items()} == {
        "b": {"key": "3"},
        "c": {"key": "4"},
    }
    assert set((await kex.get())["metadata"]["annotations"]) == {"kopf.zalando.org/last-handled-configuration"}


async def test_changes_by_others_are_undone_once(operator: Operator, kex: Objects, calls: Calls, api: API) -> None:
    await start_yielding(operator, kex, calls, {"a": "1", "b": "2"})
    edited = await edit(api, "a", {"data": {"key": "x", "other": "y"}})
    await asyncio.sleep(10)
    mended = (await list_maps(api))["a"]
    assert mended["data"] == {"key": "1", "other": "y"}
    await asyncio.sleep(100)
    assert (await list_maps(api))["a"] == mended != edited
    await api.request("DELETE", f"{PATH}/b")
    await asyncio.sleep(2)
    assert set(await list_maps(api)) == {"a", "b"}


@dataclasses.dataclass
class Status:
    conditions: kopf.ConditionList = dataclasses.field(default_factory=list)


class Modelled(
    kopf.CustomResource[dict[str, Any], Status],
    group="kopf.dev",
    version="v1",
    kind="KopfStatusExample",
    plural="kopfstatusexamples",
):
    """It has conditions, which are set by default."""


@pytest.mark.parametrize("name", ["kopfstatusexamples", Modelled])
async def test_restarts_write_nothing(operator: Operator, sub: Objects, calls: Calls, api: API, name: Any) -> None:
    declare_yielding("yielding", calls, name)
    await operator.start(watching=("kopfstatusexamples", "configmaps"))
    await sub.create_and_wait(spec={"items": {"a": "1", "b": "2"}})
    await asyncio.sleep(10)
    before, parent = await list_maps(api), await sub.get()
    assert ("status" in parent) is (name is Modelled)
    counters = operator.cluster.counters
    await operator.stop()
    patches = {key: count for key, count in counters.items() if key[0] not in ("get", "list", "watch")}
    await operator.start(watching=("kopfstatusexamples", "configmaps"))
    await calls.wait_length(2)
    await asyncio.sleep(10)
    assert (await list_maps(api), await sub.get()) == (before, parent)
    assert {key: count for key, count in counters.items() if key[0] not in ("get", "list", "watch")} == patches


async def test_relistings_write_nothing(operator: Operator, kex: Objects, calls: Calls, api: API) -> None:
    await start_yielding(operator, kex, calls, {"a": "1", "b": "2"})
    before, count = await list_maps(api), len(calls)
    listings, writes = count_requests(operator, "list", "configmaps"), count_requests(operator, "patch", "configmaps")
    for number in range(3):
        operator.cluster.faults.cut_watches()
        await api.request("POST", PATH, make_map(f"foreign{number}"))
        operator.cluster.faults.compact()
        await asyncio.sleep(100)
    assert count_requests(operator, "list", "configmaps") > listings, "it had to begin anew"
    assert (count_requests(operator, "patch", "configmaps"), len(calls)) == (writes, count)
    assert {name: item for name, item in (await list_maps(api)).items() if name in before} == before


def count_requests(operator: Operator, verb: str, resource: str) -> int:
    return sum(number for key, number in operator.cluster.counters.items() if key[:2] == (verb, resource))


async def test_what_was_missed_while_down_is_caught_up(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
) -> None:
    await start_yielding(operator, kex, calls, {"a": "1", "b": "2", "c": "3"})
    await operator.stop()
    await kex.merge({"spec": {"items": {"a": None}}})
    await api.request("DELETE", f"{PATH}/b")
    await edit(api, "c", {"data": {"key": "x"}})
    await operator.start(watching=("kopfexamples", "configmaps"))
    await asyncio.sleep(10)
    assert {name: item["data"] for name, item in (await list_maps(api)).items()} == {
        "b": {"key": "2"},
        "c": {"key": "3"},
    }


async def test_foreign_objects_are_left_alone(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
    logs: Logs,
) -> None:
    """Whether they were there before, or have come instead of the child; until they are gone."""
    declare_yielding("yielding", calls)
    foreign = await api.request("POST", PATH, make_map("a", other="x"))
    await operator.start(watching=("kopfexamples", "configmaps"))
    await kex.create(spec={"items": {"b": "1", "a": "2"}})
    await logs.wait(".*ConfigMap default/a exists, and is not owned by this object.*")
    assert await list_maps(api) == {"a": foreign, "b": (await list_maps(api))["b"]}
    await api.request("DELETE", f"{PATH}/a")
    await asyncio.sleep(100)
    assert (await list_maps(api))["a"]["data"] == {"key": "2"}
    await edit(api, "a", {"metadata": {"ownerReferences": None}})
    await asyncio.sleep(10)
    taken = (await list_maps(api))["a"]
    assert "ownerReferences" not in taken["metadata"], "it was taken away by somebody"
    await kex.merge({"spec": {"items": {"a": None}}})
    await asyncio.sleep(100)
    assert (await list_maps(api))["a"] == taken


async def test_foreign_objects_that_are_not_seen_yet_are_left_alone(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
    logs: Logs,
) -> None:
    """They have come instead of the child, and the watch of the children is far behind."""
    await start_yielding(operator, kex, calls, {"a": "1"})
    operator.cluster.faults.lag_watches(10)
    await kex.merge({"spec": {"items": {"a": "2"}}})
    await asyncio.sleep(5)
    await api.request("DELETE", f"{PATH}/a")
    foreign = await api.request("POST", PATH, make_map("a", other="x"))
    await logs.wait(".*ConfigMap default/a was deleted or replaced by others meanwhile.*")
    await logs.wait(".*ConfigMap default/a exists, and is not owned by this object.*")
    assert (await list_maps(api))["a"] == foreign


async def test_children_that_cannot_go_yet(operator: Operator, kex: Objects, calls: Calls, api: API) -> None:
    """They are waited for with no writes, and are made anew when they are gone."""
    await start_yielding(operator, kex, calls, {"a": "1"}, interval=10)
    stuck = await edit(api, "a", {"metadata": {"finalizers": ["example.com/other"]}})
    await api.request("DELETE", f"{PATH}/a")
    await asyncio.sleep(5)
    writes, count = count_requests(operator, "patch", "configmaps"), len(calls)
    await calls.wait_length(count + 5)
    assert count_requests(operator, "patch", "configmaps") == writes
    await edit(api, "a", {"metadata": {"finalizers": None}})
    await asyncio.sleep(5)
    child = (await list_maps(api))["a"]
    assert (child["data"], child["metadata"]["uid"] != stuck["metadata"]["uid"]) == ({"key": "1"}, True)


async def test_children_of_a_predecessor_are_waited_for(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
) -> None:
    """An object is deleted and created anew: the garbage collector is not at once there."""
    parent = await start_yielding(operator, kex, calls, {"a": "1"})
    child = (await list_maps(api))["a"]
    await kex.delete()
    await kex.create(spec={"items": {"a": "2"}})
    await asyncio.sleep(10)
    successor = (await list_maps(api))["a"]
    assert successor["metadata"]["uid"] != child["metadata"]["uid"]
    assert successor["metadata"]["ownerReferences"][0]["uid"] != parent["metadata"]["uid"]


async def test_nothing_is_pruned_if_it_fails_in_the_middle(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
) -> None:
    @kopf.reconcile("kopfexamples", owns="configmaps", backoff=10)
    async def fn(spec: Any, retry: int, **_: Any) -> AsyncIterator[Obj]:
        calls.append(retry)
        for item in spec["items"]:
            if item == "bad" and 3 not in calls.items:
                raise RuntimeError("it is bad")
            yield make_map(item)

    await operator.start(watching=("kopfexamples", "configmaps"))
    await kex.create_and_wait(spec={"items": ["a", "b"]})
    await kex.merge({"spec": {"items": ["c", "bad", "a"]}})
    await calls.wait_length(4)
    assert set(await list_maps(api)) == {"a", "b", "c"}
    await asyncio.sleep(100)
    assert set(await list_maps(api)) == {"a", "c", "bad"}
    assert calls.items[:5] == [0, 0, 1, 2, 3]


async def test_reconcilers_do_not_prune_each_other(operator: Operator, kex: Objects, api: API, logs: Logs) -> None:
    def make(key: str) -> Any:
        async def fn(spec: Any, **_: Any) -> AsyncIterator[Obj]:
            for item in spec[key]:
                yield make_map(item, by=key)

        return fn

    kopf.reconcile("kopfexamples", owns="configmaps", id="x/one")(make("one"))
    kopf.reconcile("kopfexamples", owns="configmaps", id="two")(make("two"))
    await operator.start(watching=("kopfexamples", "configmaps"))
    await kex.create_and_wait(spec={"one": ["a", "b"], "two": ["c", "d"]})
    await kex.merge({"spec": {"one": ["b"], "two": ["d"]}})
    await asyncio.sleep(10)
    assert {name: item["data"] for name, item in (await list_maps(api)).items()} == {
        "b": {"by": "one"},
        "d": {"by": "two"},
    }
    await kex.merge({"spec": {"one": ["d"]}})
    await logs.wait(".*ConfigMap default/d is yielded by another reconciler, 'two'.*")
    assert (await list_maps(api))["d"]["data"] == {"by": "two"}


async def test_children_that_go_while_others_are_deleted(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
    logs: Logs,
) -> None:
    await start_yielding(operator, kex, calls, {"a": "1", "b": "2", "c": "3"})
    operator.cluster.faults.inject(action="delay", verb="delete", resource="configmaps", latency=5, agent="kopf/")
    await kex.merge({"spec": {"items": {"a": None, "b": None}}})
    await asyncio.sleep(2)
    await api.request("DELETE", f"{PATH}/b")
    await asyncio.sleep(30)
    assert set(await list_maps(api)) == {"c"}
    assert not logs.get_messages("obj", level=logging.WARNING)


async def test_other_children_of_children_are_not_pruned(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    api: API,
) -> None:
    """The label of a child is not inherited by its own children, which others have made."""

    @kopf.reconcile("kopfexamples", id="fn", owns="kopfstatusexamples")
    async def parent_fn(**_: Any) -> Obj:
        return {"apiVersion": "kopf.dev/v1", "kind": "KopfStatusExample", "metadata": {"name": "child"}}

    @kopf.on.create("kopfstatusexamples", id="other")
    async def child_fn(**_: Any) -> None:
        await kopf.apply(make_map("applied"))
        adopted = make_map("adopted")
        kopf.adopt(adopted)
        kopf.label(adopted)
        await api.request("POST", PATH, adopted)

    @kopf.reconcile("kopfstatusexamples", id="fn", owns="configmaps")
    async def fn(**_: Any) -> Obj:
        return make_map("yielded")

    await operator.start(watching=("kopfexamples", "kopfstatusexamples", "configmaps"))
    await kex.create(labels={"x": "y"})
    await asyncio.sleep(10)
    await sub.merge({"spec": {"x": 1}}, "child")
    await asyncio.sleep(10)
    maps = await list_maps(api)
    assert {name: item["metadata"]["labels"] for name, item in maps.items()} == {
        "applied": {"x": "y"},
        "adopted": {"x": "y"},
        "yielded": {"x": "y", "kopf.dev/reconciler": "fn"},
    }


@pytest.mark.parametrize("restart", [False, True])
async def test_changes_are_followed_during_a_long_creation(
    operator: Operator, kex: Objects, calls: Calls, api: API, restart: bool
) -> None:
    declare_yielding("yielding", calls)

    @kopf.on.create("kopfexamples")
    async def slow_fn(spec: Any, patch: kopf.Patch, **_: Any) -> None:
        patch.spec["own"] = "mine"
        if "done" not in spec:
            raise kopf.TemporaryError("not yet", delay=1000)

    await operator.start(watching=("kopfexamples", "configmaps"))
    await kex.create(spec={"items": {"a": "1"}})
    await asyncio.sleep(10)
    if restart:
        await operator.restart()
    for items in ({"a": "2"}, {"a": "1"}, {"a": "3", "b": "4"}):
        count = len(calls)
        await kex.merge({"spec": {"items": items}})
        await asyncio.sleep(10)
        assert {name: item["data"]["key"] for name, item in (await list_maps(api)).items()} == items
        assert len(calls) == count + 1
    await kex.merge({"spec": {"done": True}})
    await kex.wait(lambda obj: get_essence(obj) is not None)


async def test_waiting_for_children(operator: Operator, kex: Objects, calls: Calls, api: API) -> None:
    """A child that is not ready ends the call with no failure, and calls again when it is."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "image"}],
                }
            }
        },
    }

    @kopf.reconcile("kopfexamples", owns=["jobs", "configmaps"])
    async def fn(retry: int, **_: Any) -> AsyncIterator[Obj]:
        calls.append(retry)
        child: Any = yield job
        kopf.require_ready(child)
        yield make_map("after")

    await operator.start(watching=("kopfexamples", "configmaps", "jobs"))
    await kex.create_and_wait()
    await asyncio.sleep(100)
    assert (len(calls), await list_maps(api)) == (1, {})
    conditions = [{"type": type_, "status": "True"} for type_ in ("SuccessCriteriaMet", "Complete")]
    times = {"startTime": "2020-01-01T00:00:00Z", "completionTime": "2020-01-01T00:00:00Z"}
    path = "/apis/batch/v1/namespaces/default/jobs/obj/status"
    await api.request("PATCH", path, {"status": {"succeeded": 1, **times, "conditions": conditions}}, MERGE_PATCH)
    await calls.wait_length(2)
    await asyncio.sleep(10)
    assert set(await list_maps(api)) == {"after"}
    assert {*calls} == {0}


@pytest.mark.lagging(False)
async def test_intervals(operator: Operator, kex: Objects, calls: Calls) -> None:
    """They are counted from the end of the last call, whatever it was for."""

    kopf.reconcile("kopfexamples", interval=100)(calls.noting(lambda **_: now()))
    await operator.start_and_handle(kex)
    await calls.wait_length(3)
    await asyncio.sleep(50)
    await kex.merge({"spec": {"field": "other"}})
    await calls.wait_length(5)
    assert [round(pause, -1) for pause in get_pauses(calls)] == [100, 100, 50, 100]
    await kex.delete_and_wait()
    count = len(calls)
    await asyncio.sleep(1000)
    assert len(calls) == count


async def test_used_objects(operator: Operator, kex: Objects, calls: Calls, api: API) -> None:
    """Only those who refer to the changed object are called, and as long as they do."""

    uses = kopf.ref("configmaps", lambda spec, **_: spec.get("config"))
    kopf.reconcile("kopfexamples", uses=uses)(calls.noting(lambda name, **_: name))
    await operator.start(watching=("kopfexamples", "configmaps"))
    await kex.create_and_wait("one", spec={"config": "a"})
    await kex.create_and_wait("two", spec={"config": ["a", "b"]})
    await kex.create_and_wait("none", spec={"other": "a"})
    assert calls == ["one", "two", "none"]
    await api.request("POST", PATH, make_map("a"))
    await calls.wait_length(5)
    assert {*calls.items[3:]} == {"one", "two"}
    await edit(api, "a", {"data": {"key": "x"}})
    await calls.wait_length(7)
    await api.request("POST", PATH, make_map("b"))
    await calls.wait_length(8)
    await kex.change_and_wait("two", config=None)
    await api.request("DELETE", f"{PATH}/a")
    await calls.wait_length(10)
    await api.request("DELETE", f"{PATH}/b")
    await asyncio.sleep(10)
    assert calls.items[7:] == ["two", "two", "one"]


IMPOSSIBLE: dict[str, tuple[Any, str]] = {
    "unowned": ({"apiVersion": "v1", "kind": "Secret"}, ".*yields 'Secret' of 'v1', which is not among its owns=.*"),
    "elsewhere": ({**make_map("a"), "metadata": {"namespace": "other"}}, ".*cannot be owned by an object in the na.*"),
    "nowhere": ({"apiVersion": "v1", "kind": "Namespace"}, ".*cannot be owned by an object in the namespace.*"),
    "text": ("text", ".*str is not supported as a Kubernetes object.*"),
}


@pytest.mark.lagging(False)
async def test_impossible_children(operator: Operator, kex: Objects, logs: Logs, api: API) -> None:
    @kopf.reconcile("kopfexamples", owns=["configmaps", "namespaces"])
    async def fn(name: str, **_: Any) -> AsyncIterator[Any]:
        yield IMPOSSIBLE[name][0]

    await operator.start(watching=("kopfexamples", "configmaps", "namespaces"))
    await kex.create_all(IMPOSSIBLE)
    for name, (_child, error) in IMPOSSIBLE.items():
        await logs.wait(error, name=name)
    assert await list_maps(api) == {}


async def test_conflicts_are_named_and_won(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
    logs: Logs,
) -> None:
    await start_yielding(operator, kex, calls, {"a": "1"})
    path = f"{PATH}/a?fieldManager=someone"
    await api.request("PATCH", path, {"data": {"key": "x"}}, MERGE_PATCH)
    await logs.wait("ConfigMap default/a: .data.key is managed by 'someone'. Kopf takes it over.*")
    await asyncio.sleep(10)
    assert (await list_maps(api))["a"]["data"] == {"key": "1"}
    assert len(calls) == 2


@pytest.mark.lagging(False)
async def test_the_same_child_twice(operator: Operator, kex: Objects, calls: Calls, logs: Logs) -> None:
    kopf.reconcile("kopfexamples", owns="configmaps")(lambda **_: [make_map("a", key="1"), make_map("a", key="2")])
    await operator.start(watching=("kopfexamples", "configmaps"))
    await kex.create()
    await logs.wait(".*ConfigMap default/a is yielded twice.*")


async def test_timers_run_early_when_a_child_has_changed(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    api: API,
) -> None:
    @kopf.timer("kopfexamples", owns="configmaps", interval=1000)
    async def fn(**_: Any) -> None:
        calls.append(asyncio.get_running_loop().time())
        await kopf.apply(make_map("a", key="1"))

    await operator.start(watching=("kopfexamples", "configmaps"))
    await kex.create()
    await calls.wait_length(1)
    await asyncio.sleep(100)
    assert len(calls) == 1
    await api.request("DELETE", f"{PATH}/a")
    await asyncio.sleep(10)
    assert set(await list_maps(api)) == {"a"}
    await calls.wait_length(3)
    assert [round(pause, -2) for pause in get_pauses(calls)] == [100, 1000]


async def test_children_for_other_owners_call_these(operator: Operator, kex: Objects, calls: Calls, api: API) -> None:
    kopf.on.create("kopfexamples", owns="configmaps", labels={"role": "owner"})(
        calls.noting(lambda reason, **_: reason)
    )

    @kopf.on.create("kopfexamples", labels={"role": "helper"})
    async def helper_fn(**_: Any) -> None:
        await kopf.apply(make_map("a"), owner=owner)

    await operator.start(watching=("kopfexamples", "configmaps"))
    owner = await kex.create_and_wait("one", labels={"role": "owner"})
    await kex.create_and_wait("two", labels={"role": "helper"})
    await calls.wait_length(2)
    assert calls == ["create", "resume"]
    with pytest.raises(Refused):
        await api.request("GET", f"{PATH}/two")


@pytest.mark.parametrize("is_new", [True, False])
async def test_an_edit_is_a_reason_to_try_again_at_once(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    is_new: bool,
) -> None:
    """Others wait for their retries; but here, it is usually the cure."""

    @kopf.reconcile("kopfexamples", backoff=10_000)
    async def fn(spec: Any, **_: Any) -> None:
        calls.append(spec.get("size"))
        if spec.get("size") == "wrong":
            raise RuntimeError("it is wrong")

    await operator.start()
    if not is_new:
        await kex.create_and_wait(spec={"size": "good"})
    await (kex.create(spec={"size": "wrong"}) if is_new else kex.merge({"spec": {"size": "wrong"}}))
    await calls.wait(lambda items: "wrong" in items)
    await kex.merge({"metadata": {"labels": {"x": "y"}}})
    await calls.wait(lambda items: items.count("wrong") == 2)
    await kex.merge({"status": {"x": "y"}})
    await asyncio.sleep(100)
    assert calls.items.count("wrong") == 2
    await operator.restart()
    await calls.wait(lambda items: items.count("wrong") == 3)
    await asyncio.sleep(100)
    await kex.merge({"spec": {"size": "better"}})
    await asyncio.sleep(10)
    assert (calls[-1], calls.items.count("wrong")) == ("better", 3)
