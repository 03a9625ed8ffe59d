"""The whole operator in a cluster, where days pass in no time."""

import pathlib

import handlers  # noqa: F401  # it fills the default registry
import pytest

from kopf.testing import APIStatus

FOLDER = pathlib.Path(__file__).parent
WEBSITE = """
apiVersion: example.com/v1
kind: Website
metadata: {name: shop}
spec: {domain: shop.example.org, replicas: 2, text: Welcome!}
"""

pytestmark = pytest.mark.simulation(crds=FOLDER / "crd.yaml", simulate=True)


async def test_life_of_a_website(simulation, registrations):
    await simulation.apply(WEBSITE)
    await simulation.expect("website", "shop", field="status.ready", value="2/2")
    await simulation.expect("website", "shop", field="status.registration", value="id-shop.example.org")
    assert (await simulation.get("configmap", "shop"))["data"] == {"index.html": "Welcome!"}

    await simulation.edit("website", "shop", lambda obj: obj["spec"].update(replicas=3, text="Sale!"))
    await simulation.expect("website", "shop", field="status.ready", value="3/3")
    assert (await simulation.get("configmap", "shop"))["data"] == {"index.html": "Sale!"}

    await simulation.delete("website", "shop")
    await simulation.expect("website", "shop", absent=True)
    await simulation.expect("deployment", "shop", absent=True)
    assert registrations.domains == set()


@pytest.mark.simulation(crds=FOLDER / "crd.yaml")  # with no nodes, which live every second
async def test_certificates_are_renewed_in_time(simulation, registrations):
    await simulation.apply(WEBSITE)
    await simulation.advance(hours=23)
    assert len(registrations.certificates) == 1
    await simulation.advance(hours=2)
    assert len(registrations.certificates) == 2


@pytest.mark.simulation(crds=FOLDER / "crd.yaml")
async def test_the_registrar_is_down_for_an_hour(simulation, registrations):
    registrations.is_down = True
    await simulation.apply(WEBSITE)
    await simulation.advance(hours=1)
    assert registrations.domains == set()
    registrations.is_down = False
    await simulation.expect("website", "shop", field="status.registration", within=120)


async def test_wrong_domains_are_refused(simulation):
    await simulation.until(lambda: simulation.find("validatingwebhookconfigurations", "websites.example.com"))
    with pytest.raises(APIStatus, match="It is not a domain: nonsense"):
        await simulation.apply(WEBSITE.replace("shop.example.org", "nonsense"))


@pytest.mark.parametrize("write", range(1, 6))
async def test_crashes(simulation, registrations, write):
    simulation.crash_after(write=write, restart=True, downtime=60)
    await simulation.apply(WEBSITE)
    await simulation.settle()
    await simulation.expect("website", "shop", field="status.ready", value="2/2")
    await simulation.expect("website", "shop", field="status.registration")
    await simulation.delete("website", "shop")
    await simulation.expect("website", "shop", absent=True)
    assert registrations.domains == set()


def test_changes_during_a_downtime(simulation):
    simulation.apply(WEBSITE)
    simulation.expect("website", "shop", field="status.ready", value="2/2")
    simulation.stop()
    simulation.patch("website", "shop", {"spec": {"replicas": 0}})
    simulation.advance(hours=1)
    simulation.restart()
    simulation.expect("website", "shop", field="status.ready", value="0/0")


async def test_trouble_with_the_api(simulation):
    simulation.faults.fail(status=503, rate=0.3)
    simulation.faults.lag(0, up_to=5)
    await simulation.apply(WEBSITE)
    await simulation.expect("website", "shop", field="status.ready", value="2/2", within=600)
    await simulation.expect("website", "shop", field="status.registration", within=600)
