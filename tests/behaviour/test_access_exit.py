"""The end of the operator in the middle of networking: nothing holds it, nothing is lost, reasons are told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator
from tests.patience import PATIENCE

pytestmark = pytest.mark.usefixtures("by_network")


@pytest.fixture
def mute(change_kubeconfig: Callable[..., None]) -> Iterator[socket.socket]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        change_kubeconfig(server=f"https://127.0.0.1:{server.getsockname()[1]}")
        yield server


async def test_hanging_handshakes_do_not_hold_the_exit(operator: Operator, mute: socket.socket) -> None:
    kopf.on.event("kopfexamples")(lambda **_: None)
    launching = asyncio.create_task(operator.launch())
    connection, _ = await asyncio.get_running_loop().sock_accept(mute)
    with connection:
        await asyncio.wait_for(operator.stop(), PATIENCE)
        await launching


@pytest.mark.fastforward
async def test_silent_servers_do_not_hold_the_exit(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    async def fn(**_: Any) -> None:
        operator.cluster.faults.pause()
        calls.append("called")

    await operator.start_and_call(kex, calls)
    await asyncio.wait_for(operator.stop(), PATIENCE)
    operator.cluster.faults.resume()


async def test_hanging_logins_do_not_hold_the_exit(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    calls: Calls,
) -> None:
    registry = kopf.OperatorRegistry()
    operator.registry = registry

    @kopf.on.login(registry=registry, id="login")
    async def login(**_: Any) -> None:
        calls.append("called")
        await asyncio.Event().wait()

    kopf.on.event("kopfexamples", registry=registry)(lambda **_: None)
    launching = asyncio.create_task(operator.launch())
    await calls.wait_length(1)
    await asyncio.wait_for(operator.stop(), PATIENCE)
    await launching


@pytest.mark.fastforward
async def test_credentials_are_renewed_until_the_very_end(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    """The last handlers save what they have done, even if the token has expired by then."""
    go = asyncio.Event()

    @kopf.on.create("kopfexamples")
    async def fn(**_: Any) -> None:
        calls.append("called")
        await go.wait()

    operator.set("queueing.exit_timeout", 30)

    await operator.start_and_call(kex, calls)
    operator.cluster.faults.expire_token()
    kex.api.session.headers["Authorization"] = f"Bearer {operator.cluster.token}"
    asyncio.get_running_loop().call_later(0.5, go.set)
    await operator.stop()
    await kex.wait_handled()
    assert logs.find("Re-authentication has finished.")
    assert calls == ["called"]


@pytest.mark.fastforward
async def test_embedded_tasks_fail_to_those_who_embed_them(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    logs: Logs,
) -> None:
    """The same for the credentials that are refused in the middle, and for the tasks."""
    logs.expected.append(".")
    kopf.on.create("kopfexamples", registry=registry)(lambda **_: None)
    ready_flag, stop_flag = asyncio.Event(), asyncio.Event()
    settings = kopf.OperatorSettings()
    tasks = await kopf.spawn_tasks(
        registry=registry, settings=settings, clusterwide=True, ready_flag=ready_flag, stop_flag=stop_flag
    )
    await ready_flag.wait()
    operator.cluster.faults.inject(401)
    operator.cluster.faults.cut_watches()
    with pytest.raises(kopf.LoginError, match="the login has brought nothing new. The reason: .* 401 Unauthorized"):
        await asyncio.wait_for(kopf.run_tasks(tasks), PATIENCE)
    operator.cluster.faults.clear()
    assert all(task.done() for task in tasks)
