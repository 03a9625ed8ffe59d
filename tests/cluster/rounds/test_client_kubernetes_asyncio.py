"""``kubernetes_asyncio`` against the local cluster: what an operator does with it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException

from kopf.testing import LocalCluster
from tests.cluster.rounds.widgets import GROUP, KIND, PLURAL, VERSION, make_config_map, make_deployment, make_widget

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
WHERE = (GROUP, VERSION, "default", PLURAL)


@pytest.fixture
async def api(cluster: LocalCluster) -> AsyncIterator[Any]:
    async with await config.new_client_from_config(config_file=str(cluster.kubeconfig)) as api:
        yield api


def refusal(error: pytest.ExceptionInfo[ApiException]) -> tuple[int, str, Any]:
    body = json.loads(error.value.body or b"")
    return error.value.status, body["reason"], body.get("details", {})


async def test_custom_resources(api: Any) -> None:
    customs: Any = client.CustomObjectsApi(api)
    for index in range(5):
        labels = {"parity": "odd" if index % 2 else "even"}
        made = await customs.create_namespaced_custom_object(*WHERE, make_widget(f"w{index}", labels=labels))
        assert made["spec"] == {"size": 1}

    names, token = [], None
    while token != "":
        page = await customs.list_namespaced_custom_object(*WHERE, limit=2, _continue=token or "")
        assert len(page["items"]) <= 2
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
    assert names == ["w0", "w1", "w2", "w3", "w4"]
    even = await customs.list_namespaced_custom_object(*WHERE, label_selector="parity!=odd")
    assert [item["metadata"]["name"] for item in even["items"]] == ["w0", "w2", "w4"]

    patch = customs.patch_namespaced_custom_object
    patched = await patch(*WHERE, "w0", {"spec": {"color": "red"}}, _content_type=MERGE)
    assert patched["spec"] == {"size": 1, "color": "red"}
    operations = [{"op": "replace", "path": "/spec/size", "value": 2}]
    assert (await patch(*WHERE, "w0", operations, _content_type=JSON))["spec"] == {"size": 2, "color": "red"}
    patched = await customs.patch_namespaced_custom_object_status(
        *WHERE, "w0", {"spec": {"size": 9}, "status": {"phase": "Done"}}, _content_type=MERGE
    )
    assert (patched["spec"]["size"], patched["status"], patched["metadata"]["generation"]) == (2, {"phase": "Done"}, 3)

    assert (await customs.delete_namespaced_custom_object(*WHERE, "w0"))["status"] == "Success"
    await customs.delete_collection_namespaced_custom_object(*WHERE, label_selector="parity=odd")
    left = await customs.list_cluster_custom_object(GROUP, VERSION, PLURAL)
    assert [item["metadata"]["name"] for item in left["items"]] == ["w2", "w4"]


async def test_watching(api: Any) -> None:
    core: Any = client.CoreV1Api(api)
    version = (await core.list_namespaced_config_map("default")).metadata.resource_version
    await core.create_namespaced_config_map("default", make_config_map("one", a="1"))
    await core.patch_namespaced_config_map("one", "default", {"data": {"a": "2"}}, _content_type=MERGE)
    await core.delete_namespaced_config_map("one", "default")
    events = []
    async with watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version=version) as stream:
        async for event in stream:
            events.append((event["type"], event["object"].data["a"]))
            if event["type"] == "DELETED":
                break
    assert events == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


async def test_applying(api: Any) -> None:
    apps: Any = client.AppsV1Api(api)
    await apps.create_namespaced_deployment("default", make_deployment("web", "main"))
    applied = await apps.patch_namespaced_deployment(
        "web", "default", make_deployment("web", "main", "side"), _content_type=APPLY, field_manager="me", force=True
    )
    assert [one.name for one in applied.spec.template.spec.containers] == ["main", "side"]
    assert [entry.operation for entry in applied.metadata.managed_fields if entry.manager == "me"] == ["Apply"]
    with pytest.raises(ApiException) as error:
        await apps.patch_namespaced_deployment(
            "web",
            "default",
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web"},
                "spec": {"replicas": 9},
            },
            _content_type=APPLY,
            field_manager="other",
        )
    assert refusal(error)[:2] == (409, "Conflict")


async def test_errors(api: Any) -> None:
    customs: Any = client.CustomObjectsApi(api)
    with pytest.raises(ApiException) as error:
        await customs.get_namespaced_custom_object(*WHERE, "nosuch")
    assert refusal(error) == (404, "NotFound", {"name": "nosuch", "group": GROUP, "kind": PLURAL})
    with pytest.raises(ApiException) as error:
        await customs.create_namespaced_custom_object(*WHERE, make_widget("two", size=99))
    code, reason, details = refusal(error)
    assert (code, reason, details["kind"]) == (422, "Invalid", KIND)
    assert [cause["field"] for cause in details["causes"]] == ["spec.size"]
