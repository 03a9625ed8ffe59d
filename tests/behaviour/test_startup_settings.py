"""The settings that are changed in startup handlers, as they are documented to be; and what they change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import API, Objects
from tests.behaviour.peerings import PeeringObject, define_peering
from tests.behaviour.running import Logs, Operator

Configure = Callable[[Callable[[kopf.OperatorSettings], None]], None]


@pytest.fixture
def configure() -> Configure:
    """Declare a startup handler that changes the settings."""

    def configure(change: Callable[[kopf.OperatorSettings], None]) -> None:
        @kopf.on.startup()
        async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
            change(settings)

        @kopf.on.create("kopfexamples")
        async def create_fn(body: kopf.Body, logger: kopf.Logger, **_: Any) -> None:
            logger.info("an information")
            logger.error("an error")
            kopf.info(body, reason="Information", message="explicit information")
            kopf.exception(body, reason="Failure", exc=ValueError("explicit error"))

    return configure


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"enabled": False}, []),
        ({"enabled": True, "level": logging.ERROR}, ["an error", "explicit error"]),
        ({"enabled": True, "level": logging.ERROR, "loggers": False}, ["explicit error"]),
        ({"enabled": True, "level": logging.CRITICAL}, []),
    ],
    ids=str,
)
async def test_posting(
    operator: Operator,
    kex: Objects,
    api: API,
    configure: Configure,
    options: dict[str, Any],
    expected: list[str],
) -> None:
    """Both the log messages and the explicit events are affected."""

    def change(settings: kopf.OperatorSettings) -> None:
        for name, value in options.items():
            setattr(settings.posting, name, value)

    configure(change)
    await operator.start_and_handle(kex)
    await operator.stop()
    events = await api.list_events()
    assert sorted(event["message"] for event in events) == expected


async def test_priority(operator: Operator, configure: Configure, kex: Objects, peering: PeeringObject) -> None:
    """There is another operator; it is less important than ours is."""
    configure(lambda settings: setattr(settings.peering, "priority", 100))
    await peering.put("other", priority=50)
    await operator.start_and_handle(kex)
    records = await peering.get_records()
    assert {record["priority"] for record in records.values()} == {50, 100}


@pytest.mark.fastforward
async def test_mandatory_custom_peering(
    operator: Operator,
    configure: Configure,
    kex: Objects,
    api: API,
    cluster: LocalCluster,
    logs: Logs,
) -> None:
    def change(settings: kopf.OperatorSettings) -> None:
        settings.peering.name = "custom"
        settings.peering.mandatory = True

    define_peering(cluster)
    configure(change)
    await operator.launch()
    await logs.wait("Pausing operations: the peering 'custom' cluster-wide is mandatory, and it is absent.*")
    peering = PeeringObject(api, name="custom")
    await peering.create()
    await logs.wait("Resuming operations.*")
    assert await peering.wait(len)
