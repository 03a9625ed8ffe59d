"""Owner references are set only by those who may, where the cluster protects owners."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import Client, Reply

GROUP = "rbac.authorization.k8s.io"
PATH = "/api/v1/namespaces/default/configmaps"
CLUSTER = {"authorization": "rbac-with-owners"}
WRITES = ["create", "update", "patch"]


def grant(cluster: LocalCluster, **verbs: list[str]) -> None:
    rules = [
        {"apiGroups": [""], "resources": [name.replace("__", "/")], "verbs": own} for name, own in verbs.items() if own
    ]
    subject = {"kind": "User", "name": "jane", "apiGroup": GROUP}
    reference = {"apiGroup": GROUP, "kind": "Role", "name": "own"}
    head = {"apiVersion": f"{GROUP}/v1", "metadata": {"name": "own"}}
    cluster.apply({**head, "kind": "Role", "rules": rules})
    cluster.apply({**head, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]})


def own(cluster: LocalCluster, *, blocking: bool, kind: str = "ConfigMap") -> dict[str, Any]:
    [owner] = cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
    uid = owner["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": kind, "name": "owner", "uid": uid, "blockOwnerDeletion": blocking}


async def call(client: Client, method: str, path: str, *references: Any) -> Reply:
    types = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
    content = {"metadata": {"name": "child", "ownerReferences": [*references]}}
    return await client.call(method, path, json=content, headers={"Impersonate-User": "jane", **types})


@pytest.mark.parametrize(
    ("verbs", "blocking", "kind", "status"),
    [
        (["update"], True, "ConfigMap", 201),
        (["*"], True, "ConfigMap", 201),
        ([], False, "ConfigMap", 201),
        ([], True, "ConfigMap", 403),
        (["get", "patch"], True, "ConfigMap", 403),
        (["update"], True, "Nonexistent", 403),
    ],
)
async def test_the_deletion_of_an_owner_is_blocked_by_those_who_may(
    client: Client, cluster: LocalCluster, verbs: list[str], blocking: bool, kind: str, status: int
) -> None:
    grant(cluster, configmaps=WRITES, configmaps__finalizers=verbs)
    reply = await call(client, "POST", PATH, own(cluster, blocking=blocking, kind=kind))
    assert reply.status == status
    if status == 403:
        assert "can't set finalizers on" in reply.body["message"]


@pytest.mark.parametrize(("verbs", "status"), [([*WRITES, "delete"], 200), (WRITES, 403)])
async def test_owners_are_changed_by_those_who_may_delete(
    client: Client, cluster: LocalCluster, verbs: list[str], status: int
) -> None:
    grant(cluster, configmaps=verbs)
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}})
    reply = await call(client, "PATCH", f"{PATH}/child", own(cluster, blocking=False))
    assert reply.status == status
    if status == 403:
        assert "can't delete" in reply.body["message"]


async def test_others_and_superusers_are_not_asked(client: Client, cluster: LocalCluster) -> None:
    grant(cluster, configmaps=WRITES)
    reference = own(cluster, blocking=True)
    content = {"metadata": {"name": "child", "ownerReferences": [reference]}}
    assert (await client.call("POST", PATH, json=content)).status == 201
    assert (await call(client, "PATCH", f"{PATH}/child", reference)).status == 200  # as it was
    assert (await client.call("DELETE", f"{PATH}/child")).status == 200
    assert (await call(client, "POST", PATH)).status == 201  # it has no owner
