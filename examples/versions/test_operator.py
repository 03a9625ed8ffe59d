"""Both versions are of the same objects, and nothing is lost between them."""

import pathlib

import handlers  # noqa: F401  # it declares the conversions
import pytest

from kopf.testing import check_conversions

FOLDER = pathlib.Path(__file__).parent
BETA, STABLE = "volumes.v1beta1.example.com", "volumes.v1.example.com"

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py", crds=FOLDER / "crd.yaml")


def test_nothing_is_lost():
    check_conversions(FOLDER / "crd.yaml")


async def apply(simulation):
    async def is_ready():
        crd = await simulation.get("customresourcedefinition", "volumes.example.com")
        return crd["spec"]["conversion"]["strategy"] == "Webhook"

    await simulation.until(is_ready)
    await simulation.apply(FOLDER / "obj.yaml")


async def test_objects_are_read_in_any_version(simulation):
    await apply(simulation)
    assert (await simulation.get(STABLE, "old"))["spec"]["storage"] == {"gigabytes": 10, "className": "standard"}
    assert (await simulation.get(BETA, "new"))["spec"] == {"size": 20}


async def test_handlers_see_one_version(simulation):
    await apply(simulation)
    await simulation.settle()
    for name, size, storage_class in [("old", "10Gi", "standard"), ("new", "20Gi", "fast")]:
        claim = await simulation.get("persistentvolumeclaim", name)
        assert claim["spec"]["resources"]["requests"]["storage"] == size
        assert claim["spec"]["storageClassName"] == storage_class


async def test_clients_of_the_old_version_lose_nothing(simulation):
    await apply(simulation)
    await simulation.edit(BETA, "new", lambda obj: obj["spec"].update(size=30))
    assert (await simulation.get(STABLE, "new"))["spec"]["storage"] == {"gigabytes": 30, "className": "fast"}
