"""Conditions that handlers set: by the conventions, those of others are left alone; no write without a change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Obj, Objects
from tests.behaviour.running import Calls, Operator

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


def get_conditions(obj: Obj) -> dict[str, Obj]:
    return {item["type"]: item for item in (obj.get("status") or {}).get("conditions") or []}


def is_ready(obj: Obj) -> bool:
    return get_conditions(obj).get("Ready", {}).get("status") == "True"


def get_subresource(objects: Objects) -> str:
    return "status" if "status" in objects.plural else ""


@pytest.mark.parametrize("is_async", [True, False])
async def test_handlers_of_changes(operator: Operator, objects: Objects, is_async: bool) -> None:
    """The results are stored together with them; the generation is noted if it can be caught up with."""

    def fn(patch: kopf.Patch, spec: Any, **_: Any) -> str:
        kopf.conditions(patch)["Ready"] = kopf.Condition(spec["replicas"] > 0, reason="Counted", message="all")
        return "done"

    async def async_fn(**kwargs: Any) -> str:
        return fn(**kwargs)

    for decorator in (kopf.on.create, kopf.on.update):
        decorator(objects.plural, id="fn")(async_fn if is_async else fn)
    obj = await operator.start_and_handle(objects, spec={"replicas": 0})
    first = get_conditions(obj)["Ready"]
    generation = {"observedGeneration": 1} if get_subresource(objects) else {}
    time = {"lastTransitionTime": first["lastTransitionTime"]}
    assert first == {"type": "Ready", "status": "False", "reason": "Counted", "message": "all", **generation, **time}
    assert obj["status"]["fn"] == "done"
    await asyncio.sleep(10)
    obj = await objects.change_and_wait(replicas=2)
    second = get_conditions(obj)["Ready"]
    assert second["status"] == "True"
    assert second.get("observedGeneration") == (2 if get_subresource(objects) else None)
    assert second["lastTransitionTime"] >= first["lastTransitionTime"]
    obj = await objects.change_and_wait(replicas=3)
    assert get_conditions(obj)["Ready"]["lastTransitionTime"] == second["lastTransitionTime"]


async def test_nothing_is_written_if_nothing_changes(operator: Operator, objects: Objects, calls: Calls) -> None:
    @kopf.timer(objects.plural, interval=5)
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        kopf.conditions(patch)["Ready"] = kopf.Condition(True, reason="Up")
        calls.append("called")

    await operator.start_and_create(objects)
    await objects.wait(is_ready)
    version = (await objects.get())["metadata"]["resourceVersion"]
    await calls.wait_length(len(calls) + 10)
    assert (await objects.get())["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("kind", ["create", "daemon"])
async def test_conditions_of_others_that_come_meanwhile_stay(
    operator: Operator,
    objects: Objects,
    calls: Calls,
    kind: str,
) -> None:
    decorator = kopf.daemon if kind == "daemon" else kopf.on.create
    theirs = {"type": "Theirs", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": "2026-01-01"}

    @decorator(objects.plural)
    async def fn(patch: kopf.Patch, **_: Any) -> None:
        kopf.conditions(patch)["Ready"] = kopf.Condition(True, reason="Up")
        await objects.merge({"status": {"conditions": [theirs]}}, subresource=get_subresource(objects))
        calls.append("called")

    await operator.start_and_create(objects)
    obj = await objects.wait(is_ready)
    assert get_conditions(obj)["Theirs"] == theirs
    assert calls == ["called"]


async def test_failures_are_told_by_conditions(operator: Operator, objects: Objects) -> None:
    @kopf.on.create(objects.plural)
    async def fn(patch: kopf.Patch, retry: int, **_: Any) -> None:
        conditions = kopf.conditions(patch)
        if retry < 2:
            conditions["Stalled"] = kopf.Condition(True, reason="NotFound", message=f"{retry}")
            raise kopf.TemporaryError("not yet", delay=30)
        if "Stalled" in conditions:
            del conditions["Stalled"]
        conditions["Ready"] = kopf.Condition(True, reason="Up")

    await operator.start_and_create(objects)
    first = await objects.wait(lambda obj: "Stalled" in get_conditions(obj))
    second = await objects.wait(lambda obj: get_conditions(obj).get("Stalled", {}).get("message") == "1")
    times = [get_conditions(obj)["Stalled"]["lastTransitionTime"] for obj in (first, second)]
    assert times[0] == times[1]
    obj = await objects.wait(is_ready)
    assert set(get_conditions(obj)) == {"Ready"}
