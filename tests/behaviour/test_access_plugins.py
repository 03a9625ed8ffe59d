"""Exec plugins of kubeconfigs: an operator that authenticates by an external command, as with EKS, GKE, AKS, OIDC."""

from __future__ import annotations

import asyncio
import datetime
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator
from tests.client.plugins import Plugin

pytestmark = pytest.mark.usefixtures("by_network")

Change = Callable[..., None]


@pytest.fixture
def plugin(
    operator: Operator,
    calls: Calls,
    tmp_path: pathlib.Path,
    as_users_run_it: None,
    change_kubeconfig: Change,
) -> Plugin:
    """The plugin of the kubeconfig; it brings the token of the cluster until told otherwise."""
    kopf.on.create("kopfexamples")(calls.noting(lambda name, **_: name))
    plugin = Plugin(tmp_path)
    plugin.bring(token=operator.cluster.token)
    change_kubeconfig(user={"exec": plugin.make_stanza()})
    return plugin


def in_seconds(seconds: float) -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)).isoformat()


async def test_it_works_with_nothing_configured(operator: Operator, plugin: Plugin, kex: Objects) -> None:
    await operator.start_and_handle(kex)
    assert len(plugin.calls) == 1


@pytest.mark.fastforward
async def test_expired_tokens_are_renewed_with_nothing_lost(
    operator: Operator,
    plugin: Plugin,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    plugin.bring(token=operator.cluster.token, expirationTimestamp=in_seconds(900))
    await operator.start()
    for number in range(4):
        await asyncio.sleep(1000)
        plugin.bring(token=operator.cluster.token, expirationTimestamp=in_seconds(900))
        await kex.create_and_wait(f"obj{number}")
    assert calls == ["obj0", "obj1", "obj2", "obj3"]
    assert len(plugin.calls) == 5
    assert not [message for message in logs.get_messages() if "Stopping the watch-stream" in message]


async def test_refused_tokens_are_renewed_at_once(
    operator: Operator,
    plugin: Plugin,
    kex: Objects,
    calls: Calls,
) -> None:
    await operator.start()
    operator.cluster.faults.expire_token()
    plugin.bring(token=operator.cluster.token)
    kex.api.session.headers["Authorization"] = f"Bearer {operator.cluster.token}"
    await kex.create_and_wait()
    assert calls == ["obj"]
    assert len(plugin.calls) == 2


async def test_the_loop_is_free_while_the_plugin_runs(operator: Operator, plugin: Plugin, logs: Logs) -> None:
    """Those who embed the operator have other things to do in the same loop."""
    plugin.behave(wait="go", code=1)
    launching = asyncio.create_task(operator.launch())
    while not plugin.calls:
        await asyncio.sleep(0.01)
    plugin.bring(token=operator.cluster.token)
    plugin.path.with_name("go").touch()  # it is only possible if the loop is not waiting for the plugin
    await launching
    await logs.wait(".* failed temporarily: .* with the exit code 1, saying: nothing.*")


@pytest.mark.fastforward
async def test_failures_that_pass_are_waited_out(operator: Operator, plugin: Plugin, kex: Objects, logs: Logs) -> None:
    plugin.behave(stderr="the network is down", code=1)
    launching = asyncio.create_task(operator.start())
    await logs.wait(".*failed temporarily: .*with the exit code 1, saying: the network is down.*", times=2)
    plugin.bring(token=operator.cluster.token)
    await launching
    await kex.create_and_wait()


@pytest.mark.fastforward
async def test_failures_that_do_not_pass_end_the_operator_with_the_reason(
    operator: Operator,
    plugin: Plugin,
    change_kubeconfig: Change,
) -> None:
    change_kubeconfig(user={"exec": plugin.make_stanza(installHint="Run `aws sso login`.")})
    plugin.behave(stderr="The SSO session has expired.", code=255)
    await operator.launch_in_vain(
        kopf.LoginError, r"'/.*/plugin' .* exit code 255, saying: The SSO .*Run `aws sso login`"
    )
    assert len(plugin.calls) == 4


@pytest.mark.fastforward
async def test_failures_in_the_middle_end_the_operator_with_the_reason(
    operator: Operator,
    plugin: Plugin,
    kex: Objects,
    logs: Logs,
) -> None:
    plugin.bring(token=operator.cluster.token, expirationTimestamp=in_seconds(900))
    await operator.start()
    plugin.behave(stderr="The SSO session has expired.", code=255)
    logs.expected.append(".")
    await asyncio.sleep(1000)
    await kex.create()
    with pytest.raises(kopf.LoginError, match="The SSO session has expired"):
        await operator.wait()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"command": "absent-plugin", "installHint": "brew install absent"},
            "not found: install .* brew install absent",
        ),
        ({"interactiveMode": "Always"}, "needs a human at a terminal .*Use a service account"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "update the plugin"),
    ],
)
async def test_what_cannot_work_is_said_at_once(
    operator: Operator,
    plugin: Plugin,
    change_kubeconfig: Change,
    fields: dict[str, Any],
    message: str,
) -> None:
    change_kubeconfig(user={"exec": plugin.make_stanza(**fields)})
    await operator.launch_in_vain(kopf.LoginError, message)
    assert plugin.calls == []


async def test_login_handlers_can_use_it_too(operator: Operator, plugin: Plugin, kex: Objects, logs: Logs) -> None:
    kopf.on.login(id="login")(
        lambda **kwargs: kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
    )
    await operator.start_and_handle(kex)
    assert not [message for message in logs.get_messages() if "in the event loop" in message]
