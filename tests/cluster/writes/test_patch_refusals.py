"""
Patches that are none, or whose outcome is no object: in the words of kube-apiserver, which are those of Go.
"""
from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.conftest import CONFIG_MAPS, JSON, MERGE, STRATEGIC, Client, make_config_map, make_kex

APPLY = "application/apply-patch+yaml"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYMENT = {"metadata": {"name": "one"}, "spec": {
    "selector": {"matchLabels": {"a": "b"}},
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}


async def test_accepted_types_are_listed_in_their_order(client: Client, kexes: str) -> None:
    prefix = "the body of the request was in an unknown format - accepted media types include: "
    for path, expected in ((CONFIG_MAPS, [JSON, MERGE, STRATEGIC, APPLY]), (kexes, [JSON, MERGE, APPLY])):
        reply = await client.send_patch(f"{path}/one", {}, "text/plain")
        assert (reply.status, reply.body["message"]) == (415, prefix + ", ".join(expected))


@pytest.mark.parametrize("text", [
    "", "{", '{"a":}', "nope", "{a:1}", "[1 2]", '["\\x"]', "1.x", "{} x", "'a'", "[" * 20_000,
], ids=range(11))
async def test_broken_json_is_bad(client: Client, text: str) -> None:
    for content_type, prefix in ((MERGE, "error decoding patch: "), (JSON, "error decoding patch: "), (STRATEGIC, "")):
        reply = await client.call("PATCH", f"{CONFIG_MAPS}/one", data=text, headers={"Content-Type": content_type})
        assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
        assert reply.body["message"].startswith(prefix)
        assert reply.body["message"] != prefix


@pytest.mark.parametrize(("content_type", "patch", "why"), [
    (MERGE, [1], "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
    (MERGE, None, "Invalid JSON Patch"),
    (STRATEGIC, "x", "json: cannot unmarshal string into Go value of type map[string]interface {}"),
    (JSON, {}, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
    (JSON, [1], "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
    (JSON, [{"op": "add", "path": 5}],
     "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string"),
])
async def test_what_is_no_patch_is_bad(client: Client, content_type: str, patch: Any, why: str) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    reply = await client.send_patch(f"{CONFIG_MAPS}/one", patch, content_type)
    assert (reply.status, reply.body["message"]) == (400, why)


@pytest.mark.parametrize(("patch", "in_text", "converted"), [
    ({"metadata": {"labels": "x"}},
     "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type map[string]string",
     "cannot restore map from string"),
    ({"metadata": {"name": 5}},
     "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
     "cannot convert int64 to string"),
    ({"spec": "x"}, "json: cannot unmarshal string into Go struct field Deployment.spec of type v1.DeploymentSpec",
     "cannot restore struct from: string"),
    ({"spec": {"replicas": "x"}},
     "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
     "unrecognized type: int32"),
    ({"spec": {"template": {"spec": {"hostNetwork": 1}}}},
     "json: cannot unmarshal number into Go struct field PodSpec.spec.template.spec.hostNetwork of type bool",
     "unrecognized type: bool"),
])
async def test_patches_are_to_blame_for_mistyped_outcomes(
        client: Client, patch: Any, in_text: str, converted: str,
) -> None:
    await client.create(DEPLOYMENTS, DEPLOYMENT)
    reply = await client.send_patch(f"{DEPLOYMENTS}/one", patch)
    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    [cause] = reply.body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "patch")
    assert reply.body["message"] == f' "" is invalid: patch: {cause["message"]}'
    shown, _, why = cause["message"].removeprefix("Invalid value: ").rpartition(f": {in_text}")
    assert why == ""
    assert json.loads(json.loads(shown))["metadata"]["uid"]

    reply = await client.send_patch(f"{DEPLOYMENTS}/one", patch, STRATEGIC)
    assert reply.status == 422
    assert reply.body["message"].endswith(f': {converted}')
    assert reply.body["message"].startswith(' "" is invalid: patch: Invalid value: "map[')


async def test_strategic_patches_are_shown_as_by_go(client: Client) -> None:
    await client.create(DEPLOYMENTS, DEPLOYMENT)
    patch = {"spec": {"replicas": "x", "paused": True, "template": None}, "a": [1, 2.5]}
    reply = await client.send_patch(f"{DEPLOYMENTS}/one", patch, STRATEGIC)
    assert reply.body["message"] == (
        ' "" is invalid: patch: Invalid value: "map[a:[1 2.5] spec:map[paused:true replicas:x template:<nil>]]": '
        "unrecognized type: int32")


async def test_metadata_of_custom_kinds_are_decoded_alone(client: Client, kexes: str) -> None:
    why = "json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string"
    reply = await client.call("POST", kexes, json=make_kex(metadata={"labels": "x"}))
    assert (reply.status, reply.body["message"]) == (400, f'Kex in version "v1" cannot be handled as a Kex: {why}')
    await client.create(kexes, make_kex())
    reply = await client.send_patch(f"{kexes}/one", {"metadata": {"labels": "x"}})
    assert reply.status == 422
    assert reply.body["message"].endswith(f": {why}")
