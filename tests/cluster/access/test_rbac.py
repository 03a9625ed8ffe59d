"""Roles and bindings as the server applies them, and the questions about permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import CONFIG_MAPS, Client, Reply, connect, make_config_map

RBAC = "rbac.authorization.k8s.io"
ROLE = f"""
apiVersion: {RBAC}/v1
kind: Role
metadata: {{name: editor, namespace: default}}
rules:
- {{apiGroups: [""], resources: [configmaps], verbs: [get, list, create]}}
- {{apiGroups: [""], resources: [configmaps], verbs: [delete], resourceNames: [mine]}}
---
apiVersion: {RBAC}/v1
kind: RoleBinding
metadata: {{name: editors, namespace: default}}
roleRef: {{apiGroup: {RBAC}, kind: Role, name: editor}}
subjects: [{{kind: ServiceAccount, name: worker}}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: worker, namespace: default}}
"""
WORKER = "system:serviceaccount:default:worker"


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(authorization="rbac") as cluster:
        cluster.apply(ROLE)
        yield cluster


async def ask(
    client: Client,
    method: str,
    path: str,
    *,
    user: str = WORKER,
    groups: str = "",
    body: Any = None,
) -> Reply:
    headers = {"Impersonate-User": user} | ({"Impersonate-Group": groups} if groups else {})
    return await client.call(method, path, headers=headers, json=body)


async def test_updates_that_create_need_both_permissions(client: Client, cluster: LocalCluster) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/one"
    lease = {"metadata": {"name": "one"}}
    for verbs, code in (["update"], 403), (["create"], 403), (["create", "update"], 201), (["update"], 200):
        rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]
        cluster.patch("role", "editor", {"rules": rules})
        assert (await ask(client, "PUT", path, body=lease)).status == code


async def test_only_what_is_granted_is_allowed(client: Client) -> None:
    assert (await ask(client, "POST", CONFIG_MAPS, body=make_config_map("mine"))).status == 201
    assert (await ask(client, "POST", CONFIG_MAPS, body=make_config_map("other"))).status == 201
    assert (await ask(client, "GET", CONFIG_MAPS)).status == 200
    assert (await ask(client, "DELETE", f"{CONFIG_MAPS}/mine")).status == 200
    refused = await ask(client, "DELETE", f"{CONFIG_MAPS}/other")
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert refused.body["message"] == (
        f'configmaps "other" is forbidden: User "{WORKER}" cannot delete resource "configmaps" '
        'in API group "" in the namespace "default"'
    )
    assert (await ask(client, "GET", CONFIG_MAPS, user="somebody")).status == 403
    assert (await ask(client, "GET", "/api/v1/configmaps")).status == 403
    assert (await client.call("GET", "/api/v1/configmaps")).status == 200  # the administrator's own token


async def test_changes_of_roles_are_effective_at_once(client: Client) -> None:
    path = f"/apis/{RBAC}/v1/namespaces/default"
    assert (await ask(client, "DELETE", CONFIG_MAPS)).status == 403
    await client.patch(f"{path}/roles/editor", {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})
    assert (await ask(client, "DELETE", CONFIG_MAPS)).status == 200
    await client.delete(f"{path}/rolebindings/editors")
    assert (await ask(client, "DELETE", CONFIG_MAPS)).status == 403


async def test_default_roles_are_there(client: Client) -> None:
    assert (await ask(client, "GET", "/apis", user="somebody")).status == 200  # "system:discovery"
    assert (await ask(client, "GET", CONFIG_MAPS, user="boss", groups="system:masters")).status == 200
    roles = await client.get(f"/apis/{RBAC}/v1/clusterroles")
    assert {"cluster-admin", "admin", "edit", "view"} <= {item["metadata"]["name"] for item in roles["items"]}
    await client.create(
        f"/apis/{RBAC}/v1/namespaces/default/rolebindings",
        {
            "metadata": {"name": "viewers"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "guests"}],
        },
    )
    assert (await ask(client, "GET", "/api/v1/namespaces/default", user="x", groups="guests")).status == 200
    assert (await ask(client, "GET", "/api/v1/namespaces/default/secrets", user="x", groups="guests")).status == 403


async def test_impersonation_needs_a_permission(client: Client, cluster: LocalCluster) -> None:
    token = cluster.create_token("default", "worker")
    headers = {"Authorization": f"Bearer {token}", "Impersonate-User": "boss"}
    refused = await client.call("GET", CONFIG_MAPS, headers=headers, expected=403)
    assert f'users "boss" is forbidden: User "{WORKER}" cannot impersonate resource "users"' in refused.body["message"]


async def test_the_admin_endpoint_is_for_administrators(client: Client) -> None:
    assert (await ask(client, "GET", "/_kopf/faults")).status == 403
    assert (await client.call("GET", "/_kopf/faults")).status == 200


async def test_access_reviews(client: Client) -> None:
    own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    attributes = {"verb": "create", "resource": "configmaps", "namespace": "default"}
    reply = await ask(
        client,
        "POST",
        own,
        body={
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        },
    )
    assert (reply.status, reply.body["status"]["allowed"]) == (201, True)
    others = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    watching = {**attributes, "verb": "watch"}
    reviewed = await client.create(others, {"spec": {"user": WORKER, "resourceAttributes": watching}})
    assert reviewed["status"] == {"allowed": False}
    assert (await client.call("POST", others, json={"spec": {"user": WORKER}})).status == 422
    local = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
    reviewed = await client.create(local, {"spec": {"user": WORKER, "resourceAttributes": attributes}})
    assert reviewed["status"]["allowed"] is True
    rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    reply = await ask(client, "POST", rules, body={"spec": {"namespace": "default"}})
    assert {"verbs": ["get", "list", "create"], "apiGroups": [""], "resources": ["configmaps"]} in reply.body["status"][
        "resourceRules"
    ]


async def test_everything_is_allowed_by_default() -> None:
    async with LocalCluster() as cluster, connect(cluster) as client:
        assert (await ask(client, "GET", CONFIG_MAPS, user="somebody")).status == 200
        reviewed = await client.create(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"spec": {"user": "somebody", "resourceAttributes": {"verb": "delete", "resource": "pods"}}},
        )
        assert reviewed["status"]["allowed"] is True
