"""
Nobody can grant what they do not have, unless they may do exactly that.
"""

from __future__ import annotations

from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import Client, Reply

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
ROLES, BINDINGS = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
OWN: list[dict[str, Any]] = [
    {"apiGroups": [GROUP], "resources": ["roles", "rolebindings"], "verbs": ["create", "update", "patch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["mine"]},
]


CLUSTER = {"authorization": "rbac"}


def grant(cluster: LocalCluster, *rules: dict[str, Any]) -> None:
    cluster.apply({"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": {"name": "own"}, "rules": [*OWN, *rules]})
    cluster.apply(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "own"},
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "own"},
            "subjects": [{"kind": "User", "name": "jane", "apiGroup": GROUP}],
        }
    )


async def post(client: Client, path: str, **fields: Any) -> Reply:
    return await client.call(
        "POST", path, json={"metadata": {"name": "x"}, **fields}, headers={"Impersonate-User": "jane"}
    )


def rule(resource: str, *verbs: str, **more: Any) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": [resource], "verbs": list(verbs), **more}


@pytest.mark.parametrize(
    ("rules", "status"),
    [
        ([rule("configmaps", "get")], 201),
        ([rule("configmaps", "list", resourceNames=["one"])], 201),
        ([rule("secrets", "get", resourceNames=["mine"])], 201),
        ([], 201),
        ([rule("secrets", "get")], 403),
        ([rule("configmaps", "get", "delete")], 403),
        ([rule("*", "get")], 403),
        ([rule("configmaps", "*")], 403),
        ([{"nonResourceURLs": ["/x"], "verbs": ["get"]}], 403),
    ],
)
async def test_roles_are_limited_to_what_one_has(
    client: Client,
    cluster: LocalCluster,
    rules: list[Any],
    status: int,
) -> None:
    grant(cluster)
    reply = await post(client, ROLES, rules=rules)
    assert reply.status == status


async def test_the_refusal_tells_what_is_missing(client: Client, cluster: LocalCluster) -> None:
    grant(cluster)
    reply = await post(client, ROLES, rules=[rule("secrets", "get", "list")])
    assert reply.body["message"] == (
        f'roles.{GROUP} "x" is forbidden: user "jane" (groups=["system:authenticated"]) is attempting to grant RBAC '
        'permissions not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get", "list"]}'
    )


async def test_existing_roles_are_limited_too(client: Client, cluster: LocalCluster) -> None:
    grant(cluster)
    await client.create(ROLES, {"metadata": {"name": "x"}, "rules": [rule("secrets", "get")]})
    for patch, status in (
        ({"metadata": {"labels": {"a": "b"}}}, 200),
        ({"rules": [rule("pods", "get")]}, 403),
        ({"rules": [rule("configmaps", "get")]}, 200),
    ):
        await client.call(
            "PATCH",
            f"{ROLES}/x",
            json=patch,
            headers={"Impersonate-User": "jane", "Content-Type": "application/merge-patch+json"},
            expected=status,
        )


async def test_bindings_are_limited_to_what_one_has(client: Client, cluster: LocalCluster) -> None:
    grant(cluster)
    await client.create(ROLES, {"metadata": {"name": "more"}, "rules": [rule("secrets", "get")]})
    for name, kind, status in (
        ("own", "Role", 201),
        ("more", "Role", 403),
        ("admin", "ClusterRole", 403),
        ("nosuch", "Role", 404),
    ):
        reply = await post(
            client, BINDINGS, metadata={"name": name + "s"}, roleRef={"apiGroup": GROUP, "kind": kind, "name": name}
        )
        assert reply.status == status


async def test_who_may_escalate_or_bind_is_not_limited(client: Client, cluster: LocalCluster) -> None:
    grant(
        cluster,
        {"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["escalate"]},
        {"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["admin"]},
    )
    assert (await post(client, ROLES, rules=[rule("secrets", "get")])).status == 201
    for name, status in (("admin", 201), ("cluster-admin", 403)):
        reply = await post(
            client, BINDINGS, metadata={"name": name}, roleRef={"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        )
        assert reply.status == status


async def test_administrators_are_not_limited(client: Client, cluster: LocalCluster) -> None:
    await client.create(ROLES, {"metadata": {"name": "x"}, "rules": [rule("*", "*")]})
