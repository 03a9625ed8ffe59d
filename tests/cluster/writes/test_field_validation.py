"""
What is not known, or is there twice: warned of, refused, or ignored, as the client wants it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.cluster.conftest import (
    CONFIG_MAPS,
    CRDS,
    KEXES,
    MERGE,
    PODS,
    STRATEGIC,
    Client,
    Reply,
    make_config_map,
    make_definition,
    make_kex,
)

POD: dict[str, Any] = {
    "metadata": {"name": "p", "alien": 1},
    "spec": {"containers": [{"name": "c", "image": "x", "color": "red"}], "alien": 1},
}
UNKNOWN = ['unknown field "metadata.alien"', 'unknown field "spec.containers[0].color"', 'unknown field "spec.alien"']


def warnings(reply: Reply) -> list[str]:
    quoted = re.findall(r'299 - ("(?:[^"\\]|\\.)*")', reply.headers.get("Warning", ""))
    return [json.loads(text) for text in quoted]


@pytest.mark.parametrize(("query", "expected"), [("", UNKNOWN), ("Warn", UNKNOWN), ("Ignore", [])])
async def test_unknown_fields_of_builtin_kinds(client: Client, query: str, expected: list[str]) -> None:
    reply = await client.call("POST", f"{PODS}?fieldValidation=Strict", json=POD)
    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
    assert reply.body["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: ' + ", ".join(UNKNOWN)
    )
    reply = await client.call("POST", f"{PODS}?fieldValidation={query}" if query else PODS, json=POD)
    assert (reply.status, warnings(reply)) == (201, expected)
    assert "alien" not in reply.body["spec"]


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_patches_are_to_blame_for_what_they_add(client: Client, content_type: str) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    reply = await client.send_patch(f"{CONFIG_MAPS}/one?fieldValidation=Strict", {"alien": 1}, content_type)
    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    assert reply.body["message"].startswith(' "" is invalid: patch: Invalid value: ')
    assert reply.body["message"].endswith('strict decoding error: unknown field "alien"')
    reply = await client.send_patch(f"{CONFIG_MAPS}/one", {"alien": 1}, content_type)
    assert (reply.status, warnings(reply)) == (200, ['unknown field "alien"'])


@pytest.mark.parametrize(
    ("validation", "status", "expected"),
    [
        ("", 201, ['duplicate field "data.a"', 'unknown field "alien"']),
        ("Warn", 201, ['duplicate field "data.a"', 'unknown field "alien"']),
        ("Strict", 400, []),
        ("Ignore", 201, []),
    ],
)
async def test_repeated_fields(client: Client, validation: str, status: int, expected: list[str]) -> None:
    body = '{"metadata": {"name": "one"}, "data": {"a": "1", "a": "2"}, "alien": 1}'
    reply = await client.call(
        "POST", f"{CONFIG_MAPS}?fieldValidation={validation}", data=body, headers={"Content-Type": "application/json"}
    )
    assert (reply.status, warnings(reply)) == (status, expected)
    if status == 400:
        assert reply.body["message"].endswith('strict decoding error: duplicate field "data.a", unknown field "alien"')
    else:
        assert reply.body["data"] == {"a": "2"}


async def test_fields_are_told_in_the_order_of_the_document(client: Client) -> None:
    body = '{"a": 1, "metadata": {"name": "one", "z": 1}, "data": {"b": "1", "b": "2"}, "c": 1, "a": {"x": 1, "x": 2}}'
    reply = await client.call(
        "POST", f"{CONFIG_MAPS}?fieldValidation=Strict", data=body, headers={"Content-Type": "application/json"}
    )
    assert reply.body["message"].endswith(
        'strict decoding error: unknown field "a", unknown field "metadata.z", '
        'duplicate field "data.b", unknown field "c"'
    )


async def test_unknown_fields_are_told_in_the_order_of_the_document(client: Client) -> None:
    body = '{"a": 1, "data": {}, "metadata": {"name": "one", "z": 1}, "c": 1}'
    reply = await client.call("POST", CONFIG_MAPS, data=body, headers={"Content-Type": "application/json"})
    assert (reply.status, warnings(reply)) == (
        201,
        ['unknown field "a"', 'unknown field "metadata.z"', 'unknown field "c"'],
    )


# ------------------------------------------------------------------------------------------ YAML

REPEATED = """
apiVersion: example.com/v1
kind: Kex
metadata:
  name: one
spec:
  foo: 1
  foo: 2
  list:
  - {a: 1, a: 2}
