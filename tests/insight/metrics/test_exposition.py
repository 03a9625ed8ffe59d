"""Scrapes of what an operator counts; and what is left in the sums when it is gone."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

import kopf
from kopf._controller.observer import Observers
from kopf._insight.metrics.exposition import collecting
from kopf._insight.metrics.operator_metrics import Metrics
from kopf._serving.endpoints import Endpoint
from kopf._serving.threaded_server import ReadOnlyServer
from kopf._settings.settings import MetricsSettings
from tests.insight.metrics.exposed import Exposed


async def test_scrapes() -> None:
    registry, observers = CollectorRegistry(), Observers()
    metrics = Metrics(observers, kopf.OperatorRegistry(), kopf.OperatorSettings())
    with collecting(metrics, MetricsSettings(registry=registry)) as answer:
        serving = ReadOnlyServer(Endpoint("127.0.0.1", 0, "/m"), {"/m": answer}, subject="the metrics")
        async with serving as server, aiohttp.ClientSession() as session:
            observers.event_dropped("limit")
            async with session.get(str(server.endpoint)) as response:
                assert (response.status, response.headers["Cache-Control"]) == (200, "no-store")
                assert 'kopf_events_dropped_total{cause="limit"} 1.0' in await response.text()
            for path, method, status in (("/m", "POST", 405), ("/m", "HEAD", 200), ("/other", "GET", 404)):
                url = str(server.endpoint._replace(path=path))
                async with session.request(method, url) as response:
                    assert response.status == status


@pytest.mark.parametrize("operators", [1, 3])
def test_what_was_counted_remains(operators: int) -> None:
    registry = CollectorRegistry()
    for _ in range(operators):
        observers = Observers()
        with collecting(
            Metrics(observers, kopf.OperatorRegistry(), kopf.OperatorSettings()), MetricsSettings(registry=registry)
        ):
            observers.event_dropped("limit")
            assert Exposed.of(registry).families["leader_election_master_status"] == "gauge"
    exposed = Exposed.of(registry)
    assert exposed.sum("kopf_events_dropped_total", cause="limit") == operators
    assert "leader_election_master_status" not in exposed.families
