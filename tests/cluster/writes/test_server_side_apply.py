"""Server-side apply over HTTP; the rules of merging and of ownership as such are tested apart."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from kopf_cluster import LocalCluster
from tests.cluster.conftest import (
    APPLY,
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    KEXES,
    Client,
    Reply,
    causes,
    connect,
    make_definition,
    make_kex,
)


@pytest.fixture
async def unmanaged() -> AsyncIterator[Client]:
    """A client of a cluster where the fields are managed only if the objects are applied on the server side."""
    async with LocalCluster(bare=True, managed_fields=False) as cluster, connect(cluster) as client:
        cluster.apply(make_definition())
        yield client


async def apply(client: Client, path: str, obj: Any, manager: str = "me", **params: str) -> Reply:
    params = {"fieldManager": manager, **params} if manager else params
    return await client.call("PATCH", path, params=params, data=yaml.safe_dump(obj), headers={"Content-Type": APPLY})


def config_map(**data: str) -> Any:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}


def managers(obj: Any) -> dict[tuple[str, str], Any]:
    return {
        (entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])
    }


async def test_what_is_applied_with_a_uid_is_no_other_object(client: Client) -> None:
    obj = (await apply(client, f"{CONFIG_MAPS}/one", config_map(a="1"))).body
    wanted = {**config_map(a="2"), "metadata": {"name": "one", "uid": obj["metadata"]["uid"]}}
    assert (await apply(client, f"{CONFIG_MAPS}/one", wanted)).status == 200
    await client.call("DELETE", f"{CONFIG_MAPS}/one")
    reply = await apply(client, f"{CONFIG_MAPS}/one", wanted)
    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert "no existing object was found" in reply.body["message"]
    await apply(client, f"{CONFIG_MAPS}/one", config_map(a="3"))
    reply = await apply(client, f"{CONFIG_MAPS}/one", wanted)
    assert reply.status == 422
    assert causes(reply) == [("metadata.uid", "FieldValueInvalid")]


async def test_the_same_in_another_form_changes_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forms of the values are settled after the owners of the fields, whose times must not make the difference."""
    container = {"name": "main", "image": "image", "resources": {"limits": {"cpu": "1000m"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    obj = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    reply = await apply(client, f"{DEPLOYMENTS}/web", obj)
    monkeypatch.setattr("kopf_cluster.writes.writing._now", lambda: "2222-01-01T00:00:00Z")
    again = await apply(client, f"{DEPLOYMENTS}/web", obj)
    assert again.body == reply.body


async def test_objects_are_created_and_changed_by_applying(client: Client) -> None:
    path = f"{CONFIG_MAPS}/one"
    reply = await apply(client, path, config_map(a="1", b="2"))
    assert reply.status == 201
    assert managers(reply.body) == {("me", "Apply"): {"f:data": {"f:a": {}, "f:b": {}}}}
    again = await apply(client, path, config_map(a="1", b="2"))
    assert (again.status, again.body) == (200, reply.body)  # not even a new version
    reply = await apply(client, path, config_map(b="3"))
    assert reply.body["data"] == {"b": "3"}
    reply = await apply(client, path, config_map(c="4"), "you", dryRun="All")
    assert reply.body["data"] == {"b": "3", "c": "4"}
    assert (await client.get(path))["data"] == {"b": "3"}


async def test_conflicts_are_refused_unless_forced(client: Client) -> None:
    path = f"{CONFIG_MAPS}/one"
    await apply(client, path, config_map(a="1"))
    refused = await apply(client, path, config_map(a="2"), "you")
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert refused.body["message"] == 'Apply failed with 1 conflict: conflict with "me": .data.a'
    assert refused.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "me"', "field": ".data.a"}
    ]
    forced = await apply(client, path, config_map(a="2"), "you", force="true")
    assert managers(forced.body) == {("you", "Apply"): {"f:data": {"f:a": {}}}}


async def test_applied_objects_are_managed_from_then_on(unmanaged: Client) -> None:
    await unmanaged.create(KEXES, make_kex(spec={"x": 1, "y": 2}))
    assert managers(await unmanaged.get(f"{KEXES}/one")) == {}
    assert (await apply(unmanaged, f"{KEXES}/one", make_kex(spec={"x": 2}))).status == 409
    reply = await apply(unmanaged, f"{KEXES}/one", make_kex(spec={"x": 2}), force="1")
    assert managers(reply.body) == {
        ("me", "Apply"): {"f:spec": {"f:x": {}}},
        ("before-first-apply", "Update"): {"f:spec": {".": {}, "f:y": {}}},
    }
    patched = await unmanaged.call(
        "PATCH",
        f"{KEXES}/one",
        json={"spec": {"x": 3}},
        headers={"Content-Type": "application/merge-patch+json", "User-Agent": "operator/1.0"},
    )
    assert managers(patched.body)["operator", "Update"] == {"f:spec": {"f:x": {}}}
    assert ("me", "Apply") not in managers(patched.body)
    cleared = await unmanaged.patch(f"{KEXES}/one", {"metadata": {"managedFields": [{}]}})
    assert managers(cleared) == {}


async def test_the_status_is_applied_apart(client: Client, kexes: str) -> None:
    applied = make_kex(spec={"x": 1}, status={"ready": True})
    assert (await apply(client, f"{KEXES}/one/status", applied)).status == 404
    created = await apply(client, f"{KEXES}/one", applied)
    assert created.status == 201
    assert "status" not in created.body
    reply = await apply(client, f"{KEXES}/one/status", make_kex(spec={"x": 2}, status={"ready": True}), "controller")
    assert reply.status == 200, reply
    assert (reply.body["spec"], reply.body["status"]) == ({"x": 1}, {"ready": True})
    assert managers(reply.body) == {
        ("me", "Apply"): {"f:spec": {"f:x": {}}},
        ("controller", "Apply"): {"f:status": {"f:ready": {}}},
    }
    assert reply.body["metadata"]["generation"] == 1


async def test_lists_are_merged_by_their_keys(client: Client) -> None:
    def deployment(**container: Any) -> Any:
        labels = {"app": "one"}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "one"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }

    assert (await apply(client, f"{DEPLOYMENTS}/one", deployment(name="app", image="a"))).status == 201
    sidecar = deployment(name="sidecar", image="b")
    reply = await apply(client, f"{DEPLOYMENTS}/one", sidecar, "mesh")
    assert [item["name"] for item in reply.body["spec"]["template"]["spec"]["containers"]] == ["app", "sidecar"]
    reply = await apply(client, f"{DEPLOYMENTS}/one", deployment(name="app", image="c"))
    assert [item["image"] for item in reply.body["spec"]["template"]["spec"]["containers"]] == ["c", "b"]


@pytest.mark.parametrize(
    ("obj", "params", "status"),
    [
        (config_map(), {"manager": ""}, 422),
        (config_map(), {"manager": "x" * 129}, 422),
        ({**config_map(), "metadata": {"name": "two"}}, {}, 400),
        ({**config_map(), "metadata": {"name": "one", "namespace": "kube-system"}}, {}, 400),
        ({**config_map(), "metadata": {"name": "one", "managedFields": [{}]}}, {}, 400),
        ({**config_map(), "kind": "Secret"}, {}, 400),
        ({**config_map(), "metadata": 5}, {}, 400),
        ([1], {}, 400),
        ({**config_map(), "unknown": 5}, {}, 500),
    ],
)
async def test_wrong_configurations_are_refused(client: Client, obj: Any, params: Any, status: int) -> None:
    reply = await apply(client, f"{CONFIG_MAPS}/one", obj, **params)
    assert (reply.status, reply.body["kind"]) == (status, "Status"), reply
    assert "unexpected failure" not in reply.body["message"]


async def test_who_applies_must_be_told(client: Client) -> None:
    reply = await apply(client, f"{CONFIG_MAPS}/one", config_map(), "")
    assert causes(reply) == [("fieldManager", "FieldValueRequired")]
    assert reply.body["message"].startswith('PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value')


async def test_outdated_configurations_are_refused(client: Client) -> None:
    created = await apply(client, f"{CONFIG_MAPS}/one", config_map(a="1"))
    await apply(client, f"{CONFIG_MAPS}/one", config_map(a="2"))
    outdated = config_map(a="3")
    outdated["metadata"]["resourceVersion"] = created.body["metadata"]["resourceVersion"]
    assert (await apply(client, f"{CONFIG_MAPS}/one", outdated)).status == 409


async def test_all_writers_are_known(client: Client, kexes: str) -> None:
    created = await client.call("POST", f"{KEXES}?fieldManager=maker", json=make_kex(spec={"x": 1, "y": 2}))
    assert managers(created.body) == {("maker", "Update"): {"f:spec": {".": {}, "f:x": {}, "f:y": {}}}}
    await client.patch(f"{KEXES}/one/status?fieldManager=op", {"status": {"done": True}})
    patched = await client.patch(f"{KEXES}/one?fieldManager=op", {"spec": {"x": 3}})
    entries = {
        (entry["manager"], entry.get("subresource")): entry["fieldsV1"]
        for entry in patched["metadata"]["managedFields"]
    }
    assert entries == {
        ("maker", None): {"f:spec": {".": {}, "f:y": {}}},
        ("op", None): {"f:spec": {"f:x": {}}},
        ("op", "status"): {"f:status": {".": {}, "f:done": {}}},
    }
    del patched["metadata"]["managedFields"]
    replaced = await client.call("PUT", f"{KEXES}/one", json=patched)  # what is not told, is kept
    assert len(replaced.body["metadata"]["managedFields"]) == 3
    assert replaced.body["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]
    refused = await apply(client, f"{KEXES}/one", make_kex(spec={"y": 5}))
    assert refused.body["details"]["causes"][0]["message"] == 'conflict with "maker" using example.com/v1'


async def test_who_does_not_call_themselves_is_known_by_the_program(client: Client, kexes: str) -> None:
    created = await client.call("POST", KEXES, json=make_kex(), headers={"User-Agent": "kubectl/v1.36.2 (linux/amd64)"})
    assert managers(created.body) == {("kubectl", "Update"): {"f:spec": {}}}
    nobody = await client.call("POST", KEXES, json=make_kex("two"), headers={"User-Agent": ""})
    [entry] = nobody.body["metadata"]["managedFields"]
    assert "manager" not in entry
    again = await client.call(
        "PATCH",
        f"{KEXES}/two",
        json={"spec": {"x": 1}},
        headers={"Content-Type": "application/merge-patch+json", "User-Agent": ""},
    )
    [entry] = again.body["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:spec": {".": {}, "f:x": {}}}


async def test_fields_that_are_changed_again_stay_with_their_owners(client: Client, kexes: str) -> None:
    path = f"{KEXES}/one"
    await client.call("POST", f"{KEXES}?fieldManager=a", json=make_kex(spec={"x": 1, "y": 1}))
    await client.patch(f"{path}?fieldManager=b", {"spec": {"y": 2}})
    before = (await client.get(path))["metadata"]["managedFields"]
    after = (await client.patch(f"{path}?fieldManager=b", {"spec": {"y": 3}}))["metadata"]["managedFields"]
    assert [{**entry, "time": ""} for entry in after] == [{**entry, "time": ""} for entry in before]
    taken = await client.patch(f"{path}?fieldManager=b", {"spec": {"x": 3}})
    assert managers(taken) == {("a", "Update"): {"f:spec": {}}, ("b", "Update"): {"f:spec": {"f:x": {}, "f:y": {}}}}
    gone = await client.patch(f"{path}?fieldManager=a", {"spec": {"x": None}})
    assert managers(gone)["b", "Update"] == {"f:spec": {"f:y": {}}}


async def test_cleared_objects_are_managed_from_the_first_apply(client: Client, kexes: str) -> None:
    path = f"{KEXES}/one"
    await client.create(KEXES, make_kex(spec={"x": 1, "y": 1}))
    assert managers(await client.patch(path, {"metadata": {"managedFields": [{}]}})) == {}
    assert managers(await client.patch(path, {"spec": {"y": 2}})) == {}
    reply = await apply(client, path, make_kex(spec={"x": 1}))
    assert managers(reply.body) == {
        ("me", "Apply"): {"f:spec": {"f:x": {}}},
        ("before-first-apply", "Update"): {"f:spec": {".": {}, "f:x": {}, "f:y": {}}},
    }


async def test_applying_may_be_allowed_for_existing_objects_only() -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}
    headers = {"Impersonate-User": "x", "Content-Type": APPLY}
    async with LocalCluster(authorization="rbac") as cluster, connect(cluster) as client:
        for kind, extra in (
            ("ClusterRole", {"rules": [rule]}),
            (
                "ClusterRoleBinding",
                {"roleRef": {"kind": "ClusterRole", "name": "p"}, "subjects": [{"kind": "User", "name": "x"}]},
            ),
        ):
            cluster.apply(
                {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "p"}, **extra}
            )
        for status in (403, 200):
            reply = await client.call(
                "PATCH",
                f"{CONFIG_MAPS}/one?fieldManager=me",
                headers=headers,
                data=yaml.safe_dump(config_map(a="1")),
                expected=status,
            )
            if status == 403:
                assert 'cannot create resource "configmaps"' in reply.body["message"]
                await client.create(CONFIG_MAPS, config_map())


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


