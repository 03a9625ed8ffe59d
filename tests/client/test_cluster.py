"""The client against the Kubernetes API as a whole: the parts must fit each other and the API."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kopf._client.auth.kubeconfig import login_with_kubeconfig
from kopf._client.auth.vault import Vault
from kopf._client.errors import APIConflictError, APINotFoundError, APIUnprocessableError
from kopf._client.http.api import APIClient
from kopf._client.resources.discovery import discover
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._client.resources.watching import watch_batches
from kopf._settings.settings import OperatorSettings
from kopf._values.resources import Resource
from kopf._values.selectors import EVERYTHING, Selector
from kopf_cluster import LocalCluster

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "kopfexamples.kopf.dev"},
    "spec": {
        "group": "kopf.dev",
        "scope": "Namespaced",
        "names": {
            "kind": "KopfExample",
            "plural": "kopfexamples",
            "singular": "kopfexample",
            "shortNames": ["kex"],
            "categories": ["all"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
RESOURCE = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
async def api(
    cluster: LocalCluster, settings: OperatorSettings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[APIClient]:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    info = login_with_kubeconfig()
    assert info is not None
    vault = Vault(settings)
    vault.populate([info])
    api = APIClient(vault, settings)
    await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", payload=CRD)
    while not (await discover(api, [Selector("kopfexamples.kopf.dev")])).resources:
        await asyncio.sleep(0)
    yield api
    await vault.close()


async def create(api: APIClient, name: str, **spec: Any) -> None:
    payload = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name}, "spec": spec}
    await api.post(RESOURCE.get_url(namespace="default"), payload=payload)


def url(name: str) -> str:
    return RESOURCE.get_url(namespace="default", name=name)


def describe(event: WatchEvent) -> str:
    return "LISTED" if event is LISTED else f"{event.type}:{event.object.head.name}"


async def test_discovery(api: APIClient) -> None:
    [kex] = (await discover(api, [Selector("kex.kopf.dev")])).resources
    assert kex == RESOURCE
    assert (kex.kind, kex.singular) == ("KopfExample", "kopfexample")
    assert (kex.shortcuts, kex.categories) == (frozenset({"kex"}), frozenset({"all"}))
    assert (kex.namespaced, kex.preferred, kex.subresources) == (True, True, frozenset({"status"}))
    assert {"list", "watch", "patch"} <= kex.verbs

    everything = (await discover(api, [Selector(EVERYTHING)])).resources
    assert kex in everything
    assert Resource("", "v1", "pods") in everything
    [pods] = Selector("pods").select(everything)
    assert pods == Resource("", "v1", "pods")


async def test_lifecycle_of_objects(api: APIClient) -> None:
    await create(api, "a", x=1)
    with pytest.raises(APIConflictError, match="409 AlreadyExists"):
        await create(api, "a", x=1)
    patched = json.loads(await api.patch(url("a"), payload={"spec": {"x": 2}}))
    assert patched["spec"] == {"x": 2}
    test = [{"op": "test", "path": "/spec/x", "value": 3}]
    with pytest.raises(APIUnprocessableError):
        await api.patch(url("a"), payload=test, content_type="application/json-patch+json")
    assert json.loads(await api.get(url("a")))["spec"] == {"x": 2}
    await api.delete(url("a"))
    with pytest.raises(APINotFoundError):
        await api.get(url("a"))


@pytest.mark.parametrize("namespace", [None, "default"])
async def test_watching(api: APIClient, settings: OperatorSettings, namespace: str | None) -> None:
    settings.watching.chunk_size = 2
    for name in "abcde":
        await create(api, name)
    seen: list[str] = []
    async with contextlib.aclosing(watch_batches(api, settings, Target(RESOURCE, namespace))) as batches:
        async for events in batches:
            seen.extend(map(describe, events))
            if seen[-1] == "LISTED":
                break
        assert seen == ["None:a", "None:b", "None:c", "None:d", "None:e", "LISTED"]
        await create(api, "f")
        await api.patch(url("a"), payload={"spec": {"x": 1}})
        await api.delete(url("b"))
        async for events in batches:
            seen.extend(map(describe, events))
            if "DELETED:b" in seen:
                break
    assert seen[6:] == ["ADDED:f", "MODIFIED:a", "DELETED:b"]
