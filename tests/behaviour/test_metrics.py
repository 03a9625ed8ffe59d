"""The metrics of a real operator, as they are served to those who scrape."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import aiohttp
import prometheus_client
import pytest
from prometheus_client.registry import Collector

import kopf
from kopf._insight.metrics.exposition import MissingMetricsLibraryError
from kopf._operator.insight import EndpointClashError
from kopf._serving.threaded_server import ServingError
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator, do_nothing
from tests.insight.metrics.exposed import DESIGNED, Exposed
from tests.patience import PATIENCE
from tests.ports import find_free_port

pytestmark = pytest.mark.usefixtures("by_network")

KEX = "kopfexamples.kopf.dev"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(autouse=True)
def _standalone(operator: Operator) -> None:
    operator.set("peering.standalone", True)
    kopf.on.event("kopfexamples")(do_nothing)


@pytest.fixture
def prometheus(operator: Operator) -> prometheus_client.CollectorRegistry:
    """A registry of the test's own: the default one is there for the whole session."""
    registry = prometheus_client.CollectorRegistry()
    operator.set("metrics.registry", registry)
    return registry


@pytest.fixture
def base() -> str:
    return f"http://127.0.0.1:{find_free_port()}"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def scrape(session: aiohttp.ClientSession, base: str) -> Callable[[], Any]:
    async def scrape() -> Exposed:
        async with session.get(f"{base}/metrics", headers={"Accept": OPENMETRICS}) as response:
            assert response.status == 200
            assert response.content_type == "application/openmetrics-text"
            return Exposed(await response.text())

    return scrape


async def test_everything_is_served(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    base: str,
    session: aiohttp.ClientSession,
    scrape: Callable[[], Any],
) -> None:
    """To the default registry, where the metrics of the process and of the users are, too."""
    wanted = prometheus_client.Counter("wanted_things", "What users count.")

    @kopf.on.create("kopfexamples")
    async def create_fn(name: str, **_: Any) -> None:
        wanted.inc()
        calls.append(name)

    await operator.start(metrics_endpoint=f"{base}/metrics")
    try:
        await kex.create("obj")
        await calls.wait_length(1)
        exposed = await scrape()
    finally:
        await operator.stop()
        prometheus_client.REGISTRY.unregister(wanted)
    assert set(exposed.families) >= DESIGNED
    assert exposed.sum("wanted_things_total") == 1
    assert exposed.sum("kopf_objects", resource=KEX) == 1
    assert exposed.sum("python_gc_collections_total") >= 0
    assert exposed.select("kopf_build_info", version=kopf.__version__)
    if sys.platform == "linux":
        assert exposed.sum("process_resident_memory_bytes") > 0


