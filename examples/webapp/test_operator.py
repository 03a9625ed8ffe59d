"""The children are as the object says, and the condition tells the truth."""

import pathlib

import pytest

from kopf.testing import APIStatus, explore

FOLDER = pathlib.Path(__file__).parent
WEBAPP = FOLDER / "obj.yaml"
CHILDREN = ["deployment", "service", "ingress"]

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py", crds=FOLDER / "crd.yaml", simulate=True)


async def expect_ready(simulation, replicas):
    """Let the time pass until the condition is true, and so many pods are ready."""

    async def is_so():
        obj = await simulation.get("webapp", "shop")
        ready = {item["type"]: item["status"] for item in obj.get("status", {}).get("conditions", [])}
        deployment = await simulation.find("deployment", "shop")
        return ready.get("Ready") == "True" and deployment and deployment["status"].get("readyReplicas") == replicas

    await simulation.until(is_so)


async def test_it_is_served(simulation):
    await simulation.apply(WEBAPP)
    await expect_ready(simulation, 2)
    service = await simulation.get("service", "shop")
    assert service["spec"]["ports"][0]["targetPort"] == 8080
    ingress = await simulation.get("ingress", "shop")
    assert ingress["spec"]["rules"][0]["host"] == "shop.example.org"


async def test_it_is_scaled(simulation):
    await simulation.apply(WEBAPP)
    await expect_ready(simulation, 2)
    await simulation.patch("webapp", "shop", {"spec": {"replicas": 3}})
    await expect_ready(simulation, 3)


async def test_it_is_served_inside_only(simulation):
    await simulation.apply(WEBAPP)
    await expect_ready(simulation, 2)
    await simulation.patch("webapp", "shop", {"spec": {"host": None}})
    await simulation.expect("ingress", "shop", absent=True)
    assert await simulation.get("service", "shop")


@pytest.mark.parametrize("kind", CHILDREN)
async def test_what_is_deleted_is_restored(simulation, kind):
    await simulation.apply(WEBAPP)
    await expect_ready(simulation, 2)
    before = await simulation.get(kind, "shop")
    await simulation.delete(kind, "shop")
    await simulation.expect(kind, "shop", field="spec")
    assert (await simulation.get(kind, "shop"))["metadata"]["uid"] != before["metadata"]["uid"]
    await expect_ready(simulation, 2)


async def test_what_is_changed_is_restored_but_what_is_added_stays(simulation):
    await simulation.apply(WEBAPP)
    await expect_ready(simulation, 2)
    await simulation.patch("deployment", "shop", {"spec": {"replicas": 5, "minReadySeconds": 1}})
    await simulation.expect("deployment", "shop", field="spec.replicas", value=2)
    assert (await simulation.get("deployment", "shop"))["spec"]["minReadySeconds"] == 1


async def test_nothing_is_written_if_nothing_changes(simulation):
    await simulation.apply(WEBAPP)
    await expect_ready(simulation, 2)
    await simulation.settle()
    before = [await simulation.get(kind, "shop") for kind in ["webapp", *CHILDREN]]
    await simulation.restart()
    await simulation.advance(minutes=1)
    assert [await simulation.get(kind, "shop") for kind in ["webapp", *CHILDREN]] == before


async def test_mistakes_are_refused(simulation):
    await simulation.apply(WEBAPP)
    with pytest.raises(APIStatus, match=r"spec\.replicas: Invalid value: -1"):
        await simulation.patch("webapp", "shop", {"spec": {"replicas": -1}})


async def test_nothing_is_left(simulation):
    await simulation.apply(WEBAPP)
    await expect_ready(simulation, 2)
    await simulation.delete("webapp", "shop")
    for kind in CHILDREN:
        await simulation.expect(kind, "shop", absent=True)


@pytest.mark.simulation(FOLDER / "handlers.py", crds=FOLDER / "crd.yaml")  # with no pods: they never become ready
@explore(troubles=["crash", "refusal", "lost answer", "deletion"])
async def test_whatever_happens(simulation):
    await simulation.apply(WEBAPP)
    await simulation.settle()
    await simulation.patch("webapp", "shop", {"spec": {"host": None, "replicas": 3}})
    await simulation.settle()
