"""``lightkube`` against the local cluster, in its asynchronous form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment, StatefulSet
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType

from kopf.testing import LocalCluster
from tests.cluster.rounds.widgets import GROUP, KIND, PLURAL, VERSION, make_deployment, make_widget

Widget = create_namespaced_resource(GROUP, VERSION, KIND, PLURAL)


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[AsyncClient]:
    client = AsyncClient(config=KubeConfig.from_file(str(cluster.kubeconfig)), namespace="default", field_manager="me")
    yield client
    await client.close()


def make(name: str, **options: Any) -> Any:
    return Widget.from_dict(make_widget(name, **options))


async def test_custom_resources(client: Any) -> None:
    for index in range(5):
        made = await client.create(make(f"w{index}", labels={"parity": "odd" if index % 2 else "even"}))
        assert made["spec"] == {"size": 1}
    assert [one.metadata.name async for one in client.list(Widget, chunk_size=2)] == ["w0", "w1", "w2", "w3", "w4"]
    assert [one.metadata.name async for one in client.list(Widget, labels={"parity": "odd"})] == ["w1", "w3"]
    assert [one.metadata.name async for one in client.list(Widget, fields={"spec.color": "red"})] == []

    patched = await client.patch(Widget, "w0", {"spec": {"color": "red"}}, patch_type=PatchType.MERGE)
    assert patched["spec"] == {"size": 1, "color": "red"}
    operations = [{"op": "replace", "path": "/spec/size", "value": 2}]
    patched = await client.patch(Widget, "w0", operations, patch_type=PatchType.JSON)
    assert patched["spec"] == {"size": 2, "color": "red"}
    status = {"spec": {"size": 9}, "status": {"phase": "Done"}}
    patched = await client.patch(Widget.Status, "w0", status, patch_type=PatchType.MERGE)
    assert (patched["spec"]["size"], patched["status"], patched.metadata.generation) == (2, {"phase": "Done"}, 3)
    current = await client.get(Widget, "w0")
    current["spec"]["size"] = 5
    assert (await client.replace(current))["spec"]["size"] == 5

    await client.delete(Widget, "w0")
    await client.deletecollection(Widget)
    assert [one async for one in client.list(Widget)] == []


async def test_applying(client: Any) -> None:
    applied = await client.apply(make("one", tags=["a"]))
    assert applied["spec"] == {"size": 1, "tags": ["a"]}
    applied = await client.apply(make("one", tags=["b"], size=3), field_manager="other")
    assert applied["spec"] == {"size": 3, "tags": ["a", "b"]}
    with pytest.raises(ApiError) as error:
        await client.apply(make("one", size=4))
    assert (error.value.status.code, error.value.status.reason) == (409, "Conflict")
    assert (await client.apply(make("one", size=4), force=True))["spec"] == {"size": 4, "tags": ["b"]}
    assert (await client.apply(make("one"), dry_run=True, force=True))["spec"] == {"size": 1, "tags": ["b"]}
    assert (await client.get(Widget, "one"))["spec"] == {"size": 4, "tags": ["b"]}


async def test_watching(client: Any) -> None:
    await client.create(make("one"))
    events = []
    async for kind, seen in client.watch(Widget):
        events.append((kind, seen["spec"]["size"]))
        if len(events) == 1:
            await client.patch(Widget, "one", {"spec": {"size": 2}}, patch_type=PatchType.MERGE)
        elif kind == "MODIFIED":
            await client.delete(Widget, "one")
        elif kind == "DELETED":
            break
    assert events == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)]


async def test_builtin_kinds(client: Any) -> None:
    made = await client.create(ConfigMap(metadata=ObjectMeta(generateName="gen-"), data={"a": "1"}))
    made.data = {"a": "2"}
    assert (await client.replace(made)).data == {"a": "2"}
    await client.set(ConfigMap, made.metadata.name, labels={"x": "y"})
    assert [one.data async for one in client.list(ConfigMap, labels={"x": "y"})] == [{"a": "2"}]

    await client.create(Deployment.from_dict(make_deployment("web", "main")))
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "main:2"}]}}}}
    patched = await client.patch(Deployment, "web", patch)
    assert [one.image for one in patched.spec.template.spec.containers] == ["main:2"]
    scale = await client.get(Deployment.Scale, "web")
    scale.spec.replicas = 3
    replaced = await client.replace(scale, "web")
    assert replaced.spec.replicas == 3
    assert [one.spec.replicas async for one in client.list(Deployment)] == [3]
    await client.delete(Deployment, "web")


async def test_replacing_what_others_have_created(client: Any, cluster: LocalCluster) -> None:
    """The library adds the API version and the kind to the claims in sets."""
    manifest = {**make_deployment("db", "main"), "kind": "StatefulSet"}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    manifest["spec"] |= {"serviceName": "db", "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": spec}]}
    await cluster.aio.create(manifest)
    read = await client.get(StatefulSet, "db")
    assert (await client.replace(read)).metadata.resourceVersion == read.metadata.resourceVersion


async def test_errors(client: Any) -> None:
    with pytest.raises(ApiError) as error:
        await client.get(Widget, "nosuch")
    assert (error.value.status.code, error.value.status.reason) == (404, "NotFound")
    with pytest.raises(ApiError) as error:
        await client.create(make("two", size=99, color="pink"))
    assert (error.value.status.code, error.value.status.reason) == (422, "Invalid")
    details: Any = error.value.status.details
    assert sorted(cause.field for cause in details.causes) == ["spec.color", "spec.size"]
