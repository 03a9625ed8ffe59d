"""Two operators handle the same object at once, as they do not know of each other (yet): nothing gets lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import Obj, Objects, is_handled
from tests.behaviour.peerings import make_other, running
from tests.behaviour.running import Calls, Logs, Operator

pytestmark = pytest.mark.fastforward

PLURAL = "kopfstatusexamples"


class Hold:
    """Keeps the handler in one call, until it is released."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.released = asyncio.Event()

    async def pass_through(self) -> None:
        self.begun.set()
        await self.released.wait()


@pytest.fixture
async def hold() -> AsyncIterator[Hold]:
    hold = Hold()
    yield hold
    hold.released.set()


@pytest.fixture
def other(registry: kopf.OperatorRegistry, calls: Calls) -> kopf.OperatorRegistry:
    """The handlers of the other operator, which is never late."""
    other = make_other(registry)

    @kopf.on.create(PLURAL, registry=other)
    @kopf.on.update(PLURAL, registry=other)
    async def handle(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        calls.append(("other", spec["field"]))
        patch.status["seen"] = spec["field"]

    return other


@pytest.fixture(autouse=True)
def _declare(calls: Calls, hold: Hold) -> None:
    """The handlers of the operator that is late with the value "older"."""

    @kopf.on.create(PLURAL)
    @kopf.on.update(PLURAL)
    async def handle(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        calls.append(("one", spec["field"]))
        if spec["field"] == "older":
            await hold.pass_through()
        patch.status["seen"] = spec["field"]


def get_seen(obj: Obj) -> object:
    return obj.get("status", {}).get("seen")


def has_seen(obj: Obj) -> bool:
    return is_handled(obj) and bool(get_seen(obj) == obj["spec"]["field"])


async def be_late(operator: Operator, sub: Objects, hold: Hold) -> None:
    """Let the operator handle the older change, while there is a newer one already."""
    await operator.start_and_create(sub, spec={"field": "initial"})
    await sub.wait(has_seen)
    await sub.merge({"spec": {"field": "older"}})
    await hold.begun.wait()
    await sub.merge({"spec": {"field": "newer"}})


async def test_a_write_in_between_of_the_writes_of_the_other_one(
    operator: Operator,
    cluster: LocalCluster,
    sub: Objects,
    other: kopf.OperatorRegistry,
    hold: Hold,
) -> None:
    """The status of the older change gets in between of the status and the last handled configuration of the newer."""
    await be_late(operator, sub, hold)
    cluster.faults.inject(action="delay", latency=5, times=1, verb="patch", resource=PLURAL)
    async with running(cluster, other):
        await sub.wait(lambda obj: get_seen(obj) == "newer")
        stopping = asyncio.create_task(operator.stop())
        hold.released.set()
        await stopping
        await sub.wait(has_seen)
        await asyncio.sleep(10)
        await sub.wait(has_seen)


async def test_a_write_after_all_by_the_one_who_dies_then(
    operator: Operator,
    cluster: LocalCluster,
    sub: Objects,
    other: kopf.OperatorRegistry,
    hold: Hold,
    logs: Logs,
) -> None:
    """The status of the older change comes after the newer one is handled, and there is nobody to finish that."""
    logs.expected.append(".")
    await be_late(operator, sub, hold)
    async with running(cluster, other):
        await sub.wait(has_seen)
        rule = cluster.faults.inject(500, verb="patch", resource=PLURAL)
        stopping = asyncio.create_task(operator.stop())
        hold.released.set()
        await stopping
        cluster.faults.remove(rule)
        await asyncio.sleep(10)
        await sub.wait(has_seen)


async def test_the_late_one_goes_on_from_what_the_other_one_has_done(
    operator: Operator,
    cluster: LocalCluster,
    sub: Objects,
    other: kopf.OperatorRegistry,
    hold: Hold,
    logs: Logs,
    calls: Calls,
) -> None:
    logs.expected.append("Something else has handled the object meanwhile.*")
    await be_late(operator, sub, hold)
    async with running(cluster, other):
        await sub.wait(has_seen)
    hold.released.set()
    await logs.wait("Something else has handled the object meanwhile.*")
    await sub.merge({"spec": {"field": "newest"}})
    await sub.wait(lambda obj: obj["spec"]["field"] == "newest" and has_seen(obj))
    assert calls == [("one", "initial"), ("one", "older"), ("other", "newer"), ("one", "newest")]
    assert "older" not in [get_seen(state) for state in sub.get_history()]


async def test_edits_by_users_do_not_supersede_anything(
    operator: Operator,
    cluster: LocalCluster,
    sub: Objects,
    hold: Hold,
    calls: Calls,
) -> None:
    """There is nothing to be repeated: the handlers have seen the older change, and it is known that they have."""
    await be_late(operator, sub, hold)
    cluster.reset_counters()
    hold.released.set()
    await sub.wait(has_seen)
    assert calls == [("one", "initial"), ("one", "older"), ("one", "newer")]
    assert "older" in [get_seen(state) for state in sub.get_history()]
    conflicts = {key: count for key, count in cluster.counters.items() if key[2] == 409}
    assert conflicts == {("patch", f"{PLURAL}/status", 409): 1}


@pytest.mark.parametrize("resource", [PLURAL, f"{PLURAL}/status"])
async def test_lost_answers_do_not_look_like_others(
    operator: Operator,
    cluster: LocalCluster,
    sub: Objects,
    calls: Calls,
    resource: str,
    logs: Logs,
) -> None:
    """Our own write is recognised, even if it is not known that it has succeeded."""
    logs.expected.append("A request has failed.*")

    kopf.on.resume(PLURAL)(calls.noting(lambda spec, **_: ("resume", spec["field"])))
    await sub.create(spec={"field": "initial"})
    cluster.faults.inject(action="lose-answer", times=1, verb="patch", resource=resource)
    await operator.start(watching=(PLURAL,))
    await sub.wait(has_seen)
    await asyncio.sleep(10)
    assert sorted(calls) in ([("one", "initial")], [("one", "initial"), ("resume", "initial")])
