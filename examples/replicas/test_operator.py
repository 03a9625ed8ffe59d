"""The reports are rendered by one replica or by all, and each of them once, unless its replica is killed."""

import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent
REPORTS = [f"report-{number}" for number in range(30)]

pytestmark = pytest.mark.simulation(FOLDER / "handlers.py", crds=FOLDER / "crd.yaml", operator=False)


async def request_reports(simulation):
    for name in REPORTS:
        await simulation.apply({"apiVersion": "example.com/v1", "kind": "Report", "metadata": {"name": name}})


async def expect_reports(simulation):
    for name in REPORTS:
        await simulation.expect("report", name, field="status.render.pages", value=len(name), within=300)


def count_calls(simulation):
    """Count the finished calls of each replica."""
    calls = [call.replica for call in simulation.journal.get_calls("render") if call.outcome == "succeeded"]
    return {replica: calls.count(replica) for replica in calls}


async def test_shards_divide_the_reports(simulation):
    replicas = await simulation.replicas(3, mode="shards")
    await simulation.advance(minutes=1)
    await request_reports(simulation)
    await expect_reports(simulation)
    counts = count_calls(simulation)
    assert len(counts) == 3
    assert sum(counts.values()) == len(REPORTS)
    replicas.assert_one_owner()


async def test_a_leader_renders_all(simulation):
    await simulation.replicas(2, mode="leader")
    await request_reports(simulation)
    await expect_reports(simulation)
    assert list(count_calls(simulation).values()) == [len(REPORTS)]


async def test_a_killed_replica_is_replaced(simulation):
    replicas = await simulation.replicas(3, mode="shards")
    await simulation.advance(minutes=1)
    await request_reports(simulation)
    await simulation.advance(seconds=10)
    replicas[0].kill()
    await expect_reports(simulation)
    counts = count_calls(simulation)
    assert "replica-0" not in counts
    assert sum(counts.values()) == len(REPORTS)
    replicas.assert_one_owner()


async def test_nothing_is_lost_or_repeated_when_it_is_scaled_down(simulation):
    replicas = await simulation.replicas(3, mode="shards")
    await simulation.advance(minutes=1)
    await request_reports(simulation)
    await simulation.advance(seconds=10)
    await replicas.scale(1)
    await expect_reports(simulation)
    assert sum(count_calls(simulation).values()) == len(REPORTS)