async def test_only_unchanged_fields_of_the_last_configuration_can_be_taken(client: Client) -> None:
    path = f"{CONFIG_MAPS}/one"
    last = json.dumps(config_map(a="1", b="1"))
    await client.call(
        "POST",
        f"{CONFIG_MAPS}?fieldManager=kubectl-client-side-apply",
        json={**config_map(a="1", b="1"), "metadata": {"name": "one", "annotations": {LAST_APPLIED: last}}},
    )
    await client.patch(f"{path}?fieldManager=you", {"data": {"b": "2"}})
    refused = await apply(client, path, config_map(a="3", b="3"), "kubectl")
    assert [cause["field"] for cause in refused.body["details"]["causes"]] == [".data.b"]
    others = await apply(client, path, config_map(a="3"), "me")
    assert [cause["field"] for cause in others.body["details"]["causes"]] == [".data.a"]
    assert (await apply(client, path, config_map(a="3"), "kubectl")).status == 200
    await client.patch(path, {"metadata": {"annotations": {LAST_APPLIED: "broken"}}})
    followed = await apply(client, path, config_map(a="3"), "kubectl")
    assert json.loads(followed.body["metadata"]["annotations"][LAST_APPLIED])["data"] == {"a": "3"}


async def test_definitions_can_be_applied(client: Client) -> None:
    assert (await apply(client, f"{CRDS}/kexes.example.com", make_definition())).status == 201
    assert (await apply(client, f"{KEXES}/one", make_kex(spec={"x": 1}))).status == 201


