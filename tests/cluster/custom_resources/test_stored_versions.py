"""
Objects are stored in one version only, so what a conversion loses is lost: for the writer itself, and for all readers.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import APPLY, CRDS, MERGE, Client, Obj, make_definition
from tests.cluster.custom_resources.test_conversion import V1, V2, kex, respond
from tests.cluster.webhooks import Answer, Hooks
from tests.patience import PATIENCE


def each(change: Callable[[Obj], Any]) -> Answer:
    """Answer with all objects in the desired version, each one changed."""

    def answer(review: Obj) -> Obj:
        version = review["request"]["desiredAPIVersion"]
        objs = [{**copy.deepcopy(obj), "apiVersion": version} for obj in review["request"]["objects"]]
        return respond(review, convertedObjects=[change(obj) for obj in objs])

    return answer


keep = each(lambda obj: obj)
"""A conversion with nothing but the other version: fields of one version only are pruned by the server."""


def fail(review: Obj) -> Obj:
    return {"#status": 503}


def definition(config: Obj | None, *, storage: str = "v2") -> Obj:
    """Two versions, each with a field of its own; and a default, which only the second one has."""
    made = make_definition()
    template = made["spec"]["versions"][0]

    def version(name: str, **fields: Obj) -> Obj:
        spec = {"type": "object", "properties": {"size": {"type": "integer"}, **fields}}
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"type": "object", "properties": {"spec": spec, "status": anything}}
        return {**template, "name": name, "storage": name == storage, "schema": {"openAPIV3Schema": schema}}

    text, mode = {"type": "string"}, {"type": "string", "default": "auto"}
    limited = {"type": "integer", "maximum": 5}
    made["spec"]["versions"] = [version("v1", old=text), version("v2", size=limited, new=text, mode=mode)]
    made["spec"]["conversion"] = {"strategy": "None"}
    if config is not None:
        webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
        made["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return made


@pytest.fixture(params=["Webhook", "None"])
def versions(request: pytest.FixtureRequest, cluster: LocalCluster, hooks: Hooks) -> None:
    """Both strategies lose the same fields here."""
    cluster.apply(definition(hooks.on("/", keep) if request.param == "Webhook" else None))


@pytest.fixture
def converted(cluster: LocalCluster, hooks: Hooks) -> Hooks:
    cluster.apply(definition(hooks.on("/", keep)))
    return hooks


async def create(client: Client, version: str, name: str = "one", **spec: Any) -> Obj:
    path = {"v1": V1, "v2": V2}[version]
    made: Obj = await client.create(path, {**kex(1, name, version), "spec": {"size": 1, **spec}})
    return made


# Writes.


@pytest.mark.usefixtures("versions")
async def test_creations_lose_the_fields_that_the_stored_version_does_not_have(client: Client) -> None:
    created = await create(client, "v1", old="x")
    assert (created["apiVersion"], created["spec"]) == ("example.com/v1", {"size": 1})
    assert await client.get(f"{V1}/one") == created
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": 1, "mode": "auto"}


@pytest.mark.usefixtures("versions")
async def test_dry_runs_lose_them_too(client: Client) -> None:
    reply = await client.call("POST", f"{V1}?dryRun=All", 201, json={**kex(1), "spec": {"size": 1, "old": "x"}})
    assert reply.body["spec"] == {"size": 1}


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize(
    ("patch", "content_type"),
    [
        ({"spec": {"size": 2, "old": "x"}}, MERGE),
        ({"apiVersion": "example.com/v1", "kind": "Kex", "spec": {"size": 2, "old": "x"}}, APPLY),
    ],
)
async def test_patches_lose_the_fields_that_either_version_does_not_have(
    client: Client, patch: Obj, content_type: str
) -> None:
    await create(client, "v2", new="y")
    query = "?fieldManager=me&force=true" if content_type == APPLY else ""
    patched = await client.patch(f"{V1}/one{query}", patch, content_type)
    assert patched["spec"] == {"size": 2}
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": 2, "mode": "auto"}


@pytest.mark.usefixtures("versions")
async def test_writes_that_change_nothing_in_their_version_lose_the_fields_of_the_other(client: Client) -> None:
    created = await create(client, "v2", new="y")
    seen = await client.get(f"{V1}/one")
    reply = await client.call("PUT", f"{V1}/one", 200, json=seen)
    assert reply.body["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    assert reply.body["metadata"]["generation"] == 1
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": 1, "mode": "auto"}
    again = await client.patch(f"{V1}/one", {})
    assert again["metadata"] == reply.body["metadata"], "now, nothing is different in the stored version"


@pytest.mark.usefixtures("versions")
async def test_statuses_and_deletions_lose_the_fields_of_the_other_version(client: Client) -> None:
    await create(client, "v2", new="y")
    await client.patch(f"{V1}/one/status", {"status": {"ok": True}})
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": 1, "mode": "auto"}
    await client.patch(f"{V2}/one", {"spec": {"new": "z"}, "metadata": {"finalizers": ["a.b/c"]}})
    await client.delete(f"{V1}/one")
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": 1, "mode": "auto"}


@pytest.mark.usefixtures("versions")
async def test_objects_are_validated_in_the_version_of_the_request_only(client: Client) -> None:
    await create(client, "v1", size=9)
    assert (await client.get(f"{V2}/one"))["spec"]["size"] == 9
    refused = await client.send_patch(f"{V2}/one", {"spec": {"size": 8}})
    assert refused.status == 422
    await client.patch(f"{V2}/one", {"metadata": {"labels": {"a": "b"}}})


async def test_conversions_add_fields_that_only_the_other_version_has(client: Client, converted: Hooks) -> None:
    converted.on("/", each(lambda obj: {**obj, "spec": {"size": 3, "old": "made", "new": "made", "other": 1}}))
    created = await create(client, "v1", old="x")
    assert created["spec"] == {"size": 3, "old": "made"}
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": 3, "new": "made", "mode": "auto"}


async def test_nulls_of_conversions_are_dropped(client: Client, converted: Hooks) -> None:
    converted.on("/", each(lambda obj: {**obj, "spec": {**obj["spec"], "old": None, "new": None, "mode": None}}))
    assert (await create(client, "v1", old="x"))["spec"] == {"size": 1}
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": 1, "mode": "auto"}


@pytest.mark.usefixtures("versions")
async def test_defaults_of_the_other_version_are_added_by_each_write(client: Client, cluster: LocalCluster) -> None:
    """The stored version does not have the field, so it is lost again; real servers increase generations forever."""
    spec = (await client.get(f"{CRDS}/kexes.example.com"))["spec"]
    fields = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["old"]["default"] = "x"
    await client.patch(f"{CRDS}/kexes.example.com", {"spec": {"versions": spec["versions"]}})
    assert (await create(client, "v1"))["spec"] == {"size": 1}
    for generation in (2, 3):
        patched = await client.patch(f"{V1}/one", {})
        assert (patched["spec"], patched["metadata"]["generation"]) == ({"size": 1}, generation)


# Reads.


@pytest.mark.usefixtures("versions")
async def test_reads_show_only_the_fields_of_their_version(client: Client) -> None:
    await create(client, "v2", new="y")
    assert (await client.get(f"{V1}/one"))["spec"] == {"size": 1}
    assert (await client.get(V1))["items"][0]["spec"] == {"size": 1}
    async with client.watch(V1) as stream:
        event = await stream.next()
        assert event["object"]["spec"] == {"size": 1}
        await client.patch(f"{V2}/one", {"spec": {"size": 2}})
        event = await stream.next()
        assert event["object"]["spec"] == {"size": 2}


async def test_conversions_see_no_resource_versions(client: Client, converted: Hooks) -> None:
    """A real server takes them from etcd, where the objects have none."""
    await create(client, "v1")
    await client.get(f"{V1}/one")
    await client.get(V1)
    assert all("resourceVersion" not in obj["metadata"] for made in converted.requests() for obj in made["objects"])
    shown = [(await client.get(f"{path}/one"))["metadata"]["resourceVersion"] for path in (V1, V2)]
    assert shown[0] == shown[1]


async def test_the_stored_version_is_neither_converted_nor_copied(client: Client, converted: Hooks) -> None:
    await create(client, "v2", new="y")
    async with client.watch(V2) as stream:
        await client.patch(f"{V2}/one", {"spec": {"size": 2}})
        await client.delete(f"{V2}/one")
        assert [event for event, _ in await stream.take(3)] == ["ADDED", "MODIFIED", "DELETED"]
    assert (await client.get(V2))["items"] == []
    assert not converted.reviews


async def test_deleted_objects_are_shown_as_they_were_stored(client: Client, converted: Hooks) -> None:
    await create(client, "v2", new="y")
    async with client.watch(V2) as stream, client.watch(V2, labelSelector="!gone") as others:
        await stream.next()
        await others.next()
        await client.patch(f"{V2}/one", {"metadata": {"labels": {"gone": "yes"}}})
        left = await others.next()
        assert (left["type"], left["object"]["spec"]["new"]) == ("DELETED", "y")
        await client.delete(f"{V1}/one")
        await stream.next()
        event = await stream.next()
        assert (event["type"], event["object"]["spec"]["new"]) == ("DELETED", "y")


# Failing webhooks.


@pytest.mark.parametrize("answer", [fail, each(lambda obj: {**obj, "kind": "Other"})])
async def test_writes_in_other_versions_fail_without_conversion(
    client: Client, converted: Hooks, answer: Answer
) -> None:
    before = await create(client, "v2", new="y")
    converted.on("/", answer)
    for method, path, body in (
        ("POST", V1, kex(1, "two")),
        ("PATCH", f"{V1}/one", {"spec": {"size": 2}}),
        ("PATCH", f"{V1}/one", {}),
        ("PATCH", f"{V1}/one/status", {"status": {"ok": True}}),
        ("DELETE", f"{V1}/one", None),
    ):
        content_type = MERGE if method == "PATCH" else "application/json"
        reply = await client.call(method, path, 500, json=body, headers={"Content-Type": content_type})
        assert reply.body["message"].startswith("conversion webhook for example.com/v"), (method, path)
    assert (await client.get(V2))["items"] == [before]


async def test_the_stored_version_works_without_conversion(client: Client, converted: Hooks) -> None:
    """But who manages which field in the other version, cannot be known any more; so a real server forgets it."""
    await create(client, "v1")
    converted.on("/", fail)
    managed = (await client.get(f"{V2}/one"))["metadata"]["managedFields"]
    assert [entry["apiVersion"] for entry in managed] == ["example.com/v1"]
    patched = await client.patch(f"{V2}/one", {"spec": {"size": 2}})
    assert patched["spec"]["size"] == 2
    assert "managedFields" not in patched["metadata"]
    await client.delete(f"{V2}/one")


async def test_watches_are_silent_until_conversions_succeed(client: Client, converted: Hooks) -> None:
    """They neither end nor skip an event, and send no bookmarks meanwhile."""
    await create(client, "v2")
    async with client.watch(V1, allowWatchBookmarks="true") as stream:
        assert await stream.take(1) == [("ADDED", "one")]
        converted.on("/", fail)
        converted.reviews.clear()
        for size in (2, 3):
            await client.patch(f"{V2}/one", {"spec": {"size": size}})
        async with asyncio.timeout(PATIENCE):
            while not converted.reviews:
                await asyncio.sleep(0.01)
        await client.call("GET", V1, 500)
        converted.on("/", keep)
        for size in (2, 3):
            event = await stream.next()
            assert (event["type"], event["object"]["spec"]) == ("MODIFIED", {"size": size})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda obj: {**obj, "apiVersion": "example.com/v9"}, "invalid object at index 0: invalid groupVersion (exp"),
        (lambda obj: {**obj, "kind": "Other"}, "invalid object at index 0: invalid kind (expected Kex, received Oth"),
        (lambda obj: "text", "invalid object"),
        (lambda obj: obj["metadata"].update(name="two") or obj, "invalid object: must have the same name: one != two"),
        (lambda obj: obj["metadata"].pop("namespace") and obj, "must have the same namespace: default != "),
        (lambda obj: obj["metadata"].update(uid="2") or obj, "invalid object: must have the same UID: "),
        (lambda obj: obj.pop("metadata") and obj, "invalid object: must have the same name: one != "),
        (lambda obj: obj["metadata"].update(labels={"a": 1}) or obj, "invalid metadata: metadata.labels"),
        (lambda obj: obj["metadata"].update(labels=["a"]) or obj, "invalid metadata: metadata.labels"),
        (lambda obj: obj["metadata"].update(labels={"a": "b c"}) or obj, "invalid metadata: metadata.labels: Invalid"),
        (lambda obj: obj["metadata"].update(annotations={"a b": ""}) or obj, "invalid metadata: metadata.annotations"),
    ],
)
async def test_wrong_objects_are_refused(client: Client, converted: Hooks, change: Any, why: str) -> None:
    await create(client, "v2")
    converted.on("/", each(change))
    reply = await client.call("GET", f"{V1}/one", 500)
    assert reply.body["message"].startswith("conversion webhook for example.com/v2, Kind=Kex returned ")
    assert why in reply.body["message"]


async def test_other_metadata_are_restored(client: Client, converted: Hooks) -> None:
    before = await create(client, "v2")
    changes = {"finalizers": ["a.b/c"], "generation": 7, "ownerReferences": []}
    allowed = {"labels": {"a": "b"}, "annotations": {"e": "f"}}
    converted.on("/", each(lambda obj: {**obj, "metadata": {**obj["metadata"], **changes, **allowed}}))
    shown = await client.get(f"{V1}/one")
    assert shown["metadata"] == {**before["metadata"], **allowed}


# Another storage version.


@pytest.mark.parametrize("strategy", ["Webhook", "None"])
async def test_objects_move_to_a_new_storage_version_with_their_next_write(
    client: Client, cluster: LocalCluster, hooks: Hooks, strategy: str
) -> None:
    config = hooks.on("/", keep) if strategy == "Webhook" else None
    cluster.apply(definition(config, storage="v1"))
    created = await create(client, "v1", old="x")
    changed = await client.patch(f"{CRDS}/kexes.example.com", {"spec": definition(config, storage="v2")["spec"]})
    assert changed["status"]["storedVersions"] == ["v1", "v2"]
    assert (await client.get(f"{V1}/one"))["spec"] == {"size": 1, "old": "x"}, "it is still stored so"
    shown = await client.get(f"{V2}/one")
    assert shown["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    moved = (await client.call("PUT", f"{V2}/one", 200, json=shown)).body
    assert moved["metadata"]["resourceVersion"] != shown["metadata"]["resourceVersion"]
    assert (await client.get(f"{V1}/one"))["spec"] == {"size": 1}
    again = (await client.call("PUT", f"{V2}/one", 200, json=moved)).body
    assert again["metadata"]["resourceVersion"] == moved["metadata"]["resourceVersion"]


async def test_stored_versions_cannot_be_removed_before_their_objects_are_moved(
    client: Client, cluster: LocalCluster, converted: Hooks
) -> None:
    made = definition(converted.on("/", keep), storage="v1")
    versions = await client.patch(f"{CRDS}/kexes.example.com", {"spec": made["spec"]})
    assert versions["status"]["storedVersions"] == ["v2", "v1"]
    last = {"spec": {"versions": made["spec"]["versions"][:1]}}
    refused = await client.send_patch(f"{CRDS}/kexes.example.com", last, expected=422)
    assert "status.storedVersions[0]" in refused.body["message"]
    await client.patch(f"{CRDS}/kexes.example.com/status", {"status": {"storedVersions": ["v1"]}})
    await client.patch(f"{CRDS}/kexes.example.com", last)
