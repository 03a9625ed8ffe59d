"""
Subresources: what they are for is changed, and nothing else.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import APPLY, CRDS, STRATEGIC, Client, causes, make_definition, make_kex, make_request

APPS = "/apis/apps/v1/namespaces/default"
CORE = "/api/v1/namespaces/default"
SCALERS = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.ready", "labelSelectorPath": ".status.sel"}


def make_pod(name: str = "p", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }


def make_deployment(replicas: int = 2) -> dict[str, Any]:
    labels = {"app": "web"}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "template": {"metadata": {"labels": labels}, "spec": make_pod()["spec"]},
            "selector": {
                "matchLabels": labels,
                "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["b", "a"]},
                    {"key": "x", "operator": "DoesNotExist"},
                ],
            },
        },
    }


async def test_builtin_scales(client: Client) -> None:
    obj = await client.create(f"{APPS}/deployments", make_deployment())
    scale = await client.get(f"{APPS}/deployments/web/scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["metadata"] == {
        key: obj["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=web,tier notin (a,b),!x"}
    scale["spec"]["replicas"] = 5
    reply = await client.call("PUT", f"{APPS}/deployments/web/scale", json=scale)
    assert (reply.status, reply.body["spec"]) == (200, {"replicas": 5})
    changed = await client.get(f"{APPS}/deployments/web")
    assert changed["spec"] == {**obj["spec"], "replicas": 5}
    assert changed["metadata"]["generation"] == 2
    reply = await client.call("PUT", f"{APPS}/deployments/web/scale", json={**scale, "spec": {"replicas": 6}})
    assert (reply.status, reply.body["reason"]) == (409, "Conflict")


@pytest.mark.parametrize(
    ("patch", "content_type"),
    [
        ({"spec": {"replicas": 7}}, "application/merge-patch+json"),
        ({"spec": {"replicas": 7}}, STRATEGIC),
        ([{"op": "replace", "path": "/spec/replicas", "value": 7}], "application/json-patch+json"),
    ],
)
async def test_scales_are_patched(client: Client, patch: Any, content_type: str) -> None:
    await client.create(f"{APPS}/deployments", make_deployment())
    scale = await client.patch(f"{APPS}/deployments/web/scale", patch, content_type)
    assert scale["spec"] == {"replicas": 7}


async def test_wrong_scales_are_refused(client: Client) -> None:
    await client.create(f"{APPS}/deployments", make_deployment())
    path = f"{APPS}/deployments/web/scale"
    reply = await client.send_patch(path, {"spec": {"replicas": -1}})
    assert causes(reply) == [("spec.replicas", "FieldValueInvalid")]
    assert reply.body["message"] == (
        'Scale.autoscaling "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )
    assert (await client.send_patch(path, {"spec": {"replicas": "x"}})).status == 400
    assert (await client.send_patch(path, {"spec": 5})).status == 400
    assert (await client.send_patch(path, {}, APPLY + "?")).status == 415
    assert (await client.call("DELETE", path)).status == 405
    assert (await client.call("GET", f"{APPS}/deployments/nosuch/scale")).status == 404
    assert (await client.get(f"{APPS}/deployments/web"))["spec"]["replicas"] == 2


async def test_custom_scales(client: Client) -> None:
    spec = {"type": "object", "properties": {"size": {"type": "integer", "maximum": 10}}}
    await client.create(CRDS, make_definition(spec=spec, subresources={"status": {}, "scale": SCALERS}))
    listed = (await client.get("/apis/example.com/v1"))["resources"]
    assert {
        "name": "kexes/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    } in listed
    path = "/apis/example.com/v1/namespaces/default/kexes"
    await client.create(path, make_kex())
    reply = await client.call("GET", f"{path}/one/scale")
    assert (reply.status, reply.body["reason"]) == (500, "InternalError")
    assert reply.body["message"].endswith('the spec replicas field ".spec.size" does not exist')
    scale = await client.patch(f"{path}/one/scale", {"spec": {"replicas": 3}})
    assert scale["spec"] == {"replicas": 3}
    await client.patch(f"{path}/one/status", {"status": {"ready": 1, "sel": "a=b"}})
    scale = await client.get(f"{path}/one/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 1, "selector": "a=b"})
    await client.patch(f"{path}/one/scale", {"spec": {"replicas": 5}, "status": {"replicas": 9}})
    obj = await client.get(f"{path}/one")
    assert (obj["spec"], obj["status"]["ready"]) == ({"size": 5}, 1)
    reply = await client.send_patch(f"{path}/one/scale", {"spec": {"replicas": 40}})
    assert causes(reply) == [("spec.size", "FieldValueInvalid")]


@pytest.mark.parametrize(
    "scale",
    [
        {},
        {"specReplicasPath": ".spec.size"},
        {**SCALERS, "specReplicasPath": ".status.x"},
        {**SCALERS, "statusReplicasPath": "status.x"},
        {**SCALERS, "labelSelectorPath": ".metadata.labels"},
        {**SCALERS, "specReplicasPath": ".spec.sizes[0]"},
    ],
)
async def test_wrong_paths_of_scales_are_refused(client: Client, scale: Any) -> None:
    reply = await client.call("POST", CRDS, json=make_definition(subresources={"scale": scale}))
    assert all(field.startswith("spec.subresources.scale.") for field, _ in causes(reply))


@pytest.mark.parametrize("path", ["pods/p/binding", "bindings"])
async def test_pods_are_bound_once(client: Client, path: str) -> None:
    await client.create(f"{CORE}/pods", make_pod())
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    reply = await client.call("POST", f"{CORE}/{path}", json=body)
    assert (reply.status, reply.body["status"]) == (201, "Success")
    pod = await client.get(f"{CORE}/pods/p")
    assert pod["spec"]["nodeName"] == "n"
    assert [(item["type"], item["status"]) for item in pod["status"]["conditions"]] == [("PodScheduled", "True")]
    reply = await client.call("POST", f"{CORE}/{path}", json=body, expected=409)
    assert reply.body["message"].endswith('pod p is already assigned to node "n"')
    reply = await client.call("POST", f"{CORE}/{path}", json={"metadata": {"name": "p"}, "target": {}})
    assert causes(reply) == [("target.name", "FieldValueRequired")]


async def test_pods_are_evicted(client: Client) -> None:
    await client.create(f"{CORE}/pods", make_pod())
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    reply = await client.call("POST", f"{CORE}/pods/p/eviction?dryRun=All", json=body, expected=201)
    reply = await client.call(
        "POST",
        f"{CORE}/pods/p/eviction",
        json={**body, "deleteOptions": {"preconditions": {"uid": "other"}}},
        expected=409,
    )
    reply = await client.call("POST", f"{CORE}/pods/p/eviction", json=body)
    assert (reply.status, reply.body["status"]) == (201, "Success")
    assert (await client.call("POST", f"{CORE}/pods/p/eviction", json=body)).status == 404


async def test_budgets_forbid_evictions(client: Client) -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for name in ("p", "q"):
        await client.create(f"{CORE}/pods", make_pod(name, labels={"app": "web"}))
        await client.patch(f"{CORE}/pods/{name}/status", {"status": ready}, STRATEGIC)
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await client.create(
        budgets, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    )
    await client.wait(f"{budgets}/b", lambda obj: obj.get("status", {}).get("disruptionsAllowed") == 1)
    assert (await client.call("POST", f"{CORE}/pods/p/eviction", json={})).status == 201
    reply = await client.call("POST", f"{CORE}/pods/q/eviction", json={})
    assert (reply.status, reply.body["reason"]) == (429, "TooManyRequests")
    assert reply.body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert [cause["reason"] for cause in reply.body["details"]["causes"]] == ["DisruptionBudget"]
    await client.wait(f"{budgets}/b", lambda obj: obj["status"]["expectedPods"] == 1)
    await client.create(
        budgets,
        {"metadata": {"name": "c"}, "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "web"}}}},
    )
    assert (await client.call("POST", f"{CORE}/pods/q/eviction", json={})).status == 500


@pytest.mark.parametrize(
    ("subresource", "change", "kept"),
    [
        ("ephemeralcontainers", {"ephemeralContainers": [{"name": "d", "image": "debug"}]}, "ephemeralContainers"),
        (
            "resize",
            {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}, "image": "other"}]},
            "containers",
        ),
    ],
)
async def test_pods_are_changed_in_part(client: Client, subresource: str, change: Any, kept: str) -> None:
    pod = await client.create(f"{CORE}/pods", make_pod())
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {**change, "hostname": "h"}, "status": {"phase": "Failed"}}
    changed = await client.patch(f"{CORE}/pods/p/{subresource}", patch, STRATEGIC)
    assert changed["spec"][kept] != pod["spec"].get(kept)
    assert changed["spec"]["containers"][0]["image"] == "x"
    assert "hostname" not in changed["spec"]
    assert "labels" not in changed["metadata"]
    assert changed["status"] == pod["status"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"name": "d", "image": "other"}, "changed"), ({"name": "d", "$patch": "delete"}, "removed")],
)
async def test_ephemeral_containers_are_only_added(client: Client, change: Any, expected: str) -> None:
    await client.create(f"{CORE}/pods", make_pod())
    path = f"{CORE}/pods/p/ephemeralcontainers"
    for name in ("d", "e"):
        await client.patch(path, {"spec": {"ephemeralContainers": [{"name": name, "image": "debug"}]}}, STRATEGIC)
    reply = await client.send_patch(path, {"spec": {"ephemeralContainers": [change]}}, STRATEGIC)
    assert causes(reply) == [("spec.ephemeralContainers", "FieldValueForbidden")]
    assert f'existing ephemeral containers "d" may not be {expected}' in reply.body["message"]
    kept = (await client.get(f"{CORE}/pods/p"))["spec"]["ephemeralContainers"]
    assert [(item["name"], item["image"]) for item in kept] == [("e", "debug"), ("d", "debug")]


async def test_certificates_are_approved(client: Client) -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    await client.create(
        path,
        {
            "metadata": {"name": "r"},
            "spec": {"request": make_request(), "signerName": "example.com/x", "usages": ["client auth"]},
        },
    )
    approved = {"type": "Approved", "status": "True", "reason": "x"}
    obj = await client.patch(f"{path}/r/approval", {"status": {"conditions": [approved], "certificate": "eA=="}})
    assert [item["type"] for item in obj["status"]["conditions"]] == ["Approved"]
    assert "certificate" not in obj["status"]
    since = obj["status"]["conditions"][0]["lastTransitionTime"]
    assert obj["status"]["conditions"][0]["lastUpdateTime"] == since > "2020"
    failed = {"type": "Failed", "status": "True"}
    obj = await client.patch(
        f"{path}/r/status", {"status": {"conditions": [{**approved, "reason": "y"}, failed], "certificate": "eA=="}}
    )
    assert [(item["type"], item.get("reason")) for item in obj["status"]["conditions"]] == [
        ("Approved", "x"),
        ("Failed", None),
    ]
    assert obj["status"]["conditions"][0]["lastTransitionTime"] == since
    assert obj["status"]["certificate"] == "eA=="
    obj = await client.patch(f"{path}/r", {"metadata": {"labels": {"a": "b"}}, "status": {"conditions": []}})
    assert obj["status"]["conditions"]


APPROVED, DENIED = ({"type": kind, "status": "True"} for kind in ("Approved", "Denied"))


@pytest.mark.parametrize(
    ("subresource", "conditions", "expected"),
    [
        ("approval", [], 'status.conditions: Forbidden: updates may not remove a condition of type "Approved"'),
        ("status", [], 'status.conditions: Forbidden: updates may not remove a condition of type "Approved"'),
        (
            "status",
            [APPROVED, DENIED],
            'status.conditions: Forbidden: updates may not add a condition of type "Denied"',
        ),
        (
            "approval",
            [APPROVED, DENIED],
            'status.conditions[1].type: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive',
        ),
        ("approval", [APPROVED, APPROVED], 'status.conditions[1].type: Duplicate value: "Approved"'),
        (
            "approval",
            [{**APPROVED, "status": "False"}],
            'status.conditions[0].status: Unsupported value: "False": supported values: "True"',
        ),
        (
            "approval",
            [APPROVED, {"type": "Other", "status": "Maybe"}],
            'status.conditions[1].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"',
        ),
        ("approval", [{**APPROVED, "type": []}], "cannot unmarshal array into the field"),
        ("status", [{**APPROVED, "status": {}}], "cannot unmarshal object into the field"),
        ("approval", [1], "cannot unmarshal number into the field"),
        ("status", "x", "cannot unmarshal string into the field"),
        ("approval", [APPROVED, {"type": "", "status": "True"}], "status.conditions[1].type: Required value"),
    ],
)
async def test_decisions_on_certificates_are_final(
    client: Client, subresource: str, conditions: Any, expected: str
) -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    await client.create(
        path,
        {
            "metadata": {"name": "r"},
            "spec": {"request": make_request(), "signerName": "example.com/x", "usages": ["client auth"]},
        },
    )
    await client.patch(f"{path}/r/approval", {"status": {"conditions": [APPROVED]}})
    reply = await client.send_patch(f"{path}/r/{subresource}", {"status": {"conditions": conditions}}, expected=422)
    assert expected in reply.body["message"]


async def test_namespaces_are_finalized(client: Client) -> None:
    obj = await client.create("/api/v1/namespaces", {"metadata": {"name": "n"}, "spec": {"finalizers": ["a/b"]}})
    await client.delete("/api/v1/namespaces/n")
    obj = await client.get("/api/v1/namespaces/n")
    obj["spec"]["finalizers"] = []
    obj["metadata"]["labels"] = {"a": "b"}
    await client.call("PUT", "/api/v1/namespaces/n/finalize", json=obj, expected=200)
    assert (await client.call("GET", "/api/v1/namespaces/n")).status == 404


@pytest.mark.parametrize(
    ("path", "obj", "patch", "field"),
    [
        (
            f"{APPS}/deployments",
            make_deployment(),
            {"spec": {"selector": {"matchLabels": {"app": "other"}}}},
            "spec.selector",
        ),
        (
            f"{CORE}/services",
            {"metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 1}]}},
            {"spec": {"clusterIP": "10.96.0.6"}},
            "spec.clusterIPs[0]",
        ),
        (f"{CORE}/pods", make_pod("web"), {"spec": {"hostname": "h"}}, "spec"),
        (f"{CORE}/pods", make_pod("web"), {"spec": {"containers": []}}, "spec.containers"),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {"metadata": {"name": "web"}, "roleRef": {"kind": "ClusterRole", "name": "x"}},
            {"roleRef": {"name": "y"}},
            "roleRef",
        ),
    ],
)
async def test_some_fields_are_immutable(client: Client, path: str, obj: Any, patch: Any, field: str) -> None:
    await client.create(path, copy.deepcopy(obj))
    reply = await client.send_patch(f"{path}/web", patch)
    assert field in [name for name, _ in causes(reply)]


async def test_images_of_pods_can_be_changed(client: Client) -> None:
    await client.create(f"{CORE}/pods", make_pod())
    obj = await client.patch(f"{CORE}/pods/p", {"spec": {"containers": [{"name": "c", "image": "y"}]}}, STRATEGIC)
    assert obj["spec"]["containers"][0]["image"] == "y"


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_some_namespaces_are_forever(client: Client, cluster: LocalCluster, name: str) -> None:
    reply = await client.call("DELETE", f"/api/v1/namespaces/{name}", expected=403)
    assert reply.body["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