# ------------------------------------------------------------------------------------------ several versions


def autoscaler(version: str, **spec: Any) -> Any:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 5, **spec},
    }


def autoscaler_path(version: str) -> str:
    return f"/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/web"


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


async def test_fields_are_owned_across_versions(client: Client) -> None:
    await apply(client, autoscaler_path("v2"), autoscaler("v2", metrics=[CPU]))
    changed = await client.patch(
        f"{autoscaler_path('v1')}?fieldManager=you", {"spec": {"targetCPUUtilizationPercentage": 50}}
    )
    assert managers(changed)["you", "Update"] == {"f:spec": {"f:targetCPUUtilizationPercentage": {}}}
    assert "f:metrics" not in managers(changed)["me", "Apply"]["f:spec"]
    refused = await apply(client, autoscaler_path("v2"), autoscaler("v2", metrics=[CPU]))
    assert (refused.status, refused.body["details"]["causes"][0]["field"]) == (
        409,
        ".spec.targetCPUUtilizationPercentage",
    )
    forced = await apply(client, autoscaler_path("v2"), autoscaler("v2", metrics=[CPU]), force="true")
    assert forced.status == 200
    assert set(managers(forced.body)) == {("me", "Apply")}


async def test_what_is_not_applied_any_more_is_removed_across_versions(client: Client) -> None:
    await apply(client, autoscaler_path("v1"), autoscaler("v1", minReplicas=2, targetCPUUtilizationPercentage=60))
    reply = await apply(client, autoscaler_path("v2"), autoscaler("v2"))
    assert (reply.status, reply.body["spec"]["minReplicas"]) == (200, 1)
    assert reply.body["spec"]["metrics"] == [CPU]  # the default


