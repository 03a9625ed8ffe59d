"""Servers in operators: real admission by the cluster, over HTTPS, by managed configurations."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.admission.servers.serving import ImpatientServer, get_bundle, wait_until_served
from tests.behaviour.objects import API, Refused
from tests.behaviour.running import Calls, Operator
from tests.patience import PATIENCE, wait_until
from tests.ports import find_free_port

pytestmark = pytest.mark.fastforward("exit")

OBJECTS = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/auto.kopf.dev"


class ShortLivedServer(ImpatientServer):
    """Its certificates live for seconds: a renewal every 4 seconds, one of which is for the announcement."""

    CERTIFICATE_LIFETIME = datetime.timedelta(seconds=6)


def use(operator: Operator, server: Any) -> None:
    operator.set("admission.managed", "auto.kopf.dev")
    operator.set("admission.server", server)


@pytest.fixture
async def check(calls: Calls) -> None:
    @kopf.on.validate("kopfexamples", id="check")
    def check(name: str, **_: Any) -> None:
        calls.append(name)
        if name.startswith("bad"):
            raise kopf.AdmissionError("It is bad.", code=400)


async def wait_for_webhooks(api: API, condition: Any = bool) -> list[dict[str, Any]]:
    """Wait until there are webhooks in the configuration, and they are as needed."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(Refused):
                webhooks: list[dict[str, Any]] = (await api.request("GET", CONFIGURATION)).get("webhooks") or []
                if condition(webhooks):
                    return webhooks
            await asyncio.sleep(0.01)


async def create(api: API, name: str) -> None:
    await api.request("POST", OBJECTS, {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name}})


def count_creations(cluster: LocalCluster) -> dict[int, int]:
    return {
        code: count
        for (verb, resource, code), count in cluster.counters.items()
        if verb == "create" and resource == "kopfexamples"
    }


async def test_admission_by_the_server(operator: Operator, check: None, api: API, calls: Calls) -> None:
    use(operator, kopf.WebhookServer(port=0))
    await operator.launch()
    await wait_for_webhooks(api)
    await create(api, "good")
    with pytest.raises(Refused, match="It is bad"):
        await create(api, "bad")
    assert calls == ["good", "bad"]


async def test_renewals_under_load_lose_nothing(
    operator: Operator,
    check: None,
    api: API,
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
) -> None:
    """Each creation is reviewed, and the failure of a review would be the failure of the creation."""
    dump = tmp_path / "ca.pem"
    use(operator, ShortLivedServer(port=0, cadump=dump))
    await operator.launch()
    first = (await wait_for_webhooks(api))[0]["clientConfig"]
    loads = [asyncio.create_task(create_many(api, str(n))) for n in range(2)]
    try:
        second = (await wait_for_webhooks(api, lambda found: is_changed(found, first)))[0]["clientConfig"]
        # The next change is in the second round, when the first certificate is already not in use for long.
        third = (await wait_for_webhooks(api, lambda found: is_changed(found, second)))[0]["clientConfig"]
        assert get_bundle(second).startswith(get_bundle(first))
        assert get_bundle(first) not in get_bundle(third)
        assert get_bundle(third).startswith(get_bundle(second).removeprefix(get_bundle(first)))
        assert first["url"] == second["url"] == third["url"]
        await wait_until(lambda: dump.read_text() in get_bundle(third))
    finally:
        for load in loads:
            load.cancel()
        outcomes = await asyncio.gather(*loads, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes), outcomes
    counts = count_creations(cluster)
    assert counts.keys() == {201}
    assert counts[201] > 50


def is_changed(webhooks: list[dict[str, Any]], config: dict[str, Any]) -> bool:
    return bool(webhooks[0]["clientConfig"]["caBundle"] != config["caBundle"])


async def create_many(api: API, prefix: str) -> None:
    number = 0
    while True:
        number += 1
        await create(api, f"obj{prefix}-{number}")
        await asyncio.sleep(0.05)


async def test_rolling_restarts_lose_nothing(
    registry: kopf.OperatorRegistry,
    operator: Operator,
    api: API,
    cluster: LocalCluster,
) -> None:
    """Two operators behind one service are replaced by two others, one by one, as in deployments."""
    kopf.on.validate("kopfexamples", registry=registry, persistent=True, id="check")(lambda **_: None)

    ports = [find_free_port() for _ in range(3)]
    replicas = [Operator(cluster, registry) for _ in ports]
    for port, replica in zip(ports, replicas, strict=True):
        use(replica, kopf.WebhookServiceServer("operator", namespace="default", addr="127.0.0.1", port=port))
    await replicas[0].launch()
    cluster.register_service("default", "operator", "127.0.0.1", ports[0])
    await wait_for_webhooks(api)
    loads = [asyncio.create_task(create_many(api, str(n))) for n in range(2)]
    try:
        for old, new, port in zip(replicas, replicas[1:], ports[1:], strict=False):
            await new.launch()
            await wait_until_served(port)
            cluster.register_service("default", "operator", "127.0.0.1", port)
            await wait_for_more_creations(cluster)
            await old.stop()
            await wait_for_more_creations(cluster)
    finally:
        for load in loads:
            load.cancel()
        outcomes = await asyncio.gather(*loads, return_exceptions=True)
        await replicas[-1].stop()
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes), outcomes
    assert count_creations(cluster).keys() == {201}


async def wait_for_more_creations(cluster: LocalCluster) -> None:
    goal = count_creations(cluster).get(201, 0) + 20
    await wait_until(lambda: count_creations(cluster).get(201, 0) >= goal)


# --- users' own servers and tunnels ---


async def test_tunnels_by_inheritance(operator: Operator, check: None, api: API) -> None:
    class MyTunnel(kopf.WebhookServer):
        async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
            async for config in super().__call__(fn):
                yield {**config, "url": f"{config['url']}/"}

    use(operator, MyTunnel(port=0, path="root"))
    await operator.launch()
    webhooks = await wait_for_webhooks(api)
    assert webhooks[0]["clientConfig"]["url"].endswith("/root/check")
    await create(api, "good")


async def test_tunnels_by_composition(operator: Operator, check: None, api: API) -> None:
    class MyTunnel:
        async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
            server = kopf.WebhookServer(port=0)
            async for config in server(fn):
                yield config

    use(operator, MyTunnel())
    await operator.launch()
    await wait_for_webhooks(api)
    await create(api, "good")