async def test_formats(operator: Operator, prometheus: object, base: str, session: aiohttp.ClientSession) -> None:
    await operator.start(metrics_endpoint=f"{base}/metrics")
    async with session.get(f"{base}/metrics") as response:
        assert response.content_type == "text/plain"
        text = await response.text()
        assert "# TYPE workqueue_adds_total counter" in text
        assert "# EOF" not in text
    async with session.get(f"{base}/metrics", headers={"Accept": OPENMETRICS, "Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert (await response.text()).endswith("# EOF\n")
    async with session.get(f"{base}/other") as response:
        assert response.status == 404
    async with session.post(f"{base}/metrics") as response:
        assert response.status == 405
    await operator.stop()


async def test_health_and_metrics_share_a_port(
    operator: Operator,
    prometheus: object,
    base: str,
    session: aiohttp.ClientSession,
    scrape: Callable[[], Any],
) -> None:
    await operator.start(liveness_endpoint=f"{base}/healthz", metrics_endpoint=f"{base}/metrics")
    assert (await scrape()).sum("kopf_objects", resource=KEX) == 0
    async with session.get(f"{base}/healthz") as response:
        assert (response.status, response.content_type) == (200, "application/json")
    async with session.get(f"{base}/other") as response:
        assert response.status == 404
    await operator.stop()


async def test_clashes(operator: Operator, prometheus: object, base: str) -> None:
    with pytest.raises(EndpointClashError, match="change one of the paths"):
        await operator.start(liveness_endpoint=f"{base}/x", metrics_endpoint=f"{base}/x")
    with pytest.raises(EndpointClashError, match="they also need the same host"):
        await operator.start(liveness_endpoint="http://0.0.0.0:8099/x", metrics_endpoint="http://127.0.0.1:8099/y")
    with socket.create_server(("127.0.0.1", 0)) as server:
        occupied = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        with pytest.raises(ServingError, match="The metrics cannot be served at"):
            await operator.start(metrics_endpoint=occupied)
        with pytest.raises(ServingError, match="The health cannot be served at"):
            await operator.start(metrics_endpoint=f"{base}/x", liveness_endpoint=occupied)


async def test_names_that_are_taken(operator: Operator, prometheus: prometheus_client.CollectorRegistry) -> None:
    prometheus_client.Gauge("kopf_objects", "Of the users.", registry=prometheus)
    operator.set("metrics.enabled", True)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        await operator.start()


async def test_missing_library(operator: Operator, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingMetricsLibraryError, match=re.escape("pip install 'kopf[metrics]'")):
        await operator.start(metrics_endpoint=f"{base}/metrics")


async def test_operators_come_and_go(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    prometheus: prometheus_client.CollectorRegistry,
) -> None:
    """Counters never decrease; what is there at the moment, is only of those who are there."""
    operator.set("metrics.enabled", True)

    kopf.on.create("kopfexamples", id="create_fn")(calls.noting(lambda name, **_: name))
    for number in range(1, 4):
        await operator.start_and_call(kex, calls, f"obj{number}", times=number)
        assert Exposed.of(prometheus).sum("kopf_objects", resource=KEX) == number
        await operator.stop()
        exposed = Exposed.of(prometheus)
        assert exposed.sum("kopf_handler_duration_seconds_count", handler="create_fn") == number
        assert not exposed.select("kopf_objects")


async def test_two_operators_at_once(
    operator: Operator,
    kex: Objects,
    prometheus: prometheus_client.CollectorRegistry,
    cluster: Any,
) -> None:
    operator.set("metrics.enabled", True)
    second = Operator(cluster, operator.registry)
    second.set("peering.standalone", True)
    second.set("metrics.enabled", True)
    second.set("metrics.registry", prometheus)
    await kex.create("obj")
    await operator.start()
    await second.start()
    exposed = Exposed.of(prometheus)
    assert exposed.sum("kopf_objects", resource=KEX) == 2  # each has its own memory of it
    await second.stop()
    assert Exposed.of(prometheus).sum("kopf_objects", resource=KEX) == 1
    await operator.stop()


async def test_blocked_loops_are_seen(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    prometheus: prometheus_client.CollectorRegistry,
) -> None:
    """Even while they are blocked: the scrape is answered in another thread."""
    operator.set("metrics.enabled", True)
    operator.set("health.loop_timeout", 0.1)
    logs.expected.append("The event loop is blocked")
    lags: list[float] = []

    is_read = threading.Event()

    def read() -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and (not lags or lags[-1] < 0.2):
            lags.append(Exposed.of(prometheus).sum("kopf_eventloop_lag_seconds"))
        is_read.set()

    await operator.start()
    scraping = asyncio.get_running_loop().run_in_executor(None, read)
    is_read.wait()  # this blocks the loop
    await scraping
    assert 0.2 <= lags[-1] < PATIENCE
    await operator.stop()


class _Hanging(Collector):
    """A collector of users that waits for something."""

    def __init__(self) -> None:
        self.is_asked, self.is_released = threading.Event(), threading.Event()

    def collect(self) -> Iterable[Any]:
        self.is_asked.set()
        self.is_released.wait(PATIENCE)
        return ()

    def describe(self) -> Iterable[Any]:
        return ()


async def test_collectors_of_users_can_hang(
    operator: Operator,
    prometheus: prometheus_client.CollectorRegistry,
    base: str,
    session: aiohttp.ClientSession,
) -> None:
    """Neither the health nor the exit waits for them."""
    hanging = _Hanging()
    prometheus.register(hanging)
    await operator.start(liveness_endpoint=f"{base}/healthz", metrics_endpoint=f"{base}/metrics")
    scraping = asyncio.create_task(session.get(f"{base}/metrics"))
    try:
        await asyncio.to_thread(hanging.is_asked.wait, 10)
        async with session.get(f"{base}/healthz") as response:
            assert response.status == 200
        await operator.stop()
        assert not hanging.is_released.is_set()
        with pytest.raises(aiohttp.ClientError):
            await scraping
    finally:
        hanging.is_released.set()


async def test_collectors_of_users_can_fail(
    operator: Operator,
    logs: Logs,
    prometheus: prometheus_client.CollectorRegistry,
    base: str,
    session: aiohttp.ClientSession,
) -> None:
    logs.expected.append("Error handling request|Unhandled exception")
    prometheus_client.Gauge("bad", "Bad.", registry=prometheus).set_function(lambda: 1 / 0)
    await operator.start(metrics_endpoint=f"{base}/metrics")
    async with session.get(f"{base}/metrics") as response:
        assert response.status == 500
    await operator.stop()
