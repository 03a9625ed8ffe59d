from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from tests.cluster.conftest import CONFIG_MAPS, Client, Reply, causes, make_config_map, make_kex


async def test_the_server_decides_on_its_part_of_metadata(client: Client) -> None:
    obj = await client.create(
        CONFIG_MAPS,
        make_config_map(
            data={"a": "b"},
            metadata={
                "uid": "mine",
                "creationTimestamp": "2000-01-01T00:00:00Z",
                "generation": 99,
                "selfLink": "/x",
                "deletionTimestamp": "2000-01-01T00:00:00Z",
                "managedFields": [],
                "labels": {},
                "annotations": None,
            },
        ),
    )
    metadata = obj["metadata"]
    assert obj["apiVersion"] == "v1"
    assert obj["kind"] == "ConfigMap"
    assert obj["data"] == {"a": "b"}
    assert set(metadata) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields"}
    assert [entry["fieldsV1"] for entry in metadata["managedFields"]] == [{"f:data": {".": {}, "f:a": {}}}]
    assert metadata["namespace"] == "default"
    assert metadata["uid"] != "mine"
    assert metadata["creationTimestamp"] > "2020"
    assert await client.get(f"{CONFIG_MAPS}/one") == obj


async def test_custom_objects_begin_with_the_first_generation_and_no_status(client: Client, kexes: str) -> None:
    obj = await client.create(kexes, make_kex(status={"mine": True}))
    assert obj["metadata"]["generation"] == 1
    assert "status" not in obj


async def test_generated_names(client: Client) -> None:
    obj = make_config_map()
    obj["metadata"] = {"generateName": "some-"}
    made = {(await client.create(CONFIG_MAPS, obj))["metadata"]["name"] for _ in range(5)}
    assert len(made) == 5
    assert all(name.startswith("some-") and len(name) == 10 for name in made)


async def test_existing_objects_are_not_created_again(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    reply = await client.call("POST", CONFIG_MAPS, json=make_config_map(), expected=409)
    assert reply.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": 409,
        "reason": "AlreadyExists",
        "message": 'configmaps "one" already exists',
        "details": {"name": "one", "kind": "configmaps"},
    }


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        (
            {"metadata": {"name": "one", "namespace": "other"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ({"apiVersion": "v2"}, 400, "the API version in the data (v2) does not match the expected API version (v1)"),
        ({"kind": "Secret"}, 400, 'Secret in version "v1" cannot be handled as a ConfigMap'),
        (
            {"metadata": {"name": "one", "resourceVersion": "1"}},
            500,
            "resourceVersion should not be set on objects to be created",
        ),
    ],
)
async def test_other_objects_are_refused(client: Client, change: dict[str, Any], status: int, message: str) -> None:
    reply = await client.call("POST", CONFIG_MAPS, json={**make_config_map(), **change}, expected=status)
    assert message in reply.body["message"]
    reply = await client.call("POST", "/api/v1/namespaces/nosuch/configmaps", json=make_config_map(), expected=404)
    assert reply.body["message"] == 'namespaces "nosuch" not found'
    assert reply.body["details"] == {"name": "nosuch", "kind": "namespaces"}


@pytest.mark.parametrize(
    ("metadata", "field", "reason"),
    [
        ({"name": ""}, "metadata.name", "FieldValueRequired"),
        ({"name": "Upper"}, "metadata.name", "FieldValueInvalid"),
        ({"name": "x" * 254}, "metadata.name", "FieldValueInvalid"),
        ({"labels": {"a b": "x"}}, "metadata.labels", "FieldValueInvalid"),
        ({"labels": {"a": "x y"}}, "metadata.labels", "FieldValueInvalid"),
        ({"labels": {"a": "x" * 64}}, "metadata.labels", "FieldValueInvalid"),
        ({"annotations": {"a/b/c": "x"}}, "metadata.annotations", "FieldValueInvalid"),
        ({"annotations": {"example.com/" + "x" * 64: "x"}}, "metadata.annotations", "FieldValueInvalid"),
        ({"annotations": {"UPPER.com/x": "x", "a:b": ""}}, "metadata.annotations", "FieldValueInvalid"),
        ({"annotations": {"a": "x" * 256 * 1024}}, "metadata.annotations", "FieldValueTooLong"),
        ({"finalizers": ["a b"]}, "metadata.finalizers", "FieldValueInvalid"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "y"}]},
            "metadata.ownerReferences[0].uid",
            "FieldValueInvalid",
        ),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "y", "uid": "z", "controller": True}] * 2},
            "metadata.ownerReferences",
            "FieldValueInvalid",
        ),
    ],
)
async def test_wrong_metadata_is_invalid(client: Client, metadata: dict[str, Any], field: str, reason: str) -> None:
    reply = await client.call("POST", CONFIG_MAPS, json=make_config_map(metadata=metadata))
    assert causes(reply) == [(field, reason)]
    assert reply.body["message"].startswith(f'ConfigMap "{metadata.get("name", "one")}" is invalid: {field}: ')


