"""Aggregated discovery: everything by two requests, in the forms of old and new servers, and of mixed ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._client.resources.discovery import StaleGroupError, discover
from kopf._settings.settings import OperatorSettings
from kopf._values.resources import Resource
from kopf._values.selectors import EVERYTHING, Selector
from kopf_cluster import LocalCluster
from tests.client.scripted import ScriptedServer, reply


def entry(plural: str, kind: str = "", **fields: Any) -> dict[str, Any]:
    kind = kind or plural.rstrip("s").title()
    response = {"group": "", "version": "", "kind": kind}
    return {"resource": plural, "responseKind": response, "scope": "Namespaced", "verbs": ["list"], **fields}


def document(*groups: tuple[str, dict[str, list[dict[str, Any]] | None]]) -> dict[str, Any]:
    """Make a document; the versions with no resources are stale."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": [
            {
                "metadata": {"name": name} if name else {},
                "versions": [
                    {"version": version, "freshness": "Current", "resources": entries}
                    if entries is not None
                    else {"version": version, "freshness": "Stale"}
                    for version, entries in versions.items()
                ],
            }
            for name, versions in groups
        ],
    }


def select(found: Any) -> set[str]:
    return {f"{resource!r}{'' if resource.preferred else '?'}" for resource in found.resources}


async def test_all_details(server: ScriptedServer, api: APIClient) -> None:
    pods = entry(
        "pods",
        singularResource="pod",
        shortNames=["po"],
        categories=["all"],
        verbs=["list", "watch"],
        subresources=[{"subresource": "status", "verbs": ["get"]}, {"subresource": "exec", "verbs": ["create"]}],
    )
    partial = {"resource": "subjectaccessreviews", "scope": "Cluster", "subresources": [{"subresource": "x"}]}
    server.on("GET /api", reply(document(("", {"v1": [pods, entry("nodes", scope="Cluster"), partial]}))))
    server.on("GET /apis", reply(document()))
    discovery = await discover(api, [Selector("pods")])
    nodes, found = sorted(discovery.resources, key=lambda resource: resource.plural)
    assert found == Resource("", "v1", "pods")
    assert (found.kind, found.singular, found.namespaced, found.preferred) == ("Pod", "pod", True, True)
    assert (found.shortcuts, found.categories) == (frozenset({"po"}), frozenset({"all"}))
    assert found.subresources == {"status", "exec"}
    assert found.verbs == {"list", "watch"}
    assert (nodes.plural, nodes.namespaced, nodes.singular) == ("nodes", False, "node")
    assert server.requests[0].headers["Accept"] == (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    )


async def test_preferred_versions(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /api", reply(document(("", {"v1": [entry("pods")]}))))
    server.on(
        "GET /apis",
        reply(
            document(
                ("kopf.dev", {"v1": [entry("kexes")], "v1beta1": [entry("kexes"), entry("olds")]}),
                ("apps", {"v1": [entry("deployments")]}),
            )
        ),
    )
    found = await discover(api, [Selector(EVERYTHING)])
    assert select(found) == {
        "pods.v1",
        "deployments.v1.apps",
        "kexes.v1.kopf.dev",
        "kexes.v1beta1.kopf.dev?",
        "olds.v1beta1.kopf.dev",
    }


async def test_extensions_that_are_down(server: ScriptedServer, api: APIClient) -> None:
    """Nobody waits for them, and nobody mistakes the less preferred versions for the main ones."""
    server.on("GET /api", reply(document(("", {"v1": [entry("pods")]}))))
    server.on(
        "GET /apis",
        reply(
            document(
                ("metrics.k8s.io", {"v1": None, "v1beta1": [entry("metrics")]}),
                ("kopf.dev", {"v1": [entry("kexes")]}),
            )
        ),
    )
    discovery = await discover(api, [Selector("pods")])
    assert select(discovery) == {"pods.v1", "kexes.v1.kopf.dev", "metrics.v1beta1.metrics.k8s.io?"}
    assert isinstance(discovery.unavailable["metrics.k8s.io/v1"], StaleGroupError)


async def test_servers_that_aggregate_only_a_half(server: ScriptedServer, api: APIClient) -> None:
    """E.g. during an upgrade of the control plane, different servers respond."""
    server.on("GET /api", reply(document(("", {"v1": [entry("pods")]}))))
    versions = [{"groupVersion": "kopf.dev/v1", "version": "v1"}]
    server.on("GET /apis", reply({"kind": "APIGroupList", "groups": [{"name": "kopf.dev", "versions": versions}]}))
    kexes = {"name": "kexes", "kind": "Kex", "namespaced": True, "verbs": ["list"]}
    server.on("GET /apis/kopf.dev/v1", reply({"resources": [kexes]}))
    assert select(await discover(api, [Selector(EVERYTHING)])) == {"pods.v1", "kexes.v1.kopf.dev"}


async def test_only_the_needed_versions_are_taken(server: ScriptedServer, api: APIClient) -> None:
    server.on("GET /api", reply(document(("", {"v1": [entry("pods")]}))))
    server.on("GET /apis", reply(document(("apps", {"v1": [entry("deployments")]}))))
    found = await discover(api, [Selector("kopf.dev/v1", "kexes"), Selector("apps", "x"), Selector(EVERYTHING)])
    assert select(found) == {"pods.v1", "deployments.v1.apps"}


class TestWithCluster:
    """Both forms tell the same of the same cluster."""

    @pytest.fixture
    async def cluster(self) -> AsyncIterator[LocalCluster]:
        async with LocalCluster() as cluster:
            yield cluster

    async def test_both_forms_are_equal(self, cluster: LocalCluster, settings: OperatorSettings) -> None:
        vault = Vault(settings)
        vault.populate([ConnectionInfo(server=cluster.url, ca_data=cluster.ca_data, token=cluster.token)])
        api = APIClient(vault, settings)
        cluster.reset_counters()
        aggregated = await discover(api, [Selector(EVERYTHING)])
        assert sum(cluster.counters.values()) == 2
        groups = {resource.group for resource in aggregated.resources}
        plain = await discover(api, [Selector(group, EVERYTHING) for group in groups])
        assert sum(cluster.counters.values()) > 20
        assert describe(aggregated.resources) == describe(plain.resources)
        await vault.close()


def describe(resources: frozenset[Resource]) -> set[tuple[Any, ...]]:
    return {tuple(getattr(resource, name) for name in resource.__dataclass_fields__) for resource in resources}
