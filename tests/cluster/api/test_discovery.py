from __future__ import annotations

from typing import Any

from kopf_cluster import LocalCluster
from tests.cluster.conftest import CRDS, Client, connect, make_definition

AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"}


async def test_legacy_discovery(client: Client, cluster: LocalCluster, kexes: str) -> None:
    core_versions = await client.get("/api")
    assert core_versions["versions"] == ["v1"]
    assert core_versions["serverAddressByClientCIDRs"] == [
        {"clientCIDR": "0.0.0.0/0", "serverAddress": cluster.url.removeprefix("https://")}
    ]
    groups = {group["name"]: group for group in (await client.get("/apis"))["groups"]}
    assert {"apps", "batch", "apiextensions.k8s.io", "example.com"} <= set(groups)
    assert groups["example.com"] == {
        "name": "example.com",
        "versions": [{"groupVersion": "example.com/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "example.com/v1", "version": "v1"},
    }
    assert (await client.get("/apis/example.com"))["kind"] == "APIGroup"
    resources = await client.get("/apis/example.com/v1")
    assert resources["kind"] == "APIResourceList"
    assert resources["groupVersion"] == "example.com/v1"
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    assert resources["resources"] == [
        {
            "name": "kexes",
            "singularName": "kex",
            "namespaced": True,
            "kind": "Kex",
            "verbs": verbs,
            "storageVersionHash": "kr4JRSweTMM=",
        },
        {
            "name": "kexes/status",
            "singularName": "",
            "namespaced": True,
            "kind": "Kex",
            "verbs": ["get", "patch", "update"],
        },
    ]
    core = {resource["name"]: resource for resource in (await client.get("/api/v1"))["resources"]}
    assert core["pods"]["shortNames"] == ["po"]
    assert core["pods"]["categories"] == ["all"]
    assert core["namespaces"]["namespaced"] is False


async def test_aggregated_discovery(client: Client, kexes: str) -> None:
    reply = await client.call("GET", "/apis", headers=AGGREGATED)
    assert reply.headers["Content-Type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert reply.body["kind"] == "APIGroupDiscoveryList"
    groups = {item["metadata"]["name"]: item for item in reply.body["items"]}
    kex = {"group": "example.com", "version": "v1", "kind": "Kex"}
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    assert groups["example.com"]["versions"] == [
        {
            "version": "v1",
            "freshness": "Current",
            "resources": [
                {
                    "resource": "kexes",
                    "responseKind": kex,
                    "scope": "Namespaced",
                    "singularResource": "kex",
                    "verbs": verbs,
                    "subresources": [
                        {"subresource": "status", "responseKind": kex, "verbs": ["get", "patch", "update"]}
                    ],
                }
            ],
        }
    ]
    core = (await client.get("/api", headers=AGGREGATED))["items"]
    assert [item["metadata"]["name"] for item in core] == [""]


async def test_both_forms_tell_the_same(client: Client, kexes: str) -> None:
    def simplify(group: str, version: Any) -> set[tuple[str, str, str]]:
        return {(group, version["version"], item["resource"]) for item in version["resources"]}

    aggregated = set()
    for path in ("/api", "/apis"):
        for item in (await client.get(path, headers=AGGREGATED))["items"]:
            for version in item["versions"]:
                aggregated |= simplify(item["metadata"]["name"], version)
    legacy = {("", "v1", item["name"]) for item in (await client.get("/api/v1"))["resources"]}
    for group in (await client.get("/apis"))["groups"]:
        for version in group["versions"]:
            resources = (await client.get(f"/apis/{version['groupVersion']}"))["resources"]
            legacy |= {(group["name"], version["version"], item["name"]) for item in resources}
    assert {item for item in legacy if "/" not in item[2]} == aggregated


async def test_every_discovered_resource_is_served(client: Client) -> None:
    for item in (await client.get("/apis"))["groups"]:
        version = item["preferredVersion"]["groupVersion"]
        for resource in (await client.get(f"/apis/{version}"))["resources"]:
            if "/" not in resource["name"] and "list" in resource["verbs"]:
                listing = await client.get(f"/apis/{version}/{resource['name']}")
                assert listing["kind"] == f"{resource['kind']}List"


async def test_versions_are_in_the_order_of_preference(client: Client) -> None:
    definition = make_definition()
    template = definition["spec"]["versions"][0]
    names = ["v1alpha1", "foo1", "v2", "v10beta3", "v3beta1", "v10", "v1"]
    definition["spec"]["versions"] = [{**template, "name": name, "storage": name == "v1"} for name in names]
    await client.create(CRDS, definition)
    group = await client.get("/apis/example.com")
    assert [version["version"] for version in group["versions"]] == [
        "v10",
        "v2",
        "v1",
        "v10beta3",
        "v3beta1",
        "v1alpha1",
        "foo1",
    ]
    assert group["preferredVersion"]["version"] == "v10"


async def test_the_version_and_the_paths(client: Client) -> None:
    version = await client.get("/version")
    assert (version["major"], version["minor"]) == ("1", "36")
    paths = (await client.get("/"))["paths"]
    assert {"/api/v1", "/apis/apps/v1", "/version"} <= set(paths)


async def test_health(client: Client) -> None:
    for name in ("healthz", "livez", "readyz"):
        assert (await client.call("GET", f"/{name}")).body == b"ok"
        verbose = (await client.call("GET", f"/{name}?verbose")).body.decode()
        assert verbose.startswith("[+]ping ok\n")
        assert verbose.endswith(f"{name} check passed\n")
        assert (await client.call("GET", f"/{name}/ping")).body == b"ok"
        assert (await client.call("GET", f"/{name}/nosuch")).status == 404


async def test_storage_versions_are_told(client: Client) -> None:
    """The hashes are those of any cluster, as they are made of nothing but names."""

    def hashes(listing: Any) -> dict[str, str | None]:
        return {item["name"]: item.get("storageVersionHash") for item in listing["resources"]}

    core = hashes(await client.get("/api/v1"))
    assert (core["pods"], core["configmaps"], core["events"]) == ("xPOwRZ+Yhw8=", "qFsyl6wFWjQ=", "r2yiGXH7wu8=")
    assert core["pods/status"] is core["bindings"] is core["componentstatuses"] is None
    apps = hashes(await client.get("/apis/apps/v1"))
    assert (apps["deployments"], apps["replicasets"]) == ("8aSe+NMegvE=", "P1RzHs8/mWQ=")
    assert hashes(await client.get("/apis/events.k8s.io/v1"))["events"] == core["events"]
    versions = [hashes(await client.get(f"/apis/autoscaling/{version}")) for version in ("v1", "v2")]
    assert versions[0]["horizontalpodautoscalers"] == versions[1]["horizontalpodautoscalers"]


async def test_components_are_healthy() -> None:
    async with LocalCluster() as cluster, connect(cluster) as client:
        items = (await client.get("/api/v1/componentstatuses"))["items"]
        assert {item["metadata"]["name"]: item["conditions"] for item in items} == {
            name: [{"type": "Healthy", "status": "True", "message": "ok"}]
            for name in ("controller-manager", "etcd-0", "scheduler")
        }
