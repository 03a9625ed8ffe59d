"""``kubernetes_asyncio`` against the local cluster: what is not as in its synchronous sibling."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException

from kopf.testing import LocalCluster
from tests.cluster.conftest import APPLY, MERGE
from tests.cluster.rounds.widgets import make_config_map, make_deployment


@pytest.fixture
async def api(cluster: LocalCluster) -> AsyncIterator[Any]:
    async with await config.new_client_from_config(config_file=str(cluster.kubeconfig)) as api:
        yield api


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
    assert (error.value.status, json.loads(error.value.body or b"")["reason"]) == (409, "Conflict")
