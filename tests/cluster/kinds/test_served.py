"""
The built-in kinds as clients meet them: listed, pruned, completed, and refused.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kopf_cluster.kinds.resources import read_resources
from tests.cluster.conftest import CRDS, PODS, STRATEGIC, Client, make_definition

AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}


async def test_times_that_go_never_leaves_out(client: Client) -> None:
    pods = "/api/v1/namespaces/default/pods"
    await client.create(pods, make_pod())
    patch = {"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}}
    told = await client.patch(f"{pods}/p/status", patch)
    assert told["status"]["conditions"] == [
        {"type": "example.com/gate", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    ]
    assert await client.patch(f"{pods}/p/status", patch) == told
    assert await client.get(f"{pods}/p") == told


def make_pod(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "x", "image": "y"}]},
        **fields,
    }


async def test_all_stable_resources_are_listed(client: Client) -> None:
    listed = {}
    for path in ("/api", "/apis"):
        for group in (await client.get(path, headers=AGGREGATED))["items"]:
            for version in group["versions"]:
                for item in version["resources"]:
                    key = group["metadata"]["name"], version["version"], item["resource"]
                    listed[key] = (
                        item["verbs"],
                        {sub["subresource"]: sub["verbs"] for sub in item.get("subresources", [])},
                    )
    assert listed == {
        (one.group, one.version, one.plural): (
            list(one.verbs),
            {name: list(sub.verbs) for name, sub in one.subresources.items()},
        )
        for one in read_resources()
        if not one.is_preview
    }


async def test_subresources_tell_of_which_kinds_they_are(client: Client) -> None:
    listed = {item["name"]: item for item in (await client.get("/apis/apps/v1"))["resources"]}
    assert listed["deployments/scale"] == {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }
    assert "group" not in listed["deployments/status"]


async def test_unknown_fields_are_lost(client: Client) -> None:
    obj = await client.create(PODS, make_pod(alien={"x": 1}))
    assert "alien" not in obj
    obj = await client.patch(f"{PODS}/p/status", {"status": {"kopf": {"progress": {}}, "phase": "Running"}})
    assert obj["status"]["phase"] == "Running"
    assert "kopf" not in obj["status"]
    before = (await client.get(f"{PODS}/p"))["metadata"]["resourceVersion"]
    obj = await client.patch(f"{PODS}/p/status", {"status": {"kopf": {"progress": {}}}})
    assert obj["metadata"]["resourceVersion"] == before


async def test_new_objects_are_completed(client: Client) -> None:
    spec = (await client.create(PODS, make_pod()))["spec"]
    assert (spec["restartPolicy"], spec["containers"][0]["imagePullPolicy"]) == ("Always", "Always")


async def test_items_added_by_patches_are_completed_too(client: Client) -> None:
    templates = "/api/v1/namespaces/default/podtemplates"
    await client.create(templates, {"metadata": {"name": "p"}, "template": {"spec": make_pod()["spec"]}})
    patch = {"template": {"spec": {"containers": [{"name": "x", "ports": [{"containerPort": 80}]}]}}}
    obj = await client.patch(f"{templates}/p", patch, STRATEGIC)
    assert obj["template"]["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]


async def test_wrong_types_are_bad_requests(client: Client) -> None:
    reply = await client.call("POST", PODS, json=make_pod(spec={"containers": {"name": "x"}}))
    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
    assert reply.body["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal object into '
        "the field spec.containers of type []v1.Container"
    )


async def test_wrong_contents_are_invalid(client: Client) -> None:
    reply = await client.call("POST", PODS, json=make_pod(spec={"restartPolicy": "Rarely", "containers": [{}]}))
    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    assert {(cause["field"], cause["reason"]) for cause in reply.body["details"]["causes"]} == {
        ("spec.restartPolicy", "FieldValueNotSupported"),
        ("spec.containers[0].name", "FieldValueRequired"),
        ("spec.containers[0].image", "FieldValueRequired"),
    }


async def test_definitions_are_pruned_as_well(client: Client, kexes: str) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kexes.example.com"
    obj = await client.patch(path, {"spec": {"alien": True}})
    assert "alien" not in obj["spec"]


@pytest.mark.parametrize("plural", ["configmaps", "secrets"])
async def test_keys_are_names_of_files(client: Client, plural: str) -> None:
    path = f"/api/v1/namespaces/default/{plural}"
    for key in ("a b", "..", "x" * 254, ""):
        reply = await client.call("POST", path, json={"metadata": {"name": "x"}, "data": {key: "eA=="}}, expected=422)
        assert reply.body["details"]["causes"][0]["field"] == f"data[{key}]"
    await client.create(path, {"metadata": {"name": "x"}, "data": {"a.b_c-D": "eA=="}})


@pytest.mark.parametrize("depth", [350, 450])
async def test_definitions_that_are_too_deep_are_refused(client: Client, depth: int) -> None:
    definition = make_definition()
    definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": "DEEP"}
    deep = '{"type":"object","properties":{"a":' * depth + '{"type":"object"}' + "}}" * depth
    body = json.dumps(definition).replace('"DEEP"', deep)
    reply = await client.call("POST", CRDS, data=body, headers={"Content-Type": "application/json"}, expected=400)
    assert reply.body["message"].endswith("json: exceeded max depth")


async def test_deprecated_kinds_are_warned_of_by_all_verbs(client: Client) -> None:
    """As announced in "Continuing the transition from Endpoints to EndpointSlices" of the Kubernetes blog."""
    endpoints = PODS.replace("pods", "endpoints")
    obj = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"}}
    replies = [
        await client.call("POST", endpoints, json=obj),
        await client.call("GET", endpoints),
        await client.call("GET", f"{endpoints}/e"),
        await client.call("PUT", f"{endpoints}/e", json=obj),
        await client.send_patch(f"{endpoints}/e", {"metadata": {"labels": {"a": "b"}}}),
        await client.call("DELETE", f"{endpoints}/e"),
        await client.call("GET", f"{endpoints}/e"),
        await client.call("DELETE", endpoints),
        await client.call("GET", "/api/v1/endpoints"),
    ]
    assert {reply.headers["Warning"] for reply in replies} == {
        '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"'
    }
    async with client.session.get(endpoints, params={"watch": "1"}) as response:
        assert response.headers["Warning"] == replies[0].headers["Warning"]
    components = "/api/v1/componentstatuses"
    for path in (components, f"{components}/scheduler"):
        reply = await client.call("GET", path)
        assert reply.headers["Warning"] == '299 - "v1 ComponentStatus is deprecated in v1.19+"'
    assert "Warning" not in (await client.call("GET", PODS)).headers