async def test_what_others_own_in_other_versions_is_kept(client: Client) -> None:
    await apply(client, autoscaler_path("v1"), autoscaler("v1", targetCPUUtilizationPercentage=80))
    await apply(client, autoscaler_path("v2"), autoscaler("v2", metrics=[CPU]), "you")
    reply = await apply(client, autoscaler_path("v2"), autoscaler("v2"))
    assert reply.status == 200
    assert reply.body["spec"]["metrics"] == [CPU]


async def test_metadata_are_removed_across_versions(client: Client) -> None:
    definition = make_definition()
    first = definition["spec"]["versions"][0]
    definition["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    await client.create(CRDS, definition)
    head = {"kind": "Kex", "metadata": {"name": "one", "labels": {"a": "1"}, "finalizers": ["example.com/hold"]}}
    await apply(client, f"{KEXES}/one", {"apiVersion": "example.com/v1", **head, "spec": {"a": 1, "b": 1}})
    path = KEXES.replace("v1", "v2")
    reply = await apply(
        client,
        f"{path}/one",
        {"apiVersion": "example.com/v2", "kind": "Kex", "metadata": {"name": "one"}, "spec": {"b": 2}},
    )
    assert reply.status == 200, reply
    assert reply.body["apiVersion"] == "example.com/v2"
    assert reply.body["spec"] == {"b": 2}
    assert not {"labels", "finalizers"} & set(reply.body["metadata"])
    assert [entry["fieldsV1"] for entry in reply.body["metadata"]["managedFields"]] == [{"f:spec": {"f:b": {}}}]
    reply = await apply(client, f"{KEXES}/one", {"apiVersion": "example.com/v1", **head})
    assert reply.body["metadata"]["labels"] == {"a": "1"}
    assert "b" not in reply.body.get("spec", {})


def make_versions(old: Any, new: Any) -> Any:
    """Make a definition with two versions that do not have the same fields."""
    definition = make_definition(spec={"type": "object", "properties": old})
    first = definition["spec"]["versions"][0]
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": new}}}
    definition["spec"]["versions"].append(
        {**first, "name": "v2", "storage": False, "schema": {"openAPIV3Schema": schema}}
    )
    return definition


async def test_what_the_other_version_does_not_know_is_removed_when_it_is_applied_no_more(client: Client) -> None:
    text = {"type": "string"}
    await client.create(CRDS, make_versions({"a": text, "b": text, "c": text}, {"b": text, "c": text}))
    head = {"kind": "Kex", "metadata": {"name": "one"}}
    await apply(client, f"{KEXES}/one", {"apiVersion": "example.com/v1", **head, "spec": {"a": "1", "c": "1"}})
    path = f"{KEXES.replace('v1', 'v2')}/one"
    reply = await apply(client, path, {"apiVersion": "example.com/v2", **head, "spec": {"b": "2"}})
    assert (reply.status, reply.body["spec"]) == (200, {"b": "2"})
    assert managers(reply.body) == {("me", "Apply"): {"f:spec": {"f:b": {}}}}
    refused = await apply(client, path, {"apiVersion": "example.com/v2", **head, "spec": {"a": "2"}})
    assert (refused.status, refused.body["message"]) == (
        500,
        "failed to create typed patch object (default/one; example.com/v2, Kind=Kex): "
        ".spec.a: field not declared in schema",
    )


async def test_items_that_are_ambiguous_in_the_other_version_are_no_failure(client: Client) -> None:
    items = {"type": "array", "items": {"type": "string"}}
    await client.create(CRDS, make_versions({"a": items}, {"a": {**items, "x-kubernetes-list-type": "set"}}))
    head = {"kind": "Kex", "metadata": {"name": "one"}}
    await apply(client, f"{KEXES}/one", {"apiVersion": "example.com/v1", **head, "spec": {"a": ["x", "x"]}})
    reply = await apply(
        client, f"{KEXES.replace('v1', 'v2')}/one", {"apiVersion": "example.com/v2", **head, "spec": {"a": ["y"]}}
    )
    assert (reply.status, reply.body["spec"]) == (200, {"a": ["y"]})
