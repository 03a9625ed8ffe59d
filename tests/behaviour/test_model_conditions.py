"""Conditions of objects that do not fit their models: said once, and taken back when they fit again."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
from typing import Any

import msgspec
import pytest

import kopf
from kopf.testing import Simulation, explore
from kopf_cluster import LocalCluster
from tests.behaviour.conftest import IS_THOROUGH
from tests.behaviour.objects import Obj, Objects
from tests.behaviour.resources import make_crd
from tests.behaviour.running import Calls, Logs, Operator
from tests.behaviour.test_conditions import get_conditions

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


class Spec(msgspec.Struct):
    size: int = 0


@dataclasses.dataclass
class Status:
    phase: str = ""
    conditions: kopf.ConditionList = dataclasses.field(default_factory=list)


class Model(
    kopf.CustomResource[Spec, Status],
    group="kopf.dev",
    version="v1",
    kind="KopfStatusExample",
    plural="kopfstatusexamples",
):
    """The definition in the cluster is older: it accepts anything."""


class Silent(
    kopf.CustomResource[Spec, dict[str, Any]],
    group="kopf.dev",
    version="v1",
    kind="KopfStatusExample",
    plural="kopfstatusexamples",
):
    """It has no conditions."""


MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value"}}
MESSAGE = "The object does not fit KopfStatusExample of kopf.dev/v1: spec.size: Expected `int`, got `str`"
KINDS = ("kopfstatusexamples",)
WATCHED = ("kopfstatusexamples", "configmaps")


def count_writes(cluster: LocalCluster) -> int:
    return sum(count for key, count in cluster.counters.items() if key[0] not in ("get", "list", "watch"))


def is_unfit(obj: Obj) -> bool:
    found = {type: (item["status"], item["reason"]) for type, item in get_conditions(obj).items()}
    return found == {"Ready": ("False", "InvalidSpec"), "Stalled": ("True", "InvalidSpec")}


def has_nothing(obj: Obj) -> bool:
    return not get_conditions(obj)


async def check_quiet(operator: Operator) -> None:
    """Nothing is written, whatever is looked at again."""
    await asyncio.sleep(10)
    before = count_writes(operator.cluster)
    await asyncio.sleep(1000)
    assert count_writes(operator.cluster) == before


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.update, kopf.on.field, kopf.daemon, kopf.timer])
async def test_they_are_set_once_and_taken_back(
    operator: Operator, sub: Objects, calls: Calls, logs: Logs, decorator: Any
) -> None:
    async def fn(spec: Spec, **_: Any) -> None:
        calls.append(spec.size)

    specific: dict[Any, dict[str, Any]] = {kopf.on.field: {"field": "spec"}, kopf.timer: {"interval": 10_000}}
    options = specific.get(decorator, {})
    decorator(Model, id="fn", **options)(fn)
    await operator.start(watching=KINDS)
    await (sub.create(spec={}) if decorator is kopf.on.update else sub.create(spec={"size": "text"}))
    if decorator is kopf.on.update:
        await sub.wait_handled()
        await sub.merge({"spec": {"size": "text"}})
    obj = await sub.wait(is_unfit)
    generation = obj["metadata"]["generation"]
    for item in get_conditions(obj).values():
        assert (item["message"], item["observedGeneration"]) == (MESSAGE, generation)
    await check_quiet(operator)
    await operator.restart(watching=KINDS)
    await check_quiet(operator)
    obj = await sub.get()
    assert is_unfit(obj)
    await sub.merge({"spec": {"size": []}})
    obj = await sub.wait(lambda obj: get_conditions(obj)["Ready"]["message"].endswith("got `array`"))
    assert get_conditions(obj)["Ready"]["observedGeneration"] == generation + 1
    said = [text for text in logs.get_messages(level=logging.WARNING) if "does not fit" in text]
    assert len(said) == 3, "that of the restart included"
    await sub.merge({"spec": {"size": 1}})
    await sub.wait(has_nothing)
    await calls.wait(lambda items: {*items} == {1})
    await check_quiet(operator)


async def test_unfit_statuses(operator: Operator, sub: Objects, calls: Calls) -> None:
    @kopf.on.update(Model)
    async def fn(status: Status, **_: Any) -> None:
        calls.append(status.phase)

    await operator.start_and_handle(sub, spec={"size": 1})
    await sub.merge({"status": {"phase": 1}}, subresource="status")
    await sub.merge({"spec": {"size": "text"}})
    obj = await sub.wait(lambda obj: "Ready" in get_conditions(obj))
    assert get_conditions(obj)["Ready"]["reason"] == "InvalidStatus"
    await check_quiet(operator)
    await sub.merge({"status": {"phase": "text"}}, subresource="status")
    await sub.wait(has_nothing)
    assert calls[-1] == "text"


@pytest.mark.parametrize("is_typed", [True, False])
async def test_reconcilers_take_them_over(operator: Operator, sub: Objects, calls: Calls, is_typed: bool) -> None:
    """The conditions are of the children again; in between, the object never looks as if it was ready."""

    async def reconcile_fn(spec: Any, **_: Any) -> Any:
        yield MAP

    async def other_fn(spec: Spec, **_: Any) -> None:
        calls.append(spec.size)

    if is_typed:
        reconcile_fn.__annotations__["spec"] = Spec
    kopf.reconcile(Model, owns="configmaps")(reconcile_fn)
    kopf.on.create(Model)(other_fn)
    kopf.on.update(Model, id="update")(other_fn)
    await operator.start(watching=WATCHED)
    await sub.create(spec={"size": "text"})
    await sub.wait(is_unfit)
    await check_quiet(operator)
    obj = await sub.get()
    assert is_unfit(obj)
    await sub.merge({"spec": {"size": 1}})
    obj = await sub.wait(lambda obj: get_conditions(obj)["Ready"]["reason"] == "ChildrenReady")
    assert get_conditions(obj).keys() == {"Ready"}
    await check_quiet(operator)
    history = [get_conditions(obj) for obj in sub.get_history()]
    assert all("Ready" in item for item in itertools.dropwhile(lambda item: not item, history))
    await sub.merge({"spec": {"size": "text"}})
    await sub.wait(is_unfit)
    await check_quiet(operator)


async def test_reconcilers_that_wait_are_not_reconciling_if_the_object_is_unfit(
    operator: Operator, sub: Objects
) -> None:
    @kopf.reconcile(Model, owns="configmaps")
    async def fn(spec: Spec, **_: Any) -> Any:
        child = yield MAP
        raise kopf.NotReadyError(f"{child.metadata.name} waits.")

    await operator.start(watching=WATCHED)
    await sub.create(spec={"size": 1})
    await sub.wait(lambda obj: "Reconciling" in get_conditions(obj))
    await sub.merge({"spec": {"size": "text"}})
    await sub.wait(is_unfit)
    await check_quiet(operator)


async def test_it_fits_since_the_operator_has_changed(operator: Operator, sub: Objects, calls: Calls) -> None:
    """Nobody has touched the object; and nobody is called for it, but for the resuming."""

    @kopf.on.create(Model, id="fn")
    async def typed_fn(spec: Spec, **_: Any) -> None:
        calls.append(spec.size)

    await operator.start_and_create(sub, spec={"size": 1})
    await sub.wait_handled()
    text = MESSAGE.replace("size", "other")
    items = [
        {"type": type, "status": status, "reason": "InvalidSpec", "message": text}
        | {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
        for type, status in (("Ready", "False"), ("Stalled", "True"))
    ]
    await operator.stop()
    await sub.merge({"status": {"conditions": items}}, subresource="status")
    await operator.start(watching=KINDS)
    await sub.wait(has_nothing)


async def test_what_others_say_stays(operator: Operator, sub: Objects) -> None:
    @kopf.on.update(Model)
    async def fn(spec: Spec, **_: Any) -> None: ...

    items = {
        name: {"type": "Ready", "status": "False", "reason": reason, "message": message}
        | {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        for name, reason, message in (
            ("message", "InvalidSpec", "The size makes no sense."),
            ("reason", "Other", MESSAGE),
            ("version", "InvalidSpec", MESSAGE.replace("v1", "v2")),
        )
    }
    await operator.start(watching=KINDS)
    for name, item in items.items():
        await sub.create_and_wait(name, spec={"size": 1})
        await sub.merge({"status": {"conditions": [item]}}, name, subresource="status")
        await sub.change_and_wait(name, size=2)
    await check_quiet(operator)
    for name, item in items.items():
        assert get_conditions(await sub.get(name)) == {"Ready": item}


async def test_nothing_is_said_where_it_cannot_be_or_is_only_looked_at(
    operator: Operator, sub: Objects, logs: Logs
) -> None:
    async def fn(spec: Spec, **_: Any) -> None: ...

    for model, decorator in ((Silent, kopf.on.create), (Model, kopf.on.event), (Model, kopf.index)):
        decorator(model, id=decorator.__name__)(fn)
    await operator.start_and_create(sub, spec={"size": "text"})
    await logs.wait(".*does not fit.*")
    await check_quiet(operator)
    obj = await sub.get()
    assert "status" not in obj


async def test_two_operators_do_not_fight(
    operator: Operator, sub: Objects, cluster: LocalCluster, calls: Calls
) -> None:
    """One of them cannot handle the object, the other one can."""
    other = Operator(cluster, kopf.OperatorRegistry())
    assert other.registry is not None

    @kopf.on.update(Model, id="one")
    async def fn(spec: Spec, **_: Any) -> None: ...

    kopf.on.login(registry=other.registry)(kopf.login_with_kubeconfig)

    @kopf.on.event(Model, id="two", registry=other.registry)
    @kopf.timer(Model, id="three", interval=10, registry=other.registry)
    async def other_fn(status: Status, **_: Any) -> None:
        calls.append("other")

    await operator.start(watching=KINDS)
    await other.start(watching=KINDS)
    try:
        await sub.create_and_wait(spec={"size": 1})
        await sub.merge({"spec": {"size": "text"}})
        await sub.wait(is_unfit)
        await calls.wait_length(3)
        await check_quiet(operator)
    finally:
        await other.stop()


async def test_unfit_objects_can_be_deleted(operator: Operator, sub: Objects, logs: Logs, calls: Calls) -> None:
    @kopf.on.delete(Model)
    async def fn(spec: Spec, **_: Any) -> None:
        calls.append(spec.size)

    await operator.start_and_create(sub, spec={"size": "text"})
    await sub.wait(lambda obj: obj["metadata"].get("finalizers"))
    await sub.delete()
    await sub.wait(is_unfit)
    await check_quiet(operator)
    await sub.merge({"spec": {"size": 1}})
    await sub.wait_gone()
    assert calls == [1]
    assert not logs.get_messages(level=logging.ERROR)


EXPLORED = kopf.OperatorRegistry()
TROUBLES = ["crash", "downtime", "late event"]
MORE_TROUBLES = ["lost answer", "refusal", "doubled event", "view"]


@kopf.on.create(Model, id="typed_fn", registry=EXPLORED)
async def typed_fn(spec: Spec, patch: kopf.Patch, **_: Any) -> None:
    patch.status["phase"] = f"created {spec.size}"


@kopf.timer(Model, id="timer_fn", interval=60, registry=EXPLORED)
async def timer_fn(spec: Spec, **_: Any) -> None: ...


@kopf.reconcile(Model, owns="configmaps", registry=EXPLORED)
async def reconcile_fn(spec: Any, **_: Any) -> Any:
    yield MAP


@explore(
    registry=EXPLORED,
    crds=[make_crd("KopfStatusExample", "kopfstatusexamples", status=True)],
    troubles=TROUBLES + MORE_TROUBLES * IS_THOROUGH,
)
async def story(simulation: Simulation) -> None:
    head = {"apiVersion": "kopf.dev/v1", "kind": "KopfStatusExample", "metadata": {"name": "obj"}}
    await simulation.apply({**head, "spec": {"size": "text"}})
    await simulation.settle()
    assert is_unfit(await simulation.get("kopfstatusexamples", "obj"))
    await simulation.patch("kopfstatusexamples", "obj", {"spec": {"size": 1}})
    await simulation.settle()
    obj = await simulation.get("kopfstatusexamples", "obj")
    assert {type: item["reason"] for type, item in get_conditions(obj).items()} == {"Ready": "ChildrenReady"}
    assert obj["status"]["phase"] == "created 1"


def test_whatever_happens_they_come_out_right() -> None:
    story()
