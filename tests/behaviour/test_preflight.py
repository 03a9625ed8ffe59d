"""The preflight: what is not permitted, is named at once when the operator starts; nothing depends on that."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import Objects
from tests.behaviour.roles import Roles
from tests.behaviour.roles import cluster as cluster
from tests.behaviour.roles import registry as registry
from tests.behaviour.roles import roles as roles
from tests.behaviour.running import Calls, Logs, Operator

ALL = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
MISSING = "The operator lacks permissions.*"
REVIEWS = ("create", "selfsubjectrulesreviews", 201)
QUESTIONS = ("create", "selfsubjectaccessreviews", 201)


def look(**_: Any) -> None:
    """A handler that writes nothing, as can be seen in its code."""


@pytest.mark.fastforward
async def test_all_that_is_missing_is_named_at_once(
    operator: Operator,
    cluster: LocalCluster,
    roles: Roles,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    logs.expected.append("Cannot watch kopf")
    kopf.on.create("kopfexamples")(calls.noting("kex"))
    kopf.on.create("kopfstatusexamples")(calls.noting("sub", result="done"))
    kopf.needs("secrets", verbs=["get"], names=["x"])
    operator.set("posting.enabled", True)
    roles.grant({"apiGroups": ["kopf.dev"], "resources": ["kopfexamples"], "verbs": ["list"]})
    await operator.launch(preflight=True)
    message = (await logs.wait(MISSING)).getMessage()
    assert message == (
        "The operator lacks permissions. Add these rules to a ClusterRole: ["
        "{apiGroups: [''], resources: [events], verbs: [create, patch]}, "
        "{apiGroups: [''], resources: [secrets], verbs: [get], resourceNames: [x]}, "
        "{apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list, watch]}, "
        "{apiGroups: [kopf.dev], resources: [kopfexamples], verbs: [watch, patch]}, "
        "{apiGroups: [kopf.dev], resources: [kopfstatusexamples], verbs: [list, watch, patch]}, "
        "{apiGroups: [kopf.dev], resources: [kopfstatusexamples/status], verbs: [patch]}]."
    )
    denial = (await logs.wait("Cannot watch kopfstatusexamples.*")).getMessage()
    assert denial.endswith("The rule is among those that were named at the start.")
    roles.follow(message)
    await kex.create_and_wait()
    await sub.create_and_wait()
    await operator.stop()
    assert len(logs.find(MISSING)) == 1
    assert cluster.counters[REVIEWS] == 1
    assert QUESTIONS not in cluster.counters


async def test_nothing_is_said_or_asked_for_if_nothing_is_missing(
    operator: Operator,
    cluster: LocalCluster,
    roles: Roles,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    kopf.on.create("kopfexamples")(calls.noting("kex"))
    roles.grant(ALL)
    await operator.launch(preflight=True)
    await kex.create_and_wait()
    assert cluster.counters[REVIEWS] == 1
    await operator.stop()
    assert not logs.find(MISSING)
    assert QUESTIONS not in cluster.counters


@pytest.mark.fastforward
async def test_restricted_operators(
    operator: Operator,
    cluster: LocalCluster,
    roles: Roles,
    logs: Logs,
) -> None:
    kopf.on.event("kopfexamples")(look)
    logs.expected.append("Cannot watch kopfexamples")
    rule = {"apiGroups": ["kopf.dev"], "resources": ["kopfexamples"], "verbs": ["list", "watch"]}
    roles.grant(rule, namespace="ns1")
    operator.set("scanning.disabled", True)
    await operator.launch(preflight=True, clusterwide=False, namespaces=["ns1", "ns2"])
    message = (await logs.wait(MISSING)).getMessage()
    assert message.endswith(
        " a ClusterRole, or a Role in the namespace 'ns2': "
        "[{apiGroups: [kopf.dev], resources: [kopfexamples], verbs: [list, watch]}]."
    )
    assert cluster.counters[REVIEWS] == 2


@pytest.mark.fastforward
async def test_leases_of_replicas(operator: Operator, roles: Roles, logs: Logs) -> None:
    """Without them, nothing is handled; as they are in one namespace, a Role is enough."""
    kopf.on.event("kopfexamples")(look)
    logs.expected += ["Not permitted to .* leases", "A request for the leases"]
    for name, value in (("mode", "shards"), ("name", "web"), ("namespace", "ns1"), ("identity", "web-0")):
        operator.set(f"coordination.{name}", value)
    operator.set("scanning.disabled", True)
    operator.set("posting.enabled", False)
    roles.grant({"apiGroups": ["kopf.dev"], "resources": ["*"], "verbs": ["*"]})
    await operator.launch(preflight=True)
    message = (await logs.wait(MISSING)).getMessage()
    assert message.endswith(
        " a ClusterRole, or a Role in the namespace 'ns1': "
        "[{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, patch]}]."
    )
    roles.follow(message)
    await logs.wait("Holding 256 of 256 slots.*")


async def test_what_only_helps_is_not_a_warning(
    operator: Operator,
    roles: Roles,
    logs: Logs,
) -> None:
    kopf.on.event("kopfexamples")(look)
    roles.grant({"apiGroups": ["kopf.dev"], "resources": ["kopfexamples"], "verbs": ["list", "watch"]})
    await operator.launch(preflight=True)
    assert (await logs.wait(MISSING)).levelname == "INFO"


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_refused_reviews_are_not_a_trouble(
    operator: Operator,
    cluster: LocalCluster,
    roles: Roles,
    kex: Objects,
    calls: Calls,
    logs: Logs,
    status: int,
) -> None:
    kopf.on.create("kopfexamples")(calls.noting("kex"))
    roles.grant(ALL)
    cluster.faults.inject(status, resource="selfsubjectrulesreviews")
    await operator.launch(preflight=True)
    await kex.create_and_wait()
    await logs.wait("Cannot check for missing permissions.*")
    await operator.stop()
    assert not logs.get_messages(level=30)


async def test_permissions_are_asked_for_one_by_one_if_the_rules_are_incomplete(
    operator: Operator,
    cluster: LocalCluster,
    roles: Roles,
    calls: Calls,
    logs: Logs,
    monkeypatch: Any,
) -> None:
    """E.g. because of an authorizer behind a webhook, as in some managed clusters."""
    from kopf_cluster.access import virtual

    def review_nothing(*_: Any) -> dict[str, Any]:
        return {"resourceRules": [], "nonResourceRules": [], "incomplete": True}

    monkeypatch.setattr(virtual, "review_rules", review_nothing)
    kopf.on.create("kopfexamples")(calls.noting("kex"))
    roles.grant(
        {"apiGroups": ["kopf.dev"], "resources": ["kopfexamples"], "verbs": ["list", "watch"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["*"], "verbs": ["*"]},
    )
    await operator.start(preflight=True)
    message = (await logs.wait(MISSING)).getMessage()
    assert re.findall(r"{.*}", message) == ["{apiGroups: [kopf.dev], resources: [kopfexamples], verbs: [patch]}"]
    assert cluster.counters[QUESTIONS] == 5


async def test_the_operator_can_be_stopped_while_it_is_asked(
    operator: Operator,
    cluster: LocalCluster,
    roles: Roles,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples")(calls.noting("kex"))
    roles.grant(ALL)
    cluster.faults.inject(latency=100, resource="selfsubjectrulesreviews")
    await operator.start(preflight=True)
    await asyncio.wait_for(operator.stop(), 30)
