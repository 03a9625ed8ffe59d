"""Selectors that the server applies as all handlers agree on them: the handlers must not notice the difference."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from typing import Any

import pytest

import kopf
from kopf._controller import deselected_objects
from tests.behaviour.objects import API, FINALIZER, Objects, get_finalizers
from tests.behaviour.running import Calls, Logs, Operator, do_nothing

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]

MATCHING = {"match": "yes"}
PUSHED = "For kopfexamples.* the server selects only .*"


@pytest.fixture(params=[True, False], ids=["pushed", "unpushed"])
def pushing(request: pytest.FixtureRequest, operator: Operator) -> bool:
    """Whether the selectors are pushed: in each of the tests, it makes no difference."""
    operator.set("watching.push_selectors", request.param)
    return bool(request.param)


async def label(kex: Objects, value: str | None, name: str = "obj") -> None:
    await kex.merge({"metadata": {"labels": {"match": value}}}, name)


def count_lists(operator: Operator) -> int:
    return operator.cluster.counters.get(("list", "kopfexamples", 200), 0)


@pytest.mark.lagging(False)
async def test_only_what_matches_is_requested(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    pushing: bool,
) -> None:
    fn = calls.noting(lambda name, reason=None, **_: (name, str(reason)))
    kopf.on.create("kopfexamples", labels=MATCHING)(fn)
    kopf.on.event("kopfexamples", labels=MATCHING)(fn)
    await kex.create("old", labels=MATCHING)
    await kex.create("other")
    await operator.start_and_create(kex, "new", labels=MATCHING)
    await kex.create("another", labels={"match": "no"})
    await calls.wait(lambda items: {("old", "create"), ("new", "create")} <= {*items})
    assert {name for name, _ in calls} == {"old", "new"}
    assert len(logs.find(PUSHED + "labelSelector='match=yes'.")) == pushing


async def test_leaving_and_coming_back(operator: Operator, kex: Objects, calls: Calls, pushing: bool) -> None:
    events: list[str | None] = []

    @kopf.index("kopfexamples", labels=MATCHING)
    async def index_fn(name: str, **_: Any) -> str:
        return name

    @kopf.on.event("kopfexamples", labels=MATCHING)
    async def event_fn(type: str | None, **_: Any) -> None:
        events.append(type)

    @kopf.daemon("kopfexamples", labels=MATCHING, optional=True)
    async def daemon_fn(
        stopped: kopf.AsyncDaemonStopperChecker,
        memo: kopf.Memo,
        index_fn: kopf.Index[None, str],
        **_: Any,
    ) -> None:
        memo["count"] = memo.get("count", 0) + 1
        calls.append(("started", memo["count"], [*index_fn.get(None, ())]))
        await stopped.wait()
        calls.append(("stopped", stopped.reason, [*index_fn.get(None, ())]))

    await operator.start_and_create(kex, labels=MATCHING)
    for number in range(1, 4):
        await calls.wait_length(number * 2 - 1)
        await label(kex, None if number % 2 else "no")
        await calls.wait_length(number * 2)
        assert "DELETED" not in events
        await label(kex, "yes")
    await calls.wait_length(7)
    await kex.delete()
    await calls.wait_length(8)
    reason = kopf.DaemonStoppingReason
    mismatch, deleted = reason.FILTERS_MISMATCH, reason.RESOURCE_DELETED
    assert calls == [
        ("started", 1, ["obj"]),
        ("stopped", mismatch, []),
        ("started", 2, ["obj"]),
        ("stopped", mismatch, []),
        ("started", 3, ["obj"]),
        ("stopped", mismatch, []),
        ("started", 4, ["obj"]),
        ("stopped", deleted, []),
    ]
    while events[-1] != "DELETED":
        await asyncio.sleep(0.1)
    assert {*events[1:-1]} <= {"MODIFIED"}


async def test_leaving_while_it_is_retried(operator: Operator, kex: Objects, calls: Calls, pushing: bool) -> None:
    kopf.on.create("kopfexamples", labels=MATCHING)(
        calls.noting(lambda retry, **_: retry, error=kopf.TemporaryError("not yet", delay=30), times=3)
    )
    await operator.start_and_create(kex, labels=MATCHING)
    await calls.wait_length(2)
    await label(kex, None)
    await asyncio.sleep(100)
    assert calls == [0, 1]
    await label(kex, "yes")
    await calls.wait_length(4)
    await kex.wait_handled()
    assert calls == [0, 1, 2, 3]


async def test_handlers_that_remove_the_label(operator: Operator, kex: Objects, calls: Calls, pushing: bool) -> None:
    """Such objects are out of sight with the very own write; the operator must not wait for its echo."""

    @kopf.on.create("kopfexamples", labels=MATCHING)
    async def fn(patch: kopf.Patch, retry: int, **_: Any) -> None:
        calls.append(retry)
        patch.meta.labels["match"] = None

    kopf.on.update("kopfexamples", labels=MATCHING)(calls.noting("update"))
    await operator.start_and_create(kex, labels=MATCHING)
    await kex.wait(lambda obj: "match" not in obj["metadata"].get("labels", {}))
    await asyncio.sleep(30)
    assert calls == [0]
    await kex.merge({"metadata": {"labels": {"match": "yes"}}, "spec": {"field": "other"}})
    await calls.wait_length(2)
    assert calls == [0, "update"]


async def test_what_vanished_while_nobody_watched(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    pushing: bool,
) -> None:
    kopf.on.event("kopfexamples", labels=MATCHING)(calls.noting(lambda name, type, **_: (name, type)))

    @kopf.index("kopfexamples", labels=MATCHING)
    async def index_fn(name: str, **_: Any) -> dict[str, str]:
        return {name: name}

    indices: list[kopf.Index[str, str]] = []

    @kopf.on.startup()
    async def startup_fn(index_fn: kopf.Index[str, str], **_: Any) -> None:
        indices.append(index_fn)

    await operator.start()
    for name in ("left", "gone", "recreated", "returned"):
        await kex.create(name, labels=MATCHING)
    await calls.wait_length(4)
    rule = operator.cluster.faults.inject(503, path=r"/v1/kopfexamples$")
    operator.cluster.faults.cut_watches()
    for name in ("left", "returned"):
        await label(kex, None, name)
    for name in ("gone", "recreated"):
        await kex.delete_and_wait(name)
    await kex.create("recreated", labels=MATCHING)
    await label(kex, "yes", "returned")
    operator.cluster.faults.compact()
    operator.cluster.faults.remove(rule)
    expected = {("gone", "DELETED"), ("recreated", "DELETED"), ("returned", "MODIFIED")}
    await calls.wait(lambda items: expected <= {*items})
    await calls.wait(lambda items: items.count(("recreated", "ADDED")) == 2)
    while "left" in indices[0]:
        await asyncio.sleep(1)
    assert ("left", "DELETED") not in calls
    assert ("returned", "DELETED") not in calls
    assert {*indices[0]} == {"recreated", "returned"}


@pytest.mark.lagging(False)
@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "existing"])
async def test_finalizers_of_what_has_lost_the_label_while_the_operator_was_down(
    operator: Operator,
    kex: Objects,
    pushing: bool,
    deleted: bool,
) -> None:
    """An earlier version of the operator needed them."""
    kopf.on.event("kopfexamples", labels=MATCHING)(do_nothing)
    await kex.create("blocked", finalizers=[FINALIZER])
    await kex.create("strange", finalizers=["example.com/other"])
    if deleted:
        await kex.delete("blocked")
    await operator.start()
    if deleted:
        await kex.wait_gone("blocked")
    else:
        await kex.wait(lambda obj: not get_finalizers(obj), name="blocked")
    assert get_finalizers(await kex.get("strange")) == ["example.com/other"]


async def test_finalizers_that_others_put_on_what_has_left(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    pushing: bool,
) -> None:
    kopf.on.event("kopfexamples", labels=MATCHING)(calls.noting("event"))
    await operator.start_and_create(kex, labels=MATCHING)
    await calls.wait_length(1)
    await kex.merge({"metadata": {"labels": None, "finalizers": [FINALIZER]}})
    await kex.wait(lambda obj: not get_finalizers(obj))
    await kex.merge({"metadata": {"finalizers": [FINALIZER]}})
    await kex.wait(lambda obj: not get_finalizers(obj))


@pytest.mark.lagging(False)
async def test_nothing_is_kept_of_those_that_have_left_and_are_deleted_then(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    pushing: bool,
) -> None:
    values: list[weakref.ref[Any]] = []

    class Value:
        pass

    @kopf.on.event("kopfexamples", labels={"skip": kopf.ABSENT})
    async def fn(memo: kopf.Memo, type: str | None, **_: Any) -> None:
        calls.append(type)
        memo.value = value = Value()
        values.append(weakref.ref(value))

    await operator.start_and_create(kex)
    await calls.wait_length(1)
    await kex.merge({"metadata": {"labels": {"skip": "it"}}})
    await asyncio.sleep(30)
    gc.collect()
    assert values[0]() is not None  # it can come back
    await kex.delete()
    await asyncio.sleep(3600)
    gc.collect()
    assert values[0]() is None
    assert [item for item in calls if item == "DELETED"] == []  # it did not match anymore
    await operator.stop()


async def test_the_api_is_not_available_when_it_is_needed(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.event("kopfexamples", labels=MATCHING)(calls.noting(lambda name, type, **_: (name, type)))
    await operator.start()
    for name in ("one", "two", "three"):
        await kex.create(name, labels=MATCHING)
    await calls.wait_length(3)
    operator.cluster.faults.inject(503, verb="list", resource="kopfexamples", times=20)
    await label(kex, None, "one")
    await kex.delete("two")
    await label(kex, "no", "three")
    await label(kex, "yes", "three")
    await calls.wait(lambda items: ("two", "DELETED") in items and items[-1] == ("three", "MODIFIED"))
    assert ("one", "DELETED") not in calls
    assert ("three", "DELETED") not in calls


@pytest.mark.lagging(False)
async def test_the_permission_is_lost_when_it_is_needed(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    kopf.on.event("kopfexamples", labels=MATCHING)(calls.noting(lambda name, type, **_: (name, type)))
    logs.expected.append("Cannot watch")
    await operator.start_and_create(kex, "one", labels=MATCHING)
    await kex.create("two", labels=MATCHING)
    await calls.wait_length(2)
    rule = operator.cluster.faults.inject(403, verb="list", resource="kopfexamples")
    await label(kex, None, "one")
    await kex.delete("two")
    await logs.wait("Cannot watch kopfexamples.*")
    operator.cluster.faults.remove(rule)
    await calls.wait(lambda items: ("two", "DELETED") in items)
    assert ("one", "DELETED") not in calls


@pytest.mark.lagging(False)
async def test_many_that_vanish_together_are_not_looked_for_one_by_one(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kopf.on.event("kopfexamples", labels=MATCHING)(calls.noting(lambda name, type, **_: (name, type)))
    monkeypatch.setattr(deselected_objects, "_MANY", 50)
    names = [f"obj{number}" for number in range(60)]
    for name in names:
        await kex.create(name, labels=MATCHING)
    await operator.start()
    await calls.wait_length(60)
    rule = operator.cluster.faults.inject(503, path=r"/v1/kopfexamples$")
    operator.cluster.faults.cut_watches()
    for name in names:
        await kex.delete(name)
    operator.cluster.faults.compact()
    before = count_lists(operator)
    operator.cluster.faults.remove(rule)
    await calls.wait(lambda items: Counter(type for _, type in items)["DELETED"] == 60)
    assert count_lists(operator) - before < 20


@pytest.mark.lagging(False)
async def test_vanished_namespaces(operator: Operator, api: API, calls: Calls, pushing: bool) -> None:
    """Nothing is left of what has left before that."""
    values: list[weakref.ref[Any]] = []

    class Value:
        pass

    @kopf.on.event("kopfexamples", labels=MATCHING)
    async def fn(memo: kopf.Memo, **_: Any) -> None:
        memo.value = value = Value()
        values.append(weakref.ref(value))
        calls.append("event")

    path = "/apis/kopf.dev/v1/namespaces/ns1/kopfexamples"
    await api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "ns1"}})
    await operator.start(clusterwide=False, namespaces=["ns1"])
    head = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample"}
    await api.request("POST", path, {**head, "metadata": {"name": "obj", "labels": MATCHING}})
    await calls.wait_length(1)
    await api.request("PATCH", f"{path}/obj", {"metadata": {"labels": None}}, "application/merge-patch+json")
    await asyncio.sleep(5)
    await api.request("DELETE", "/api/v1/namespaces/ns1")
    while True:
        gc.collect()
        if values[0]() is None:
            break
        await asyncio.sleep(1)


@pytest.mark.lagging(False)
async def test_names_are_selected_by_the_server(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    pushing: bool,
) -> None:
    fn = calls.noting(lambda name, type=None, **_: (name, type))
    kopf.on.create("kopfexamples", field="metadata.name", value="one")(fn)
    kopf.on.event("kopfexamples", field="metadata.name", value="one")(fn)
    await operator.start()
    for name in ("one", "two"):
        await kex.create(name)
        if name == "one":
            await kex.wait_handled(name)
        await kex.delete(name)
    await calls.wait(lambda items: ("one", "DELETED") in items)
    assert {name for name, _ in calls} == {"one"}
    assert len(logs.find(PUSHED + "fieldSelector='metadata.name=one'.")) == pushing


@pytest.mark.lagging(False)
async def test_selectors_of_the_settings_are_respected(operator: Operator, kex: Objects, calls: Calls) -> None:
    """What they exclude, does not exist for the operator."""
    kopf.on.event("kopfexamples", labels=MATCHING)(calls.noting(lambda name, type, **_: (name, type)))
    operator.set("watching.label_selectors", {"kopfexamples.kopf.dev": "own"})
    await operator.start_and_create(kex, "other", labels=MATCHING)
    await kex.create("one", labels={**MATCHING, "own": ""})
    await kex.create("two", labels={**MATCHING, "own": ""})
    await calls.wait_length(2)
    await kex.merge({"metadata": {"labels": {"own": None}}}, "one")
    await label(kex, None, "two")
    await label(kex, "yes", "two")
    await calls.wait(lambda items: {("one", "DELETED"), ("two", "MODIFIED")} <= {*items})
    assert ("two", "DELETED") not in calls
    assert {name for name, _ in calls} == {"one", "two"}


@pytest.mark.lagging(False)
async def test_blocking_handlers_push_nothing(operator: Operator, kex: Objects, calls: Calls, logs: Logs) -> None:
    kopf.on.delete("kopfexamples", labels=MATCHING)(calls.noting("deleted"))
    await operator.start_and_create(kex, labels=MATCHING)
    await kex.wait(lambda obj: get_finalizers(obj) == [FINALIZER])
    await label(kex, None)
    await kex.wait(lambda obj: not get_finalizers(obj))
    assert not logs.find(PUSHED)
