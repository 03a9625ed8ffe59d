"""
The OpenAPI documents, as they are, and as ``kubectl`` understands them.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from kopf_cluster.api.openapi import encode_document
from tests.cluster.conftest import Client, make_definition

POD = "io.k8s.api.core.v1.Pod"
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
SPEC = {
    "type": "object",
    "description": "What is wanted.",
    "properties": {
        "size": {"type": "integer", "description": "How much.", "minimum": 1, "nullable": True},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
    },
}


async def test_each_version_of_a_group_has_its_document(client: Client) -> None:
    index = (await client.get("/openapi/v3"))["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/autoscaling/v2"} <= set(index)
    for path in ("api/v1", "apis/apps/v1"):
        document = await client.get(index[path]["serverRelativeURL"])
        assert document["openapi"] == "3.0.0"
        schemas = document["components"]["schemas"]
        for operations in document["paths"].values():
            for reference in re.findall(r"#/components/schemas/([^'\"]+)", str(operations)):
                assert reference in schemas


async def test_builtin_kinds_have_their_schemas(client: Client) -> None:
    document = await client.get("/openapi/v3/api/v1")
    assert document["components"]["schemas"][POD]["x-kubernetes-group-version-kind"] == [
        {"group": "", "version": "v1", "kind": "Pod"}
    ]
    containers = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert (containers["x-kubernetes-patch-strategy"], containers["x-kubernetes-patch-merge-key"]) == ("merge", "name")
    parameters = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]["parameters"]
    assert "fieldValidation" in {parameter["name"] for parameter in parameters}
    assert "/api/v1/bindings" not in document["paths"]


async def test_documents_follow_the_definitions(client: Client, cluster: LocalCluster) -> None:
    assert "apis/example.com/v1" not in (await client.get("/openapi/v3"))["paths"]
    cluster.apply(make_definition(spec=SPEC))
    before = (await client.get("/openapi/v3"))["paths"]["apis/example.com/v1"]["serverRelativeURL"]
    document = await client.get(before)
    assert document["components"]["schemas"]["com.example.v1.Kex"]["properties"]["spec"] == SPEC
    patch = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/kexes/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "example.com", "version": "v1", "kind": "Kex"}
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    cluster.apply(make_definition(spec={**SPEC, "description": "What is needed."}))
    after = (await client.get("/openapi/v3"))["paths"]["apis/example.com/v1"]["serverRelativeURL"]
    assert after != before
    schema = (await client.get(after))["components"]["schemas"]["com.example.v1.Kex"]
    assert schema["properties"]["spec"]["description"] == "What is needed."


async def test_the_old_dialect_leaves_out_what_it_does_not_know(client: Client, cluster: LocalCluster) -> None:
    cluster.apply(make_definition(spec=SPEC))
    document = await client.get("/openapi/v2")
    definitions = document["definitions"]
    assert document["swagger"] == "2.0"
    assert POD in definitions
    assert definitions["com.example.v1.Kex"]["properties"]["spec"]["properties"]["size"] == {
        "description": "How much.",
        "minimum": 1,
    }


LIMITED = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 2,
    "required": ["text"],
    "properties": {
        "text": {"type": "string", "pattern": "^a+$", "minLength": 1, "maxLength": 9, "default": "a"},
        "number": {
            "type": "number",
            "minimum": 0.5,
            "maximum": 7,
            "exclusiveMinimum": True,
            "exclusiveMaximum": True,
            "multipleOf": 0.5,
        },
        "list": {"type": "array", "minItems": 1, "maxItems": 3, "uniqueItems": True, "items": {"type": "integer"}},
        "free-list": {"type": "array", "x-kubernetes-preserve-unknown-fields": True, "items": {"type": "integer"}},
        "nullable-map": {
            "type": "object",
            "nullable": True,
            "maxProperties": 3,
            "additionalProperties": {"type": "integer"},
        },
        "map": {"type": "object", "additionalProperties": True},
        "choice": {"type": "string", "anyOf": [{"pattern": "a"}, {"maxLength": 1}], "enum": ["a", "b"]},
    },
}


async def test_the_old_dialect_tells_all_limits_of_single_values(client: Client, cluster: LocalCluster) -> None:
    cluster.apply(make_definition(spec=LIMITED))
    old, given = (await published(client, "/openapi/v2"))["properties"]["spec"], LIMITED["properties"]
    assert isinstance(given, dict)
    assert old == {
        **LIMITED,
        "properties": {
            **given,
            "free-list": {"x-kubernetes-preserve-unknown-fields": True},
            "nullable-map": {"maxProperties": 3, "additionalProperties": {"type": "integer"}},
            "choice": {"type": "string", "enum": ["a", "b"]},
        },
    }


async def test_limits_are_in_the_binary_form_too(client: Client, cluster: LocalCluster) -> None:
    cluster.apply(make_definition(spec=LIMITED))
    body = (await client.call("GET", "/openapi/v2", headers={"Accept": PROTOBUF})).body
    text = b'\x2a\x05\x12\x03"a"' + b"\xb2\x01\x08\x0a\x06string"  # the default, the type
    assert b"\x58\x09\x60\x01\x6a\x04^a+$" in body
    assert text in body
    number = struct.pack("<BdBdB?Bd", 0x31, 0.5, 0x39, 7, 0x40, True, 0x49, 0.5) + b"\x50\x01"
    assert number in body
    assert b"\x70\x03\x78\x01\x80\x01\x01" in body  # of lists
    assert b"\x88\x01\x02\x90\x01\x01" in body  # of objects
    assert b"\xaa\x01\x02\x10\x01" in body  # anything in a map


async def published(client: Client, path: str) -> Any:
    document = await client.get(path)
    return (document.get("definitions") or document["components"]["schemas"])["com.example.v1.Kex"]


FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": {"type": "string"}}}


async def test_nothing_is_closed_where_anything_may_be(client: Client, cluster: LocalCluster) -> None:
    spec = {
        "type": "object",
        "properties": {
            "free": FREE,
            "nullable": {"type": "object", "nullable": True, "properties": {"known": {"type": "string"}}},
            "map": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
            "any": {"type": "object", "additionalProperties": True},
        },
    }
    cluster.apply(make_definition(spec=spec))
    old = (await published(client, "/openapi/v2"))["properties"]["spec"]["properties"]
    assert old == {
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "nullable": {},
        "map": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
        "any": {"type": "object", "additionalProperties": True},
    }
    assert (await published(client, "/openapi/v3/apis/example.com/v1"))["properties"]["spec"] == spec


async def test_kinds_of_any_contents_have_no_properties_in_the_old_dialect(
    client: Client,
    cluster: LocalCluster,
) -> None:
    cluster.apply(make_definition(schema={"openAPIV3Schema": FREE}))
    gvk = [{"group": "example.com", "version": "v1", "kind": "Kex"}]
    assert await published(client, "/openapi/v2") == {"type": "object", "x-kubernetes-group-version-kind": gvk}
    new = await published(client, "/openapi/v3/apis/example.com/v1")
    assert set(new["properties"]) == {"apiVersion", "kind", "metadata", "known"}
    assert new["x-kubernetes-preserve-unknown-fields"]


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/apis/example.com/v1"])
async def test_embedded_objects_have_the_head_of_objects(client: Client, cluster: LocalCluster, path: str) -> None:
    embedded = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "properties": {"spec": {"type": "object"}},
        "required": ["spec"],
    }
    listed = {"type": "array", "items": embedded}
    cluster.apply(make_definition(spec={"type": "object", "properties": {"list": listed}}))
    items = (await published(client, path))["properties"]["spec"]["properties"]["list"]["items"]
    assert set(items["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    assert items["required"] == ["spec", "kind", "apiVersion"]


async def test_the_binary_form_is_of_its_own_type(client: Client) -> None:
    reply = await client.call("GET", "/openapi/v2", headers={"Accept": PROTOBUF}, expected=200)
    assert reply.headers["Content-Type"] == PROTOBUF.replace("@", ".")
    assert POD.encode() in reply.body


def test_the_wire_format() -> None:
    document = {
        "swagger": "2.0",
        "info": {"title": "T", "version": "V"},
        "paths": {},
        "definitions": {"n": {"type": "object", "required": ["a"], "x-y": ["z"]}},
    }
    schema = b"\x9a\x01\x01a" + b"\xb2\x01\x08\x0a\x06object" + b"\xfa\x01\x0c\x0a\x03x-y\x12\x05\x12\x03" + b'["z"]'
    schema = schema.replace(b"\x12\x05\x12\x03", b"\x12\x07\x12\x05").replace(b"\xfa\x01\x0c", b"\xfa\x01\x0e")
    named = b"\x0a\x01n\x12" + bytes([len(schema)]) + schema
    definitions = b"\x0a" + bytes([len(named)]) + named
    assert encode_document(document) == (
        b"\x0a\x032.0" + b"\x12\x06\x0a\x01T\x12\x01V" + b"\x42\x00" + b"\x4a" + bytes([len(definitions)]) + definitions
    )
