"""Waiting for what must come: and if it does not come, it is told what has happened instead."""

from __future__ import annotations

import re
from typing import Any

import pytest

import kopf
from kopf.testing import APIStatus, Simulation, SimulationError
from tests.testing.kopfexamples import CRD, begin, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)


async def test_until_a_condition(simulation: Simulation) -> None:
    since = simulation.now
    await simulation.until(lambda: simulation.now - since >= 30)
    assert simulation.now - since == pytest.approx(30, abs=1)


async def test_until_an_asynchronous_condition(simulation: Simulation) -> None:
    await simulation.apply(make())

    async def is_there() -> object:
        return await simulation.find("kopfexamples", "obj")

    await simulation.until(is_there)


async def test_until_is_not_forever(simulation: Simulation) -> None:
    since = simulation.now
    with pytest.raises(TimeoutError, match=r"is not true in 30 seconds: .*simulation.until\(lambda: 2 \+ 2 == 5"):
        await simulation.until(lambda: 2 + 2 == 5, timeout=30)
    assert simulation.now - since == pytest.approx(30)


async def test_until_a_change_takes_no_time(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.status["done"] = True

    await simulation.restart()
    since = simulation.now
    await simulation.apply(make())
    await simulation.expect("kopfexamples", "obj", field="status.done")
    assert simulation.now - since < 0.5


async def test_errors_of_conditions(simulation: Simulation) -> None:
    with pytest.raises(ZeroDivisionError):
        await simulation.until(lambda: 1 / 0)


async def test_settling(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(retry: int, **_: Any) -> None:
        if retry < 3:
            raise kopf.TemporaryError("Not yet.", delay=0.5)

    await begin(simulation, make())
    await simulation.settle()
    assert len(simulation.journal.get_calls()) == 4
    since = simulation.now
    await simulation.settle(calm=100)
    assert simulation.now - since == pytest.approx(100)


async def test_it_does_not_settle(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(retry: int, **_: Any) -> None:
        raise kopf.TemporaryError("Not yet.", delay=0.5)

    await begin(simulation, make())
    with pytest.raises(SimulationError, match=r"(?s)does not settle in 20 seconds.*create_fn' #3.*Not yet\."):
        await simulation.settle(timeout=20)


async def test_expectations_of_fields(simulation: Simulation) -> None:
    await simulation.apply(make(size=1, flags=[]))
    obj = await simulation.expect("kopfexamples", "obj")
    assert obj["spec"] == {"size": 1, "flags": []}
    assert await simulation.expect(obj, field="spec.size", value=1) == obj
    assert await simulation.expect("kex", "obj", field=("spec", "size")) == obj
    assert await simulation.expect("KopfExample", "obj", field="spec.flags", value=[]) == obj
    assert await simulation.expect("kex", "obj", field="spec.nosuch", value=None) == obj
    assert await simulation.expect("kex", "obj", condition=lambda obj: obj["spec"]["size"] > 0) == obj
    await simulation.expect("kex", "other", absent=True)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"field": "spec.size", "value": 2}, "spec.size is 1, while it must be 2"),
        ({"field": "spec.nosuch"}, "spec.nosuch is absent, while it must be anything"),
        ({"field": "spec.size", "value": None}, "spec.size is 1, while it must be nothing"),
        ({"condition": lambda obj: obj["spec"]["nosuch"]}, "the condition is not true"),
        ({"absent": True}, "it is there"),
    ],
)
async def test_reasons_of_failures(simulation: Simulation, wanted: dict[str, Any], reason: str) -> None:
    await simulation.apply(make(size=1))
    with pytest.raises(AssertionError) as error:
        await simulation.expect("kex", "obj", **wanted, within=5)
    assert f"kopfexamples.v1.kopf.dev default/obj is not as expected in 5 seconds: {reason}." in str(error.value)


async def test_objects_that_are_not_there(simulation: Simulation) -> None:
    with pytest.raises(AssertionError, match="it is not there"):
        await simulation.expect("kex", "nosuch", within=5)
    with pytest.raises(APIStatus, match="nosuches"):
        await simulation.expect("nosuches", "obj", within=5)


async def test_failures_tell_the_timeline(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, logger: kopf.ObjectLogger, **_: Any) -> None:
        logger.info("It is being created.")
        logger.debug("That is for debugging.")
        raise kopf.PermanentError("No way.")

    await begin(simulation, make("other"))
    await simulation.apply(make())
    simulation.faults.latency(0.25, "patch")
    await simulation.patch("kex", "obj", {"spec": {"size": 1}})
    with pytest.raises(AssertionError) as error:
        await simulation.expect("kex", "obj", field="status.ready", value=True, within=5)
    text = str(error.value)
    timeline = await simulation.timeline("kex", "obj")
    assert timeline in text
    expected = [
        "the operator starts",
        "kubernetes-admin creates kopfexamples.kopf.dev default/obj",
        "requests take 0.25s: patch",
        "kubernetes-admin changes kopfexamples.kopf.dev default/obj: ",
        "failed: PermanentError: No way.",
        "operator changes kopfexamples.kopf.dev default/obj: ",
    ]
    positions = [timeline.find(item) for item in expected]
    assert -1 not in positions, timeline
    assert positions == sorted(positions), timeline
    assert "[info] It is being created." in timeline
    assert re.findall(r"\[debug\] .*", timeline) == ["[debug] That is for debugging."]  # none of the framework's own
    assert "default/other" not in timeline
