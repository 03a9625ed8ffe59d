"""Patches: what handlers change on the object, how it is sent, and what happens if it conflicts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import FINALIZER, Objects, get_annotations, get_finalizers
from tests.behaviour.running import Calls, Logs, Operator

pytestmark = pytest.mark.lagging


async def test_all_stanzas(operator: Operator, sub: Objects) -> None:
    @kopf.on.create("kopfstatusexamples", id="fn")
    def fn(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["added"] = {"deep": [1]}
        patch.spec["field"] = None
        patch.status["counter"] = 1
        patch.meta.labels["added"] = "label"
        patch.meta.labels["removed"] = None
        patch.metadata.annotations["added"] = "annotation"
        patch["extra"] = {"top": "level"}

    await operator.start_and_create(sub, labels={"removed": "label", "kept": "label"})
    await sub.wait(lambda obj: "kopf.zalando.org/last-handled-configuration" in get_annotations(obj))
    obj = await sub.get()
    assert obj["spec"] == {"added": {"deep": [1]}}
    assert obj["status"] == {"counter": 1}
    assert obj["metadata"]["labels"] == {"added": "label", "kept": "label"}
    assert get_annotations(obj)["added"] == "annotation"
    assert obj["extra"] == {"top": "level"}


async def test_patches_of_failed_attempts_are_applied_too(operator: Operator, kex: Objects) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    def fn(patch: kopf.Patch, retry: int, **_: Any) -> None:
        patch.status[f"attempt{retry}"] = True
        if not retry:
            raise kopf.TemporaryError("not yet", delay=0)
        raise kopf.PermanentError("never")

    obj = await operator.start_and_handle(kex)
    assert obj["status"] == {"attempt0": True, "attempt1": True}


async def test_patches_of_raw_event_handlers(operator: Operator, sub: Objects, calls: Calls) -> None:
    @kopf.on.event("kopfstatusexamples", id="fn")
    def fn(patch: kopf.Patch, event: kopf.RawEvent, spec: kopf.Spec, **_: Any) -> None:
        calls.append(event["type"])
        if event["type"] == "ADDED":
            patch.status["seen"] = True
            patch.spec["field"] = "patched"
            patch.fns.append(lambda body: body["metadata"].setdefault("labels", {}).update(label="added"))

    await operator.start_and_create(sub)
    obj = await sub.wait(
        lambda obj: obj.get("status") and obj["spec"]["field"] == "patched" and "labels" in obj["metadata"]
    )
    assert obj["status"] == {"seen": True}
    assert obj["metadata"]["labels"] == {"label": "added"}
    assert calls[0] == "ADDED"


async def test_conflicting_patches_of_raw_event_handlers_are_applied_to_the_fresh_state(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.event("kopfexamples", id="fn")
    async def fn(patch: kopf.Patch, event: kopf.RawEvent, **_: Any) -> None:
        calls.append(event["type"])
        if event["type"] == "ADDED":
            await kex.merge({"spec": {"items": ["theirs"]}})
            patch.fns.append(lambda body: body["spec"]["items"].append("ours"))

    await operator.start_and_create(kex, spec={"items": []})
    obj = await kex.wait(lambda obj: "ours" in obj["spec"]["items"])
    assert obj["spec"]["items"] == ["theirs", "ours"]
    await calls.wait_length(3)
    assert calls == ["ADDED", "MODIFIED", "MODIFIED"]


async def test_changes_by_handlers_themselves_are_changes_of_the_object(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    """The last handled state is the one that was handled, so the handler's own change is an update then."""

    @kopf.on.create("kopfexamples")
    def create_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["field"] = "patched"

    kopf.on.update("kopfexamples")(lambda diff, **_: calls.append(diff))
    await operator.start_and_create(kex)
    await kex.wait_handled(field="patched")
    assert calls == [(("change", ("spec", "field"), "value", "patched"),)]


