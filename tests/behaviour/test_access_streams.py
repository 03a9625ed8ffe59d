"""Watch streams & requests in bad networks: silence, cuts, refusals, upgrades of the control plane, and no zombies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Journal, Logs, Operator

pytestmark = pytest.mark.usefixtures("by_network")


@pytest.fixture(autouse=True)
def _handlers(calls: Calls) -> None:
    fn = calls.noting(lambda name, reason, **_: (name, reason.value))
    kopf.on.delete("kopfexamples", optional=True)(fn)
    kopf.on.create("kopfexamples")(fn)

    @kopf.on.event("kopfexamples")
    async def event_fn(name: str, type: str, **_: Any) -> None:
        if type == "DELETED":
            calls.append((name, "gone"))


@pytest.mark.fastforward
async def test_silent_streams_are_replaced(operator: Operator, kex: Objects, logs: Logs) -> None:
    """Load balancers drop idle connections without telling either side."""
    await operator.start()
    operator.cluster.faults.silence_watches()
    await kex.create()
    await logs.wait("Watching of .*kopfexamples.* is interrupted and will continue in .*", times=1)
    operator.cluster.faults.silence_watches(False)
    await kex.wait_handled()


@pytest.mark.fastforward
async def test_lost_history_is_overcome(operator: Operator, kex: Objects, calls: Calls) -> None:
    """What has vanished while nobody was watching, is noticed too."""
    await operator.start_and_handle(kex, "old")
    operator.cluster.faults.inject(503, path=r"/v1/kopfexamples$", times=3)
    operator.cluster.faults.cut_watches()
    await kex.delete("old")
    await kex.create("new")
    operator.cluster.faults.compact()
    await calls.wait(lambda items: {("old", "gone"), ("new", "create")} <= {*items})


async def test_objects_of_megabytes(operator: Operator, kex: Objects) -> None:
    await operator.start_and_handle(kex, status={"x": ["y" * 1000] * 1000})


@pytest.mark.fastforward
@pytest.mark.parametrize("status", [403, 429, 500, 503])
async def test_upgrades_of_the_control_plane(operator: Operator, kex: Objects, logs: Logs, status: int) -> None:
    """While it is starting, it says all kinds of things; even that nothing is permitted."""
    faults, all_streams = operator.cluster.faults, r"/v1/kopfexamples$"
    logs.expected.append(f"{status} ")
    faults.inject(status, times=5, path=r"/version$|/apis/kopf.dev(/v1)?$")
    faults.inject(status, times=5, path=all_streams)
    await operator.launch()
    await kex.create_and_wait("before")
    faults.inject(status, times=5, verb="patch")
    faults.inject(status, times=5, path=all_streams)
    faults.cut_watches()
    await kex.create_and_wait("after")


@pytest.mark.fastforward
async def test_a_watcher_that_fails_again_and_again_is_restarted_forever(
    operator: Operator,
    kex: Objects,
    logs: Logs,
) -> None:
    """What is wrong with one resource does not end the work for all others."""
    await operator.start()
    logs.expected.append("has failed, and will be restarted")
    operator.cluster.faults.inject(400, path=r"/v1/kopfexamples$")
    operator.cluster.faults.cut_watches()
    await logs.wait("The watcher of .* has failed, and will be restarted in 30 seconds.*", times=3)
    operator.cluster.faults.clear()
    await kex.create_and_wait()


async def test_logins_do_not_disturb_what_is_in_flight(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    """Several handlers at once are refused, as the token is not valid anymore; the streams are not interrupted."""
    started, go = Journal[str](), asyncio.Event()

    @kopf.on.create("kopfexamples", id="slow")
    async def slow(name: str, **_: Any) -> None:
        started.append(name)
        await go.wait()

    await operator.start()
    await kex.create_all(f"obj{number}" for number in range(10))
    await started.wait_length(10)
    operator.cluster.faults.expire_token()
    kex.api.session.headers["Authorization"] = f"Bearer {operator.cluster.token}"
    go.set()
    await kex.wait_all_handled(f"obj{number}" for number in range(10))
    assert sorted(calls) == [(f"obj{number}", "create") for number in range(10)]
    assert len(started) == 10
    assert len(logs.find("Re-authentication has been initiated.")) == 1
    assert not [message for message in logs.get_messages() if "Stopping the watch-stream" in message]


@pytest.mark.fastforward
async def test_hanging_extensions_hold_nobody_else(operator: Operator, kex: Objects, calls: Calls) -> None:
    """Some of the API groups are served by others than the API server, and these are down from time to time."""
    operator.registry = registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)
    kopf.on.create("kopf.dev", "kopfexamples", registry=registry)(lambda **_: None)
    kopf.on.event("roles.rbac.authorization.k8s.io", registry=registry)(calls.noting(lambda name, **_: (name, "role")))
    operator.cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"namespace": "default", "name": "obj"},
            "rules": [],
        }
    )
    faults, loop = operator.cluster.faults, asyncio.get_running_loop()
    started = loop.time()
    faults.inject(action="delay", latency=1000, path=r"/apis/rbac.authorization.k8s.io/v1$")
    await operator.launch()
    await kex.create_and_wait()
    assert loop.time() - started < 30
    assert ("obj", "role") not in calls
    faults.clear()
    await calls.wait(lambda items: ("obj", "role") in items)
    assert loop.time() - started < 120


@pytest.mark.fastforward
async def test_filtered_handlers_see_the_deletions_that_nobody_has_watched(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    seen: list[tuple[str | None, str]] = []

    @kopf.on.event("kopfexamples", labels={"l": "v"}, annotations={"a": kopf.PRESENT})
    async def filtered_fn(type: str | None, name: str, **_: Any) -> None:
        seen.append((type, name))

    await operator.start()
    for name, label in [("yes", "v"), ("no", "other")]:
        await kex.create_and_wait(name, labels={"l": label}, annotations={"a": "x"})
    operator.cluster.faults.inject(503, path=r"/v1/kopfexamples$", times=3)
    operator.cluster.faults.cut_watches()
    await kex.delete("yes")
    await kex.delete("no")
    operator.cluster.faults.compact()
    await calls.wait(lambda items: {("yes", "gone"), ("no", "gone")} <= {*items})
    await asyncio.sleep(10)
    assert {name for _, name in seen} == {"yes"}
    assert seen[-1] == ("DELETED", "yes")
    assert seen.count(("DELETED", "yes")) == 1