async def test_the_size_of_annotations_is_limited_as_in_reality(client: Client) -> None:
    fits = {"a": "x" * (256 * 1024 - 1)}
    await client.create(CONFIG_MAPS, make_config_map(metadata={"annotations": fits}))
    reply = await client.send_patch(f"{CONFIG_MAPS}/one", {"metadata": {"annotations": {"b": "y"}}}, expected=422)
    assert reply.body["message"] == (
        'ConfigMap "one" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes'
    )


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a": 1}},
        {"labels": ["a"]},
        {"annotations": {"a": True}},
        {"finalizers": "x"},
        {"name": 5},
        {"ownerReferences": ["x"]},
        {"generation": "x"},
    ],
)
async def test_metadata_of_wrong_types_is_bad(client: Client, metadata: dict[str, Any]) -> None:
    reply = await client.call("POST", CONFIG_MAPS, json=make_config_map(metadata=metadata), expected=400)
    assert reply.body["reason"] == "BadRequest"
    assert 'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: ' in reply.body["message"]


async def test_several_mistakes_are_told_at_once(client: Client) -> None:
    obj = make_config_map("A", metadata={"labels": {"-": "x"}})
    reply = await client.call("POST", CONFIG_MAPS, json=obj)
    assert causes(reply) == [("metadata.name", "FieldValueInvalid"), ("metadata.labels", "FieldValueInvalid")]
    assert ' is invalid: [metadata.name: Invalid value: "A": ' in reply.body["message"]


@pytest.mark.parametrize("absent", ["kind", "apiVersion"])
async def test_builtin_kinds_are_known_by_the_url(client: Client, absent: str) -> None:
    reply = await client.call("POST", CONFIG_MAPS, json={**make_config_map(), absent: ""})
    assert (reply.status, reply.body["kind"], reply.body["apiVersion"]) == (201, "ConfigMap", "v1")


async def test_dry_runs_change_nothing(client: Client) -> None:
    reply = await client.call("POST", f"{CONFIG_MAPS}?dryRun=All", json=make_config_map(), expected=201)
    assert reply.body["metadata"]["uid"]
    assert (await client.call("GET", f"{CONFIG_MAPS}/one")).status == 404

    await client.create(CONFIG_MAPS, make_config_map())
    before = await client.get(f"{CONFIG_MAPS}/one")
    patched = await client.patch(f"{CONFIG_MAPS}/one?dryRun=All", {"data": {"x": "y"}})
    assert patched["data"] == {"x": "y"}
    await client.delete(f"{CONFIG_MAPS}/one?dryRun=All")
    assert await client.get(f"{CONFIG_MAPS}/one") == before


async def test_yaml_is_accepted(client: Client) -> None:
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {a: b}}"
    reply = await client.call(
        "POST", CONFIG_MAPS, data=text, headers={"Content-Type": "application/yaml"}, expected=201
    )
    assert reply.body["data"] == {"a": "b"}


async def test_objects_are_limited_in_size_as_by_etcd(client: Client, kexes: str) -> None:
    async def send(size: int) -> Reply:
        body = json.dumps(make_kex(spec={"a": "x" * size})).encode()
        return await client.call("POST", kexes, data=io.BytesIO(body), headers={"Content-Type": "application/json"})

    reply = await send(1_600_000)
    assert reply.status == 500
    assert reply.body["message"] == "etcdserver: request is too large"
    reply = await send(2_500_000)
    assert reply.status == 500
    assert re.fullmatch(
        r"rpc error: code = ResourceExhausted desc = trying to send message larger than max \(25\d+ vs. 2097152\)",
        reply.body["message"],
    )
    reply = await send(3_200_000)
    assert reply.status == 413
    assert reply.body["reason"] == "RequestEntityTooLarge"
    assert reply.body["message"] == "Request entity too large: limit is 3145728"


async def test_cluster_wide_objects_have_no_namespaces(client: Client) -> None:
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1"}}
    namespace = await client.create("/api/v1/namespaces", obj)
    assert "namespace" not in namespace["metadata"]
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "ns1"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["status"] == {"phase": "Active"}


async def test_secrets_take_plain_texts(client: Client) -> None:
    obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    secret = await client.create("/api/v1/namespaces/default/secrets", obj)
    assert secret["data"] == {"a": "Yg=="}
    assert secret["type"] == "Opaque"
    assert "stringData" not in secret


async def test_events_belong_to_the_namespaces_of_their_objects(client: Client) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "kopf-event-"},
        "involvedObject": {"kind": "Kex", "name": "x", "namespace": "other"},
    }
    reply = await client.call("POST", "/api/v1/namespaces/default/events", json=event)
    assert causes(reply) == [("involvedObject.namespace", "FieldValueInvalid")]
    for namespace in ("default", ""):
        event["involvedObject"] = {"kind": "Kex", "name": "x", "namespace": namespace}
        await client.create("/api/v1/namespaces/default/events", event)


async def test_events_with_exact_times_have_limits(client: Client) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "x"},
        "message": "x" * 1025,
        "involvedObject": {"kind": "Kex", "name": "x", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingComponent": "kopf",
        "reportingInstance": "dev",
        "action": "Do",
        "reason": "Why",
    }
    reply = await client.call("POST", "/api/v1/namespaces/default/events", json=event)
    assert causes(reply) == [("message", "FieldValueInvalid")]
    await client.create("/api/v1/namespaces/default/events", {**event, "message": "x" * 1024})