async def test_functions_transform_lists(operator: Operator, sub: Objects) -> None:
    def add_condition(body: dict[str, Any]) -> None:
        body.setdefault("status", {}).setdefault("conditions", []).append({"type": "Ready", "status": "True"})

    def drop_item(body: dict[str, Any]) -> None:
        body["spec"]["items"].remove("b")

    @kopf.on.create("kopfstatusexamples", id="fn")
    def fn(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["merged"] = True
        patch.status["merged"] = True
        patch.fns.append(add_condition)
        patch.fns.append(drop_item)

    await operator.start_and_create(sub, spec={"items": ["a", "b", "c"]})
    await sub.wait(lambda obj: obj["spec"].get("items") == ["a", "c"])
    await sub.wait(lambda obj: "kopf.zalando.org/last-handled-configuration" in get_annotations(obj))
    obj = await sub.get()
    assert obj["spec"] == {"items": ["a", "c"], "merged": True}
    assert obj["status"] == {"merged": True, "conditions": [{"type": "Ready", "status": "True"}]}


async def test_functions_with_nothing_to_change_make_no_requests(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.event("kopfexamples", id="fn")
    def fn(patch: kopf.Patch, event: kopf.RawEvent, **_: Any) -> None:
        calls.append(event["type"])
        patch.fns.append(lambda body: calls.append("transformed"))

    await operator.start_and_create(kex)
    await kex.delete()
    await calls.wait(lambda items: "DELETED" in items)
    assert ("patch", "kopfexamples", 200) not in operator.cluster.counters


async def test_conflicting_functions_are_applied_to_the_fresh_state_without_running_the_handler_again(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    def add_item(body: dict[str, Any]) -> None:
        calls.append(("transformed", [*body["spec"]["items"]]))
        body["spec"]["items"].append("ours")

    @kopf.on.create("kopfexamples", id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> str:
        calls.append("called")
        patch.fns.append(add_item)
        await kex.merge({"spec": {"items": ["a", "theirs"]}})
        return "done"

    await operator.start_and_create(kex, spec={"items": ["a"]})
    obj = await kex.wait(lambda obj: "ours" in obj["spec"]["items"])
    assert obj["spec"]["items"] == ["a", "theirs", "ours"]
    await kex.wait_handled()
    assert calls.items.count("called") == 1
    assert ("transformed", ["a", "theirs"]) in calls
    assert (await kex.get())["status"] == {"fn": "done"}
    assert not logs.get_messages("obj", level=30)


@pytest.mark.fastforward
async def test_after_many_conflicts_the_fresh_state_is_gone_on_from_at_once(
    operator: Operator,
    kex: Objects,
    cluster: LocalCluster,
    logs: Logs,
) -> None:
    """As long as it does not come, each attempt is a conflict, and the delays grow."""
    logs.expected.append("could not be handled")
    clock = asyncio.get_running_loop().time
    written = 0.0

    @kopf.on.create("kopfexamples", id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        nonlocal written
        patch.fns.append(lambda body: body["spec"].update(field="ours"))
        cluster.faults.lag_watches(40)  # attempts are made after 34 and 55 seconds
        await kex.merge({"metadata": {"labels": {"their": "label"}}})
        written = clock()

    await operator.start_and_create(kex)
    while (await kex.get())["spec"]["field"] != "ours":
        await asyncio.sleep(1)
    assert 39 < clock() - written < 45


async def test_functions_are_applied_once(operator: Operator, objects: Objects) -> None:
    @kopf.on.create(objects.plural, id="a")
    @kopf.on.create(objects.plural, id="b")
    @kopf.on.create(objects.plural, id="c")
    def fn(patch: kopf.Patch, **_: Any) -> None:
        patch.fns.append(lambda body: body.setdefault("status", {}).setdefault("items", []).append("x"))

    await operator.start_and_handle(objects)
    obj = await objects.wait(lambda obj: len(obj.get("status", {}).get("items", [])) >= 3)
    assert obj["status"]["items"] == ["x", "x", "x"]


async def test_merge_patches_do_not_conflict(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        calls.append("called")
        patch.spec["ours"] = True
        await kex.merge({"spec": {"theirs": True}})

    await operator.start_and_create(kex)
    obj = await kex.wait(lambda obj: "ours" in obj["spec"])
    assert obj["spec"] == {"field": "value", "ours": True, "theirs": True}
    assert calls == ["called"]


async def test_one_request_for_everything_of_one_cycle(operator: Operator, kex: Objects, sub: Objects) -> None:
    @kopf.on.create("kopfexamples")
    @kopf.on.create("kopfstatusexamples")
    def create_fn(patch: kopf.Patch, **_: Any) -> str:
        patch.spec["field"] = "patched"
        patch.status["more"] = "status"
        return "result"

    @kopf.on.delete("kopfexamples")
    @kopf.on.delete("kopfstatusexamples")
    def delete_fn(**_: Any) -> None:
        pass

    await operator.start(watching=("kopfexamples", "kopfstatusexamples"))
    for objects in (kex, sub):
        await objects.create()
        obj = await objects.wait_handled(field="patched")
        assert get_finalizers(obj) == [FINALIZER]
    await operator.stop()
    counters = operator.cluster.counters
    # The finalizer; then the result, the patch, and the end of the handling; then its change is noted.
    assert counters["patch", "kopfexamples", 200] == 3
    # The same, but the status is a request of its own.
    assert counters["patch", "kopfstatusexamples", 200] == 3
    assert counters["patch", "kopfstatusexamples/status", 200] == 1
