"""Webhooks in a simulation: the operator's own server is on a real port, in the virtual time."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from kopf.testing import APIStatus, Simulation
from tests.ports import find_free_port
from tests.testing.kopfexamples import CRD, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)


@pytest.fixture(autouse=True)
def _admission() -> None:
    @kopf.on.startup()
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", port=find_free_port())
        settings.admission.managed = "auto.kopf.dev"

    @kopf.on.validate("kopfexamples")
    def validate_fn(spec: Any, userinfo: Any, **_: Any) -> None:
        if spec.get("size", 0) > 10:
            raise kopf.AdmissionError(f"It is too big, {userinfo['username']}.")

    @kopf.on.mutate("kopfexamples")
    async def mutate_fn(patch: kopf.Patch, spec: Any, **_: Any) -> None:
        if "size" not in spec:
            patch.spec["size"] = 1


async def start(simulation: Simulation) -> None:
    await simulation.restart()
    await simulation.until(lambda: simulation.find("validatingwebhookconfigurations", "auto.kopf.dev"))
    await simulation.settle()


async def test_objects_are_reviewed(simulation: Simulation) -> None:
    await start(simulation)
    obj = await simulation.apply(make())
    assert obj["spec"] == {"size": 1}
    with pytest.raises(APIStatus, match="It is too big, kubernetes-admin"):
        await simulation.apply(make("other", size=11))
    with pytest.raises(APIStatus, match="It is too big, alice"):
        await simulation.patch("kex", "obj", {"spec": {"size": 11}}, as_user="alice")
    assert simulation.now < 10


async def test_reviews_of_the_operator_itself(simulation: Simulation) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["size"] = 5

    await start(simulation)
    await simulation.apply(make())
    await simulation.expect("kex", "obj", field="spec.size", value=5)
    await simulation.advance(hours=24)
    assert len(simulation.journal.get_calls(reason="webhook")) >= 4


async def test_nobody_reviews_after_a_crash(simulation: Simulation) -> None:
    await start(simulation)
    await simulation.crash()
    with pytest.raises(APIStatus, match="failed calling webhook"):
        await simulation.apply(make())
    await simulation.restart()
    await simulation.settle()
    assert await simulation.apply(make())


async def test_configurations_are_emptied_on_exit(simulation: Simulation) -> None:
    await start(simulation)
    await simulation.stop()
    assert (await simulation.apply(make()))["spec"] == {}
