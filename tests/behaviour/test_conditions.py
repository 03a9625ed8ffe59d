"""Conditions by the conventions: those that handlers set, and those that tell whether all the children are ready."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, TypedDict

import msgspec
import pytest

import kopf
from kopf.testing import Simulation, explore
from tests.behaviour.conftest import IS_THOROUGH
from tests.behaviour.objects import API, MERGE_PATCH, Obj, Objects
from tests.behaviour.running import Calls, Operator
from tests.testing.kopfexamples import CRD, make

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


PATH = "/apis/batch/v1/namespaces/default/jobs"
POD = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "image"}]}}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": POD}}


def has(**statuses: str) -> Any:
    def check(obj: Obj) -> bool:
        return {type: item["status"] for type, item in get_conditions(obj).items()} == statuses

    return check


async def complete(api: API, name: str) -> None:
    conditions = [{"type": type, "status": "True"} for type in ("SuccessCriteriaMet", "Complete")]
    times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:00Z"}
    status = {"conditions": conditions, **times, "succeeded": 1}
    await api.request("PATCH", f"{PATH}/{name}/status", {"status": status}, MERGE_PATCH)


async def async_fn(spec: Any, **_: Any) -> Any:
    first = yield JOB
    if spec.get("steps"):
        kopf.require_ready(first)
    yield {**JOB, "metadata": {"name": "second"}}
    if "error" in spec:
        raise kopf.PermanentError(spec["error"])


def fn(**_: Any) -> Any:
    yield JOB
    yield {**JOB, "metadata": {"name": "second"}}


@pytest.mark.parametrize("function", [async_fn, fn])
async def test_they_follow_the_children(operator: Operator, sub: Objects, api: API, function: Any) -> None:
    kopf.reconcile("kopfstatusexamples", owns="jobs", conditions=True)(function)
    await operator.start(watching=("kopfstatusexamples", "jobs"))
    await sub.create()
    obj = await sub.wait(has(Ready="False", Reconciling="True"))
    ready = get_conditions(obj)["Ready"]
    assert (ready["reason"], ready["message"]) == ("ChildrenNotReady", "Not ready yet: Job obj, Job second.")
    assert ready["observedGeneration"] == 1
    assert get_conditions(obj)["Reconciling"]["message"] == ready["message"]
    await complete(api, "obj")
    await sub.wait(lambda obj: get_conditions(obj)["Ready"]["message"] == "Not ready yet: Job second.")
    await complete(api, "second")
    obj = await sub.wait(has(Ready="True"))
    assert get_conditions(obj)["Ready"]["reason"] == "ChildrenReady"
    version = obj["metadata"]["resourceVersion"]
    await operator.restart(watching=("kopfstatusexamples", "jobs"))
    await api.request("PATCH", f"{PATH}/obj", {"metadata": {"labels": {"x": "y"}}}, MERGE_PATCH)
    await sub.merge({"spec": {"marker": 1}})
    obj = await sub.wait(lambda obj: get_conditions(obj)["Ready"]["observedGeneration"] == 2)
    versions = [item["metadata"]["resourceVersion"] for item in sub.get_history()]
    after = sub.get_history()[versions.index(version) + 1]
    assert after["spec"]["marker"] == 1, "nothing is written until the object is changed"


async def test_steps_that_wait(operator: Operator, sub: Objects, api: API) -> None:
    kopf.reconcile("kopfstatusexamples", owns="jobs", conditions=True)(async_fn)
    await operator.start(watching=("kopfstatusexamples", "jobs"))
    await sub.create(spec={"steps": True})
    obj = await sub.wait(has(Ready="False", Reconciling="True"))
    assert get_conditions(obj)["Ready"]["message"] == "Not ready yet: Job obj."
    await complete(api, "obj")
    obj = await sub.wait(lambda obj: get_conditions(obj)["Ready"]["message"] == "Not ready yet: Job second.")


async def test_failures(operator: Operator, sub: Objects, api: API) -> None:
    kopf.reconcile("kopfstatusexamples", owns="jobs", conditions=True)(async_fn)
    await operator.start(watching=("kopfstatusexamples", "jobs"))
    await sub.create(spec={"error": "It cannot be."})
    obj = await sub.wait(has(Ready="False", Stalled="True"))
    for type in ("Ready", "Stalled"):
        item = get_conditions(obj)[type]
        assert (item["reason"], item["message"]) == ("PermanentError", "It cannot be.")
    await complete(api, "obj")
    await complete(api, "second")
    await sub.merge({"spec": {"error": None}})
    await sub.wait(has(Ready="True"))

    await api.request("POST", PATH, {**JOB, "metadata": {"name": "other"}})
    await sub.create("other")
    obj = await sub.wait(has(Ready="False", Reconciling="True"), "other")
    assert get_conditions(obj)["Ready"]["reason"] == "ForeignObjectError"


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "retries": ({"retries": 2, "backoff": 1}, "Stalled"),
    "long-retries": ({"retries": 2, "backoff": 10_000}, "Reconciling"),
    "permanent": ({"errors": kopf.ErrorsMode.PERMANENT}, "Stalled"),
    "ignored": ({"errors": kopf.ErrorsMode.IGNORED}, "Stalled"),
    "timeout": ({"timeout": 100, "backoff": 200}, "Stalled"),
    "default": ({}, "Reconciling"),
}


@pytest.mark.parametrize("is_used", [True, False])
async def test_failures_for_good(operator: Operator, sub: Objects, is_used: bool) -> None:
    """Nobody tries it again, whatever the error is; it can be in the function, or be in that of the used objects."""

    def fail(**_: Any) -> Any:
        raise RuntimeError("boom")

    uses = kopf.ref("configmaps", fail) if is_used else None
    for name, (rest, _type) in FAILURES.items():
        options = rest | {"id": name, "when": lambda name, one=name, **_: name == one}
        kopf.reconcile("kopfstatusexamples", uses=uses, conditions=True, **options)(
            (lambda **_: None) if is_used else fail
        )
    await operator.start(watching=("kopfstatusexamples",))
    await sub.create_all(FAILURES)
    for name, (_options, type) in FAILURES.items():
        await sub.wait(has(Ready="False", **{type: "True"}), name)


async def test_what_users_say_has_precedence(operator: Operator, sub: Objects, calls: Calls) -> None:
    @kopf.reconcile("kopfstatusexamples", owns="jobs", conditions=True)
    async def fn(patch: kopf.Patch, **_: Any) -> Any:
        kopf.conditions(patch)["Ready"] = kopf.Condition(True, "Said")
        yield JOB

    @kopf.reconcile("kopfexamples", owns="jobs")
    async def other(**_: Any) -> None:
        calls.append("called")

    await operator.start(watching=("kopfstatusexamples", "jobs"))
    await sub.create()
    obj = await sub.wait(has(Ready="True"))
    assert get_conditions(obj)["Ready"]["reason"] == "Said"


@dataclasses.dataclass
class Status:
    conditions: kopf.ConditionList = dataclasses.field(default_factory=list)


class StructStatus(msgspec.Struct, rename="camel"):
    conditions: kopf.ConditionList | None = None


class OtherStatus(TypedDict, total=False):
    conditions: list[dict[str, Any]]


class Modelled(
    kopf.CustomResource[dict[str, Any], Status],
    group="kopf.dev",
    version="v1",
    kind="KopfStatusExample",
    plural="kopfstatusexamples",
):
    """It has conditions."""


class StructModelled(
    kopf.CustomResource[dict[str, Any], StructStatus],
    group="kopf.dev",
    version="v1",
    kind="KopfStatusExample",
    plural="kopfstatusexamples",
):
    """It has them, too."""


class OtherModelled(
    kopf.CustomResource[dict[str, Any], OtherStatus],
    group="kopf.dev",
    version="v1",
    kind="KopfStatusExample",
    plural="kopfstatusexamples",
):
    """It has something by that name."""


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (Modelled, {}, True),
        (Modelled, {"conditions": None}, True),
        (StructModelled, {}, True),
        (Modelled, {"conditions": False}, False),
        (OtherModelled, {}, False),
        (OtherModelled, {"conditions": True}, True),
        ("kopfstatusexamples", {}, False),
    ],
)
async def test_they_are_set_by_default_where_it_is_known_that_they_can_be(
    operator: Operator, sub: Objects, name: Any, options: dict[str, Any], expected: bool
) -> None:
    kopf.reconcile(name, owns="jobs", **options)(async_fn)
    await operator.start(watching=("kopfstatusexamples", "jobs"))
    obj = await sub.create_and_wait()
    if expected:
        assert has(Ready="False", Reconciling="True")(obj)
    else:
        assert "status" not in obj


EXPLORED = kopf.OperatorRegistry()


@kopf.reconcile("kopfexamples", owns="deployments", conditions=True, registry=EXPLORED)
async def explored_fn(name: str, spec: Any, patch: kopf.Patch, **_: Any) -> Any:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "image"}]}}
    selector = {"matchLabels": labels}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"replicas": spec["replicas"], "selector": selector, "template": template},
    }
    kopf.conditions(patch)["Scaled"] = kopf.Condition(spec["replicas"] > 1, "Counted")


@explore(
    registry=EXPLORED, crds=[CRD], simulate=True, troubles=["crash"] + ["lost answer"] * IS_THOROUGH, ignore=["pods"]
)
async def story(simulation: Simulation) -> None:
    await simulation.apply(make(replicas=1))
    await simulation.settle()
    await simulation.patch("kopfexamples", "obj", {"spec": {"replicas": 2}})
    await simulation.settle()
    obj = await simulation.get("kopfexamples", "obj")
    assert has(Ready="True", Scaled="True")(obj)


def test_whatever_happens_they_come_out_right() -> None:
    story()
