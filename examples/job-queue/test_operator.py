"""Messages become jobs, each of them once."""

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent
QUEUE = FOLDER / "obj.yaml"

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py", crds=FOLDER / "crd.yaml")


@pytest.fixture(autouse=True)
def _broker(broker):
    """In all tests."""


async def list_messages(simulation):
    """Give the messages that are in the jobs."""
    containers = [job["spec"]["template"]["spec"]["containers"][0] for job in await simulation.list("jobs")]
    return sorted(container["env"][0]["value"] for container in containers)


async def test_messages_become_jobs(simulation, broker):
    broker.send("one.png")
    await simulation.apply(QUEUE)
    await simulation.advance(seconds=1)
    broker.send("two.png")
    broker.send("three.png")
    await simulation.advance(seconds=1)
    assert await list_messages(simulation) == ["one.png", "three.png", "two.png"]
    assert broker.messages == []


async def test_the_broker_is_down_for_an_hour(simulation, broker):
    broker.is_down = True
    broker.send("one.png")
    await simulation.apply(QUEUE)
    await simulation.advance(hours=1)
    assert await list_messages(simulation) == []
    broker.is_down = False
    await simulation.advance(minutes=2)
    assert await list_messages(simulation) == ["one.png"]


@pytest.mark.parametrize("before", [True, False])
async def test_no_message_is_lost_or_doubled_by_crashes(simulation, broker, before):
    await simulation.apply(QUEUE)
    await simulation.settle()
    simulation.crash_after(write=1, before=before, restart=True)
    broker.send("one.png")
    await simulation.settle()
    assert await list_messages(simulation) == ["one.png"]
    assert broker.messages == []


async def test_the_subscription_ends_with_the_object(simulation, broker):
    await simulation.apply(QUEUE)
    await simulation.settle()
    assert broker.subscribers == 1
    await simulation.delete("jobqueue", "thumbnails")
    await simulation.expect("jobqueue", "thumbnails", absent=True, within=5)
    assert broker.subscribers == 0


async def test_the_subscription_ends_with_the_operator(simulation, broker):
    await simulation.apply(QUEUE)
    await simulation.settle()
    await simulation.stop()
    assert broker.subscribers == 0
