"""When the managed webhook configurations are written, and when they are left alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.admission.configurations import MUTATING, NAME, OWNER, URL, VALIDATING, Configurations, Tunnel
from tests.behaviour.objects import API, Objects
from tests.behaviour.peerings import PeeringObject, define_peering
from tests.behaviour.running import Calls, Decorator, Journal, Logs, Operator

pytestmark = pytest.mark.fastforward


def declare(id: str = "check", decorator: Decorator = kopf.on.validate, **options: Any) -> None:
    @decorator("kopfexamples", id=id, **options)
    def check(**_: Any) -> None: ...


async def publish(
    operator: Operator, configurations: Configurations, *, peering_name: str | None = None, **options: Any
) -> None:
    """Launch the operator with one webhook, and wait until the API servers would call it."""
    declare(**options)
    await operator.launch(peering_name=peering_name)
    await configurations.wait_webhooks("check")


def make_webhook(id: str, url: str) -> dict[str, object]:
    """A webhook as another operator has published it."""
    options = {"sideEffects": "None", "admissionReviewVersions": ["v1"]}
    return {"name": f"{id}.{NAME}", "clientConfig": {"url": url}, **options}


async def pause(operator: Operator, api: API, identity: str, *, priority: int) -> PeeringObject:
    """Let there be somebody of that priority among the peers, who never goes by itself."""
    define_peering(operator.cluster)
    peering = PeeringObject(api)
    await peering.create()
    await peering.put(identity, priority=priority, lifetime=1e6)
    return peering


def make_replica(operator: Operator, *client_configs: kopf.WebhookClientConfig) -> Operator:
    """One more operator with the same handlers."""
    replica = Operator(operator.cluster, operator.registry)
    replica.configure = Tunnel(*client_configs).configure
    return replica


async def wait_until_called(configurations: Configurations, url: str | None) -> None:
    """Wait until it is that replica that the API servers call."""
    await configurations.wait(
        lambda obj: obj and obj["webhooks"] and obj["webhooks"][0]["clientConfig"]["url"] == f"{url}/check"
    )


async def test_configurations_are_created(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    logs: Logs,
) -> None:
    declare("check", kopf.on.validate)
    declare("fill", kopf.on.mutate)
    await operator.launch()
    await configurations.wait_webhooks("check", type=VALIDATING)
    await configurations.wait_webhooks("fill", type=MUTATING)
    assert len(logs.find(f"Reconfiguring the validating webhook {NAME}.")) == 1
    assert len(logs.find(f"Reconfiguring the mutating webhook {NAME}.")) == 1


async def test_existing_configurations_are_overwritten(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
) -> None:
    old = await configurations.create(
        webhooks=[make_webhook("other", "https://other")], annotations={"a": "b"}, labels={"l": "v"}
    )
    await publish(operator, configurations)
    obj = await configurations.get()
    assert obj is not None
    assert obj["metadata"]["uid"] == old["metadata"]["uid"]
    assert obj["metadata"]["labels"] == {"l": "v"}
    assert obj["metadata"]["annotations"]["a"] == "b"


async def test_outdated_webhooks_of_other_types_are_removed(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
) -> None:
    """E.g. persistent ones of an earlier version of the operator."""
    await configurations.create(MUTATING, webhooks=[make_webhook("other", "https://other")])
    await publish(operator, configurations)
    await configurations.wait_webhooks(type=MUTATING)


async def test_outdated_webhooks_are_removed_with_the_last_handler(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
) -> None:
    await publish(operator, configurations, persistent=True)
    await operator.stop()
    assert len(await configurations.get_webhooks()) == 1
    kopf.get_default_registry().webhooks.clear()
    await operator.launch()
    await configurations.wait_webhooks()


async def test_nothing_is_managed_by_default(operator: Operator, configurations: Configurations) -> None:
    tunnel = Tunnel()

    declare()
    operator.set("admission.server", tunnel)
    await operator.launch()
    await asyncio.sleep(10)
    await operator.stop()
    assert tunnel.is_closed
    assert not [key for key in operator.cluster.counters if "webhookconfigurations" in key[1]]
    assert await configurations.get() is None


async def test_changes_of_the_address(operator: Operator, configurations: Configurations, tunnel: Tunnel) -> None:
    await publish(operator, configurations)
    tunnel.send({"url": "https://other", "caBundle": "eHl6"})
    await configurations.wait(lambda obj: obj and obj["webhooks"][0]["clientConfig"]["url"] == "https://other/check")
    (webhook,) = await configurations.get_webhooks()
    assert webhook["clientConfig"] == {"url": "https://other/check", "caBundle": "eHl6"}


async def test_nothing_is_written_if_nothing_has_changed(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
) -> None:
    await publish(operator, configurations)
    tunnel.send({**URL})
    await asyncio.sleep(1000)
    assert configurations.count_writes() == 1


async def test_not_before_the_server_is_ready(operator: Operator, configurations: Configurations) -> None:
    is_ready = False

    async def server(fn: kopf.WebhookFn) -> Any:
        nonlocal is_ready
        await asyncio.sleep(10)
        is_ready = True
        yield URL
        await asyncio.Event().wait()

    declare()
    operator.set("admission.server", server)
    operator.set("admission.managed", NAME)
    await operator.launch()
    await configurations.wait(lambda obj: obj)
    assert is_ready


async def test_not_before_the_indices_are_filled(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    kex: Objects,
    calls: Journal[str],
) -> None:
    @kopf.index("kopfexamples")
    async def index(**_: Any) -> None:
        await asyncio.sleep(10)
        calls.append("indexed")

    await kex.create()
    await publish(operator, configurations)
    assert calls == ["indexed"]


async def test_webhooks_are_removed_on_exit_except_for_persistent_ones(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
) -> None:
    for decorator in (kopf.on.validate, kopf.on.mutate):
        declare("temporary", decorator)
        declare("permanent", decorator, persistent=True)
    await operator.launch()
    await configurations.wait_webhooks("temporary", "permanent")
    await configurations.wait_webhooks("temporary", "permanent", type=MUTATING)
    await operator.stop()
    for type in (VALIDATING, MUTATING):
        assert [webhook["name"] for webhook in await configurations.get_webhooks(type)] == [f"permanent.{NAME}"]
        obj = await configurations.get(type)
        assert obj is not None
        assert OWNER not in (obj["metadata"].get("annotations") or {})


async def test_persistent_webhooks_have_no_owner_after_the_exit(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
) -> None:
    await publish(operator, configurations, persistent=True)
    published = await configurations.get_webhooks()
    await operator.stop()
    obj = await configurations.get()
    assert obj is not None
    assert obj["webhooks"] == published
    assert OWNER not in (obj["metadata"].get("annotations") or {})


async def test_webhooks_are_removed_when_the_operator_fails(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
) -> None:
    await publish(operator, configurations)
    tunnel.send(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await operator.wait()
    assert await configurations.get_webhooks() == []


async def test_the_server_is_closed_after_the_webhooks_are_removed(
    operator: Operator,
    configurations: Configurations,
    calls: Calls,
) -> None:
    async def server(fn: kopf.WebhookFn) -> Any:
        try:
            yield URL
            await asyncio.Event().wait()
        finally:
            calls.append(await configurations.get_webhooks())

    declare()
    operator.set("admission.server", server)
    operator.set("admission.managed", NAME)
    await operator.launch()
    await configurations.wait_webhooks("check")
    await operator.stop()
    assert list(calls) == [[]]


# --- several operators with the same configurations ---


async def test_rolling_out(operator: Operator, configurations: Configurations, tunnel: Tunnel) -> None:
    """The new replica takes over; the old one leaves the webhooks of it alone on exit."""
    await publish(operator, configurations)
    replica = make_replica(operator, {"url": "https://replica"})
    await replica.launch()
    await wait_until_called(configurations, "https://replica")
    await operator.stop()
    (webhook,) = await configurations.get_webhooks()
    assert webhook["clientConfig"]["url"] == "https://replica/check"
    await replica.stop()
    assert await configurations.get_webhooks() == []


@pytest.mark.parametrize("persistent", [False, True])
async def test_scaling_down(
    operator: Operator, configurations: Configurations, tunnel: Tunnel, *, persistent: bool
) -> None:
    """The owner exits, e.g. it was started on a laptop for a while; the remaining replica takes over."""
    await publish(operator, configurations, persistent=persistent)
    replica = make_replica(operator, {"url": "https://replica"})
    await replica.launch()
    await wait_until_called(configurations, "https://replica")
    await replica.stop()
    await wait_until_called(configurations, URL["url"])


async def test_versions_without_webhooks_do_not_switch_off_those_of_others(
    operator: Operator, configurations: Configurations, tunnel: Tunnel
) -> None:
    """E.g. an old pod is restarted during a rolling update to the first version with webhooks."""
    await publish(operator, configurations)
    old = make_replica(operator)
    old.registry = kopf.OperatorRegistry()
    kopf.on.event("kopfexamples", registry=old.registry)(lambda **_: None)
    writes = configurations.count_writes()
    await old.launch()
    await configurations.wait_writes(writes + 2)
    await wait_until_called(configurations, URL["url"])
    await old.stop()
    await wait_until_called(configurations, URL["url"])


async def test_paused_operators_publish(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    api: API,
) -> None:
    """E.g. in favour of another operator that has no webhooks; even if it is paused from the start."""
    await pause(operator, api, "senior", priority=100)
    declare()
    await operator.launch(peering_name="default")
    await wait_until_called(configurations, URL["url"])
    tunnel.send({"url": "https://elsewhere"})
    await wait_until_called(configurations, "https://elsewhere")
    await operator.stop()
    assert await configurations.get_webhooks() == []


@pytest.mark.parametrize("index", [False, True])
async def test_what_the_dead_have_left_is_replaced_while_paused(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    api: API,
    *,
    index: bool,
) -> None:
    """Nobody else would do that. The indices are filled when it goes on, and that can take forever."""
    await pause(operator, api, "senior", priority=100)
    await configurations.create(webhooks=[make_webhook("check", "https://dead/check")], annotations={OWNER: "dead"})
    declare()
    if index:
        kopf.index("kopfexamples", id="idx")(lambda **_: None)
    await operator.launch(peering_name="default")
    await wait_until_called(configurations, URL["url"])


async def test_those_who_work_have_the_priority_over_the_paused(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    api: API,
) -> None:
    """Whenever the paused ones publish, the one that works takes over, once; when it is gone, they do."""
    define_peering(operator.cluster)
    await PeeringObject(api).create()
    await publish(operator, configurations, peering_name="default")
    replica = make_replica(operator, {"url": "https://replica"})
    await replica.launch(peering_name="default", priority=100)
    await wait_until_called(configurations, "https://replica")
    writes = configurations.count_writes()
    assert writes == 2
    juniors = [make_replica(operator, {"url": f"https://junior{n}"}) for n in (1, 2)]
    for n, junior in enumerate(juniors, start=1):
        await junior.launch(peering_name="default", priority=-n)
        await configurations.wait_writes(writes + 2 * n)
        await wait_until_called(configurations, "https://replica")
    await asyncio.sleep(1000)
    await wait_until_called(configurations, "https://replica")
    assert configurations.count_writes() == writes + 4
    await replica.stop()
    await wait_until_called(configurations, URL["url"])
    await asyncio.gather(*(junior.stop() for junior in juniors))
    await wait_until_called(configurations, URL["url"])
    await operator.stop()
    assert await configurations.get_webhooks() == []
    obj = await configurations.get()
    assert obj is not None
    assert not obj["metadata"].get("annotations")


async def test_paused_operators_do_not_fight(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    api: API,
) -> None:
    """E.g. a whole deployment that is frozen: the last one is called, and when it is gone, another one."""
    peering = await pause(operator, api, "freezer", priority=1000)
    await publish(operator, configurations, peering_name="default")
    replicas = [make_replica(operator, {"url": f"https://replica{n}"}) for n in (1, 2)]
    for n, replica in enumerate(replicas, start=1):
        await replica.launch(peering_name="default", priority=n)
        await wait_until_called(configurations, f"https://replica{n}")
    await asyncio.sleep(1000)
    assert configurations.count_writes() == 3
    await peering.remove("freezer")
    await wait_until_called(configurations, "https://replica2")
    await asyncio.gather(*(replica.stop() for replica in replicas))
    await wait_until_called(configurations, URL["url"])


async def test_replicas_do_not_fight(operator: Operator, configurations: Configurations, tunnel: Tunnel) -> None:
    await publish(operator, configurations)
    replicas = [make_replica(operator, {"url": f"https://replica{n}"}) for n in range(3)]
    for replica in replicas:
        await replica.launch()
    await asyncio.sleep(1000)
    assert configurations.count_writes() == 4
    for replica in replicas:
        await replica.stop()
    await configurations.wait_webhooks("check")
    await operator.stop()
    assert await configurations.get_webhooks() == []


async def test_simultaneous_start(operator: Operator, configurations: Configurations, tunnel: Tunnel) -> None:
    declare()
    replicas = [operator, *(make_replica(operator) for _ in range(4))]
    await asyncio.gather(*(replica.launch() for replica in replicas))
    await configurations.wait_webhooks("check")
    await asyncio.sleep(1000)
    assert all(replica.is_running for replica in replicas)
    await asyncio.gather(*(replica.stop() for replica in replicas[1:]))
    await configurations.wait_webhooks("check")


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_webhooks_removed_by_others_are_restored(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    *,
    is_deleted: bool,
) -> None:
    await publish(operator, configurations)
    if is_deleted:
        await configurations.delete()
    else:
        await configurations.merge({"webhooks": [], "metadata": {"annotations": {OWNER: None}}})
    await configurations.wait_webhooks("check")


async def test_manual_changes_are_respected(operator: Operator, configurations: Configurations, tunnel: Tunnel) -> None:
    await publish(operator, configurations)
    (webhook,) = await configurations.get_webhooks()
    await configurations.merge({"webhooks": [{**webhook, "failurePolicy": "Ignore"}]})
    await asyncio.sleep(1000)
    (webhook,) = await configurations.get_webhooks()
    assert webhook["failurePolicy"] == "Ignore"


# --- trouble ---


@pytest.mark.parametrize(
    ("status", "verb", "error"),
    [
        (403, "patch", "permit the verbs 'create' & 'patch' on 'validatingwebhookconfigurations"),
        (403, "create", "permit the verbs 'create' & 'patch'"),
        (422, "patch", "is not accepted; check the name in settings.admission.managed"),
    ],
)
async def test_refusals_end_the_operator(
    operator: Operator,
    tunnel: Tunnel,
    status: int,
    verb: str,
    error: str,
) -> None:
    declare()
    operator.cluster.faults.inject(status, verb=verb, resource="validatingwebhookconfigurations")
    await operator.launch()
    with pytest.raises(Exception, match=error):
        await operator.wait()


async def test_unused_types_need_no_permissions(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
) -> None:
    operator.cluster.faults.inject(403, resource="mutatingwebhookconfigurations")
    await publish(operator, configurations)
    await asyncio.sleep(1000)
    assert operator.is_running


async def test_documented_permissions_are_sufficient(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    logs: Logs,
) -> None:
    """Only `create` & `patch`. Then, it will not be noticed if somebody removes the webhooks."""
    declare()
    for verb in ("get", "list", "watch", "update", "delete"):
        operator.cluster.faults.inject(403, verb=verb, resource="validatingwebhookconfigurations")
    await operator.launch()
    await logs.wait("If something removes the validating webhooks of .*, the operator will not notice it: .*")
    await asyncio.sleep(1000)
    assert len(logs.find("If something removes.*")) == 1
    operator.cluster.faults.clear()
    await configurations.wait_webhooks("check")
    await operator.stop()
    assert await configurations.get_webhooks() == []


@pytest.mark.parametrize("managed", ["short", "Not a name!", "", "Upper.Case", "a..b"])
async def test_bad_names(operator: Operator, tunnel: Tunnel, managed: str) -> None:
    def configure(settings: kopf.OperatorSettings) -> None:
        tunnel.configure(settings)
        settings.admission.managed = managed

    declare()
    operator.configure = configure
    await operator.launch()
    with pytest.raises(ValueError, match="settings.admission.managed must be a lowercase domain name"):
        await operator.wait()


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_temporary_errors_are_survived(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    logs: Logs,
    status: int,
) -> None:
    logs.expected.append("publisher of the validating webhook configuration has failed")
    operator.cluster.faults.inject(status, verb="patch", resource="validatingwebhookconfigurations", times=3)
    await publish(operator, configurations)


@pytest.mark.parametrize("status", [403, 500])
async def test_failed_removal_does_not_hold_the_exit(
    operator: Operator,
    configurations: Configurations,
    tunnel: Tunnel,
    logs: Logs,
    status: int,
) -> None:
    await publish(operator, configurations)
    operator.cluster.faults.inject(status, verb="patch", resource="validatingwebhookconfigurations")
    started = asyncio.get_running_loop().time()
    await operator.stop()
    assert asyncio.get_running_loop().time() - started < 30
    (record,) = logs.find("The validating webhooks are not removed.*")
    assert f"kubectl delete validatingwebhookconfigurations {NAME}" in record.getMessage()


async def test_removal_of_what_is_gone(operator: Operator, configurations: Configurations, tunnel: Tunnel) -> None:
    operator.cluster.faults.inject(403, verb="list", resource="validatingwebhookconfigurations")
    await publish(operator, configurations)
    await configurations.delete()
    await operator.stop()
    assert await configurations.get() is None
