"""
Patches that are none, or whose outcome is no object.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.conftest import (
    APPLY,
    CONFIG_MAPS,
    DEPLOYMENTS,
    JSON,
    MERGE,
    STRATEGIC,
    Client,
    make_config_map,
    make_kex,
)

PREFIX = "error decoding patch: "
DEPLOYMENT = {
    "metadata": {"name": "one"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}


async def test_accepted_types_are_listed_in_their_order(client: Client, kexes: str) -> None:
    prefix = "the body of the request was in an unknown format - accepted media types include: "
    for path, expected in ((CONFIG_MAPS, [JSON, MERGE, STRATEGIC, APPLY]), (kexes, [JSON, MERGE, APPLY])):
        reply = await client.send_patch(f"{path}/one", {}, "text/plain")
        assert (reply.status, reply.body["message"]) == (415, prefix + ", ".join(expected))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a":}',
        "nope",
        "{a:1}",
        "[1 2]",
        '["\\x"]',
        "1.x",
        "{} x",
        "'a'",
        "[" * 20_000,
    ],
    ids=range(11),
)
async def test_broken_json_is_bad(client: Client, text: str) -> None:
    for content_type in (MERGE, JSON, STRATEGIC):
        reply = await client.call("PATCH", f"{CONFIG_MAPS}/one", data=text, headers={"Content-Type": content_type})
        assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
        assert reply.body["message"].startswith(PREFIX)
        assert reply.body["message"] != PREFIX


@pytest.mark.parametrize(
    ("content_type", "patch", "why"),
    [
        (MERGE, [1], "Expected `object`, got `array`"),
        (MERGE, None, "Expected `object`, got `null`"),
        (STRATEGIC, "x", "Expected `object`, got `str`"),
        (JSON, {}, "Expected `array`, got `object`"),
        (JSON, [1], "Expected `object | null`, got `int` - at `$[0]`"),
        (JSON, [{"op": "add", "path": 5}], "Expected `str | null`, got `int` - at `$[0].path`"),
        (JSON, [{"op": "copy", "path": "/a", "from": []}], "Expected `str | null`, got `array` - at `$[0].from`"),
    ],
)
async def test_what_is_no_patch_is_bad(client: Client, content_type: str, patch: Any, why: str) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    reply = await client.send_patch(f"{CONFIG_MAPS}/one", patch, content_type)
    assert (reply.status, reply.body["message"]) == (400, PREFIX + why)


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (
            {"metadata": {"labels": "x"}},
            "json: cannot unmarshal string into the field metadata.labels of type map[string]string",
        ),
        ({"metadata": {"name": 5}}, "json: cannot unmarshal number into the field metadata.name of type string"),
        ({"spec": "x"}, "json: cannot unmarshal string into the field spec of type v1.DeploymentSpec"),
        ({"spec": {"replicas": "x"}}, "json: cannot unmarshal string into the field spec.replicas of type int32"),
        (
            {"spec": {"template": {"spec": {"hostNetwork": 1}}}},
            "json: cannot unmarshal number into the field spec.template.spec.hostNetwork of type bool",
        ),
    ],
)
async def test_patches_are_to_blame_for_mistyped_outcomes(
    client: Client,
    patch: Any,
    why: str,
    content_type: str,
) -> None:
    await client.create(DEPLOYMENTS, DEPLOYMENT)
    reply = await client.send_patch(f"{DEPLOYMENTS}/one", patch, content_type)
    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    [cause] = reply.body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "patch")
    assert reply.body["message"] == f' "" is invalid: patch: {cause["message"]}'
    shown, _, rest = cause["message"].removeprefix("Invalid value: ").rpartition(f": {why}")
    assert rest == ""
    assert json.loads(json.loads(shown))["metadata"]["uid"]


async def test_metadata_of_custom_kinds_are_decoded_alone(client: Client, kexes: str) -> None:
    why = "json: cannot unmarshal string into the field labels of type map[string]string"
    reply = await client.call("POST", kexes, json=make_kex(metadata={"labels": "x"}))
    assert (reply.status, reply.body["message"]) == (400, f'Kex in version "v1" cannot be handled as a Kex: {why}')
    await client.create(kexes, make_kex())
    reply = await client.send_patch(f"{kexes}/one", {"metadata": {"labels": "x"}}, expected=422)
    assert reply.body["message"].endswith(f": {why}")
