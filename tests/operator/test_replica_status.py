"""What a replica says of itself to those who ask the operator: its health, its readiness, its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

import kopf
from kopf._controller.observer import Observers
from kopf._controller.pausing import Pause
from kopf._health.liveness import Liveness
from kopf._health.watchdog import Watchdog
from kopf._operator.insight import InsightSources, serving
from kopf._operator.replica_status import ReplicaStatus
from kopf._serving.endpoints import parse_endpoint
from kopf._values.replica_state import ReplicaState
from kopf._values.slots import ALL_SLOTS
from tests.insight.metrics.exposed import Exposed
from tests.ports import find_free_port

Ask = Callable[[str], Any]

STANDBY = ReplicaState(mode="leader", name="web", identity="web-1")
LEADER = ReplicaState(mode="leader", name="web", identity="web-1", is_leading=True, held=ALL_SLOTS)
FENCED = ReplicaState(mode="leader", name="web", identity="web-1", is_fenced=True)


@pytest.fixture
def settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.coordination.mode = "leader"
    settings.metrics.enabled = True
    settings.metrics.registry = CollectorRegistry()
    return settings


@pytest.fixture
def observers() -> Observers:
    return Observers()


@pytest.fixture
async def ask(settings: kopf.OperatorSettings, observers: Observers) -> AsyncIterator[Ask]:
    """Ask the operator over HTTP: the status and the JSON of a path."""
    port = find_free_port()
    replica = None if settings.coordination.mode is None else ReplicaStatus()
    observers.add(*([] if replica is None else [replica]))
    with Watchdog(settings.health) as watchdog:
        sources = InsightSources(
            registry=kopf.OperatorRegistry(),
            settings=settings,
            namespaces=[],
            observers=observers,
            health_endpoint=parse_endpoint(f"http://127.0.0.1:{port}/healthz"),
            watchdog=watchdog,
            liveness=Liveness(),
            pause=Pause(),
            replica=replica,
            probe=None,
        )
        async with serving(sources), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

            async def ask(path: str) -> Any:
                async with session.get(path) as response:
                    is_json = response.content_type == "application/json"
                    return response.status, (await response.json() if is_json else None)

            yield ask


async def test_readiness_and_health(ask: Ask, observers: Observers) -> None:
    about = {"mode": "leader", "name": "web", "identity": "web-1"}
    assert await ask("/readyz") == (503, {"kopf": {"replica": {"role": "joining"}}})
    assert await ask("/healthz") == (200, {})
    for state, role, status in ((STANDBY, "standby", 200), (LEADER, "leader", 200), (FENCED, "fenced", 503)):
        observers.share_changed(state)
        told = {"kopf": {"replica": {**about, "role": role}}}
        assert await ask("/readyz") == (status, told)
        assert await ask("/healthz") == (200, told)


async def test_metrics(ask: Ask, observers: Observers, settings: kopf.OperatorSettings) -> None:
    assert settings.metrics.registry is not None
    for state, leading, held, fences in ((STANDBY, 0, 0, 0), (LEADER, 1, 256, 0), (FENCED, 0, 0, 1), (FENCED, 0, 0, 1)):
        observers.share_changed(state)
        exposed = Exposed.of(settings.metrics.registry)
        assert exposed.sum("leader_election_master_status", name="web") == leading
        assert exposed.sum("kopf_replica_slots", state="held") == held
        assert exposed.sum("kopf_replica_fences_total") == fences
    assert exposed.sum("kopf_replica_slots_moved_total", direction="in") == 256
    assert exposed.sum("kopf_replica_slots_moved_total", direction="out") == 256
    assert exposed.sum("kopf_replica_slot_unowned_seconds_count") == 0
    observers.slots_taken([0.5, 16.0])
    exposed = Exposed.of(settings.metrics.registry)
    assert exposed.sum("kopf_replica_slot_unowned_seconds_count") == 2
    assert exposed.sum("kopf_replica_slot_unowned_seconds_sum") == 16.5


class TestAlone:
    @pytest.fixture
    def settings(self, settings: kopf.OperatorSettings) -> kopf.OperatorSettings:
        settings.coordination.mode = None
        return settings

    async def test_there_is_nothing_of_replicas(self, ask: Ask, settings: kopf.OperatorSettings) -> None:
        await asyncio.sleep(0)
        assert await ask("/readyz") == (404, None)
        assert await ask("/healthz") == (200, {})
        assert settings.metrics.registry is not None
        families = Exposed.of(settings.metrics.registry).families
        assert not [name for name in families if name.startswith("kopf_replica")]
