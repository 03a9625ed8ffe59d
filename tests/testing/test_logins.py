"""Logins in a simulation: they are called, and configure the client libraries; but the operator stays in memory."""

from __future__ import annotations

from typing import Any

import kubernetes
import pytest

import kopf
from kopf.testing import Simulation
from tests.testing.kopfexamples import CRD, begin, make

pytestmark = pytest.mark.simulation(crds=CRD, operator=False)


async def check(simulation: Simulation) -> None:
    await begin(simulation, make())
    await simulation.expect("kex", "obj", field="status.done", value=True)
    agents = {entry.agent for entry in simulation.cluster.audit if entry.user == simulation.user}
    assert any(agent.startswith("kopf/") for agent in agents)


@pytest.fixture(autouse=True)
def _handlers() -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.status["done"] = True


async def test_clients_are_configured_by_default(simulation: Simulation) -> None:
    hosts = []

    @kopf.on.create("kopfexamples")
    def use_client(**_: Any) -> None:
        with kubernetes.client.ApiClient() as client:  # with the default configuration
            hosts.append(kubernetes.client.VersionApi(client).get_code().git_version)

    await check(simulation)
    await simulation.settle()
    assert hosts == ["v1.36.0+local"]


async def test_own_logins_are_called(simulation: Simulation) -> None:
    called = []

    @kopf.on.login()
    def login_fn(**_: Any) -> kopf.ConnectionInfo:
        called.append(True)
        return kopf.ConnectionInfo(server="https://example.com", token="nosuch")

    await check(simulation)
    assert called == [True]
    assert simulation.journal.get_calls(reason="authentication") == []


async def test_failing_logins_do_not_matter_but_are_told_of(simulation: Simulation) -> None:
    @kopf.on.login()
    def login_fn(**_: Any) -> None:
        raise kopf.LoginError("There is no such server.")

    await check(simulation)
    [call] = simulation.journal.get_calls(reason="authentication")
    assert call.error == "LoginError: There is no such server."
