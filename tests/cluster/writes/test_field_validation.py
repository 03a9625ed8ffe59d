"""
What is not known, or is there twice: warned of, refused, or ignored, as the client wants it.
"""
from __future__ import annotations

import json
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import CONFIG_MAPS, MERGE, STRATEGIC, Client, Reply, make_config_map, make_definition

PODS = "/api/v1/namespaces/default/pods"
POD: dict[str, Any] = {"metadata": {"name": "p", "alien": 1},
                       "spec": {"containers": [{"name": "c", "image": "x", "color": "red"}], "alien": 1}}
UNKNOWN = ['unknown field "metadata.alien"', 'unknown field "spec.containers[0].color"', 'unknown field "spec.alien"']


def warnings(reply: Reply) -> list[str]:
    text = reply.headers.get("Warning", "")
    return [json.loads(part.removeprefix("299 - ")) for part in text.split(", ") if part]


@pytest.mark.parametrize("query", ["", "?fieldValidation=Warn"])
async def test_unknown_fields_of_builtin_kinds_are_warned_of(client: Client, query: str) -> None:
    reply = await client.call("POST", f"{PODS}{query}", json=POD)
    assert (reply.status, warnings(reply)) == (201, UNKNOWN)
    assert "alien" not in reply.body["spec"]


async def test_unknown_fields_of_builtin_kinds_are_ignored_on_demand(client: Client) -> None:
    reply = await client.call("POST", f"{PODS}?fieldValidation=Ignore", json=POD)
    assert (reply.status, warnings(reply)) == (201, [])


async def test_unknown_fields_of_builtin_kinds_are_refused_on_demand(client: Client) -> None:
    reply = await client.call("POST", f"{PODS}?fieldValidation=Strict", json=POD)
    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
    assert reply.body["message"] == ('Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
                                     + ", ".join(UNKNOWN))
    assert (await client.call("GET", f"{PODS}/p")).status == 404


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_patches_are_to_blame_for_what_they_add(client: Client, content_type: str) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    reply = await client.send_patch(f"{CONFIG_MAPS}/one?fieldValidation=Strict", {"alien": 1}, content_type)
    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    assert reply.body["message"].startswith(' "" is invalid: patch: Invalid value: ')
    assert reply.body["message"].endswith('strict decoding error: unknown field "alien"')
    reply = await client.send_patch(f"{CONFIG_MAPS}/one", {"alien": 1}, content_type)
    assert (reply.status, warnings(reply)) == (200, ['unknown field "alien"'])


@pytest.mark.parametrize(("validation", "status", "expected"), [
    ("Warn", 201, ['duplicate field "data.a"', 'unknown field "alien"']), ("Strict", 400, []), ("Ignore", 201, []),
])
async def test_repeated_fields(client: Client, validation: str, status: int, expected: list[str]) -> None:
    body = '{"metadata": {"name": "one"}, "data": {"a": "1", "a": "2"}, "alien": 1}'
    reply = await client.call("POST", f"{CONFIG_MAPS}?fieldValidation={validation}", data=body,
                              headers={"Content-Type": "application/json"})
    assert (reply.status, warnings(reply)) == (status, expected)
    if status == 400:
        assert reply.body["message"].endswith(
            'strict decoding error: duplicate field "data.a", unknown field "alien"')
    else:
        assert reply.body["data"] == {"a": "2"}


async def test_custom_kinds_are_validated_the_same(client: Client, cluster: LocalCluster) -> None:
    cluster.apply(make_definition(spec={"type": "object", "properties": {"size": {"type": "integer"}}}))
    path = "/apis/example.com/v1/namespaces/default/kexes"
    body = '{"apiVersion": "example.com/v1", "kind": "Kex", "metadata": {"name": "x", "y": 1}, "spec": {"color": 1}}'
    reply = await client.call("POST", f"{path}?fieldValidation=Strict", data=body,
                              headers={"Content-Type": "application/json"})
    assert reply.status == 400
    assert reply.body["message"] == ('Kex in version "v1" cannot be handled as a Kex: strict decoding error: '
                                     'unknown field "metadata.y", unknown field "spec.color"')