"""
LINES = ['line 8: key "foo" already set in map', 'line 10: key "a" already set in map']


@pytest.mark.parametrize(
    ("validation", "status", "expected"),
    [
        ("", 201, LINES),
        ("Warn", 201, LINES),
        ("Strict", 400, []),
        ("Ignore", 201, []),
    ],
)
async def test_repeated_fields_of_applied_configurations(
    client: Client,
    kexes: str,
    validation: str,
    status: int,
    expected: list[str],
) -> None:
    reply = await client.call(
        "PATCH",
        f"{kexes}/one?fieldManager=me&fieldValidation={validation}",
        data=REPEATED,
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
    assert (reply.status, warnings(reply)) == (status, expected)
    if validation == "Strict":
        assert reply.body["message"] == (
            "error strict decoding YAML: error converting YAML to JSON: "
            "yaml: unmarshal errors:\n  " + "\n  ".join(LINES)
        )
        assert reply.body["reason"] == "BadRequest"


async def test_repeated_fields_in_yaml(client: Client, kexes: str) -> None:
    headers = {"Content-Type": "application/yaml"}
    reply = await client.call("POST", f"{kexes}?fieldValidation=Strict", data=REPEATED, headers=headers, expected=400)
    assert reply.body["message"] == (
        'Kex in version "v1" cannot be handled as a Kex: strict decoding error: '
        "yaml: unmarshal errors:\n  " + "\n  ".join(LINES)
    )
    reply = await client.call("POST", f"{kexes}?fieldValidation=Warn", data=REPEATED, headers=headers)
    assert (reply.status, warnings(reply)) == (201, LINES)


TABBED = """
{
\t"apiVersion": "example.com/v1",
\t"kind": "Kex",
\t"metadata": {"name": "one"},
\t"spec": {
\t\t"foo": 1,
\t\t"foo": 2
\t}
}
"""


FLOW = """
{
\tapiVersion: example.com/v1,  # no JSON at all
\tkind: 'Kex',
\t"metadata": {name: one},
\tspec: {
\t\tfoo: [1,\t2],
\t},
}
"""


@pytest.mark.parametrize(
    ("data", "spec", "expected"),
    [
        (TABBED, {"foo": 2}, ['line 8: key "foo" already set in map']),
        (FLOW, {"foo": [1, 2]}, []),
    ],
)
@pytest.mark.parametrize(
    ("method", "path", "content_type"),
    [
        ("PATCH", "/one", "application/apply-patch+yaml"),
        ("POST", "", "application/yaml"),
    ],
)
async def test_json_and_flows_can_be_sent_as_yaml_with_tabs(
    client: Client,
    kexes: str,
    method: str,
    path: str,
    content_type: str,
    data: str,
    spec: Any,
    expected: list[str],
) -> None:
    """YAML of its own allows no tabs, but JSON does."""
    query = "fieldManager=me&fieldValidation=Warn"
    reply = await client.call(method, f"{kexes}{path}?{query}", data=data, headers={"Content-Type": content_type})
    assert (reply.status, reply.body["spec"]) == (201, spec)
    assert warnings(reply) == expected


@pytest.mark.parametrize("body", ["a: [", "*x", "", "&a [*a]", "? [a]\n: 1", "a: 2000-99-99"])
async def test_strict_validation_of_broken_yaml(client: Client, kexes: str, body: str) -> None:
    for method, path, kind in (("PATCH", f"{kexes}/one", "apply-patch+yaml"), ("POST", kexes, "yaml")):
        await client.call(
            method,
            f"{path}?fieldManager=me&fieldValidation=Strict",
            data=body,
            headers={"Content-Type": f"application/{kind}"},
            expected=400,
        )


# ------------------------------------------------------------------------------------------ embedded objects

EMBEDDING = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {
                "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
                "spec": {"type": "object"},
            },
        },
        "templates": {
            "type": "array",
            "items": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    },
}
INNER = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}, "alien": 1}}


async def test_unknown_fields_of_embedded_metadata(client: Client) -> None:
    await client.create(CRDS, make_definition(spec=EMBEDDING))
    spec = {"template": {**INNER, "spec": {"more": 1}}, "templates": [INNER, INNER], "free": 1}
    kex = make_kex(metadata={"alien": 1}, spec=spec)
    unknown = [
        f'unknown field "{path}"'
        for path in (
            "metadata.alien",
            "spec.template.spec.more",
            "spec.template.metadata.alien",
            "spec.templates[0].metadata.alien",
            "spec.templates[1].metadata.alien",
        )
    ]
    refused = await client.call("POST", f"{KEXES}?fieldValidation=Strict", json=kex, expected=400)
    assert refused.body["message"].endswith("strict decoding error: " + ", ".join(unknown))
    warned = await client.call("POST", KEXES, json=kex)
    assert (warned.status, warnings(warned)) == (201, unknown)
    clean = {**INNER, "metadata": {"name": "x", "labels": {"a": "b"}}}
    assert warned.body["spec"] == {"template": {**clean, "spec": {}}, "templates": [clean, clean], "free": 1}


async def test_unknown_metadata_cannot_be_applied(client: Client) -> None:
    await client.create(CRDS, make_definition(spec=EMBEDDING))
    for kex, path in (
        (make_kex(spec={"template": INNER}), ".spec.template.metadata.alien"),
        (make_kex(metadata={"alien": 1}), ".metadata.alien"),
    ):
        reply = await client.call(
            "PATCH",
            f"{KEXES}/one?fieldManager=me&fieldValidation=Strict",
            data=json.dumps(kex),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        assert f"{path}: field not declared in schema" in reply.body["message"]


async def test_embedded_objects_must_tell_what_they_are(client: Client) -> None:
    await client.create(CRDS, make_definition(spec=EMBEDDING))
    reply = await client.call("POST", KEXES, json=make_kex(spec={"template": {"kind": ""}}))
    assert reply.body["message"] == (
        'Kex.example.com "one" is invalid: [spec.template.apiVersion: Required value: must not be empty, '
        'spec.template.kind: Invalid value: "": must not be empty]'
    )
