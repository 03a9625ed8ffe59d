"""The dry client: what is written is seen by those who have written it, and by nobody else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kopf
from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._operator.dry_client import DryClient, Place, parse_path
from kopf._settings.settings import OperatorSettings
from kopf._values.patches import JSON_PATCH
from kopf_cluster import LocalCluster

CONFIGS = "/api/v1/namespaces/default/configmaps"
PATH = f"{CONFIGS}/obj"
PLACE = Place("", "configmaps", "default", "obj")
OBJ = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "obj"}, "data": {"a": "1"}}


@pytest.fixture
async def api() -> AsyncIterator[DryClient]:
    settings = OperatorSettings()
    async with LocalCluster(bare=True) as cluster:
        info = ConnectionInfo(server=cluster.url, token=cluster.token, ca_data=cluster.ca_data)
        vault = Vault(settings)
        vault.populate([info])
        real = APIClient(vault, settings)
        before = json.loads(await real.get(CONFIGS))
        yield DryClient(vault, settings)
        assert json.loads(await real.get(CONFIGS)) == before  # with the version, which is of all that is stored
        await vault.close()


async def get(api: DryClient, path: str = PATH) -> Any:
    return json.loads(await api.get(path))


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/api/v1/pods", Place("", "pods", None, "")),
        ("/api/v1/namespaces/ns/pods", Place("", "pods", "ns", "")),
        ("/api/v1/namespaces/ns/pods/x", Place("", "pods", "ns", "x")),
        ("/api/v1/namespaces/ns/pods/x/status", Place("", "pods", "ns", "x")),
        ("/api/v1/namespaces/ns", Place("", "namespaces", None, "ns")),
        ("/api/v1/namespaces/ns/status", Place("", "namespaces", None, "ns")),
        ("/api/v1/namespaces/status/pods/x", Place("", "pods", "status", "x")),
        ("/apis/apps/v1/namespaces/ns/deployments/x/scale", Place("apps", "deployments", "ns", "x")),
        ("/apis/example.com/v1/things/x/status", Place("example.com", "things", None, "x")),
        ("/apis", Place("", "", None, "")),
        ("/api/v1", Place("", "", None, "")),
        ("/apis/apps/v1", Place("apps", "", None, "")),
        ("/version", Place("", "", None, "")),
    ],
)
def test_paths(path: str, place: Place) -> None:
    assert parse_path(path) == place


def test_names_of_resources() -> None:
    assert parse_path("/api/v1/namespaces/ns/pods/x").resource == "pods"
    assert parse_path("/apis/apps/v1/namespaces/ns/deployments/x").resource == "deployments.apps"


async def test_created_changed_and_deleted_objects(api: DryClient) -> None:
    created = json.loads(await api.post(CONFIGS, payload=OBJ))
    assert (await get(api)) == created
    await api.patch(PATH, payload={"data": {"a": None, "b": "2"}})
    version = (await get(api))["metadata"]["resourceVersion"]
    assert version != created["metadata"]["resourceVersion"]
    await api.patch(
        PATH,
        content_type=JSON_PATCH,
        payload=[
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/data/c~1d", "value": "3"},
            {"op": "remove", "path": "/data/b"},
        ],
    )
    assert (await get(api))["data"] == {"c/d": "3"}
    assert api.drafts[PLACE].before is None
    assert api.drafts[PLACE].after == await get(api)
    await api.delete(PATH)
    for writing in (api.get(PATH), api.patch(PATH, payload={}), api.delete(PATH)):
        with pytest.raises(kopf.APINotFoundError):
            await writing
    assert (api.drafts[PLACE].before, api.drafts[PLACE].after) == (None, None)


async def test_patches_of_outdated_states_are_refused(api: DryClient) -> None:
    await api.post(CONFIGS, payload=OBJ)
    version = (await get(api))["metadata"]["resourceVersion"]
    await api.patch(PATH, payload={"data": {"b": "2"}, "metadata": {"resourceVersion": version}})
    with pytest.raises(kopf.APIConflictError):
        await api.patch(PATH, payload={"data": {"c": "3"}, "metadata": {"resourceVersion": version}})
    with pytest.raises(kopf.APIUnprocessableError):
        await api.patch(
            PATH,
            content_type=JSON_PATCH,
            payload=[
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "add", "path": "/data/c", "value": "3"},
            ],
        )
    assert (await get(api))["data"] == {"a": "1", "b": "2"}


async def test_the_server_judges(api: DryClient) -> None:
    with pytest.raises(kopf.APINotFoundError):
        await api.patch(PATH, payload={"data": {}})
    with pytest.raises(kopf.APINotFoundError):
        await api.delete(PATH)
    with pytest.raises(kopf.APIUnprocessableError):
        await api.post(CONFIGS, payload={**OBJ, "metadata": {"name": "Not proper!"}})
    assert api.drafts == {}
    assert api.busy == 0


async def test_streams_bring_the_drafts(api: DryClient) -> None:
    for path in (CONFIGS, "/api/v1/configmaps", "/api/v1/namespaces/other/configmaps", "/api/v1/secrets"):
        async with contextlib.aclosing(api.stream(path)) as stream:
            assert await anext(stream) == []
            if "other" in path or "secrets" in path:
                continue
            obj = {**OBJ, "metadata": {"generateName": "obj-"}}
            name = json.loads(await api.post(CONFIGS, payload=obj))["metadata"]["name"]
            await api.patch(f"{CONFIGS}/{name}", payload={"data": {"b": "2"}})
            await api.delete(f"{CONFIGS}/{name}")
            events = [json.loads(line) for _ in range(3) for line in await anext(stream)]
            assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
            assert {event["object"]["metadata"]["name"] for event in events} == {name}
    with pytest.raises(kopf.APIClientError):
        await anext(api.stream(CONFIGS, params={"sendInitialEvents": "true"}))


async def test_events_and_reviews(api: DryClient) -> None:
    event = {"metadata": {"generateName": "x-"}, "reason": "Done"}
    answer = json.loads(await api.post("/api/v1/namespaces/default/events", payload=event))
    await api.patch(f"/api/v1/namespaces/default/events/{answer['metadata']['name']}", payload={"count": 2})
    assert api.events == [event]
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert json.loads(await api.post(path, payload=review))["status"]["userInfo"]
    assert api.drafts == {}
