"""The status names the Services of the node, as the pods come and go."""

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py", crds=FOLDER / "crd.yaml")


def make_pod(name, app, node):
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "example.com/main:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}}, "spec": spec}


def make_service(name, app):
    spec = {"selector": {"app": app}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


async def expect_services(simulation, *names):
    await simulation.expect("maintenance", "new-disks", field="status.services", value=[*names], within=11)


async def test_services_of_the_node(simulation):
    for manifest in (
        make_service("web", "web"),
        make_service("web-admin", "web"),
        make_service("queue", "queue"),
        make_pod("web-1", "web", "node-1"),
        make_pod("queue-1", "queue", "node-2"),
        FOLDER / "obj.yaml",
    ):
        await simulation.apply(manifest)
    await expect_services(simulation, "default/web", "default/web-admin")

    await simulation.apply(make_pod("queue-2", "queue", "node-1"))
    await expect_services(simulation, "default/queue", "default/web", "default/web-admin")

    await simulation.delete("service", "web-admin")
    await simulation.delete("pod", "queue-2")
    await expect_services(simulation, "default/web")


async def test_nothing_is_written_if_nothing_changes(simulation):
    await simulation.apply(FOLDER / "obj.yaml")
    await expect_services(simulation)
    before = await simulation.get("maintenance", "new-disks")
    await simulation.advance(hours=1)
    assert await simulation.get("maintenance", "new-disks") == before
