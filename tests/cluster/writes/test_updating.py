from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.conftest import (
    CONFIG_MAPS,
    CRDS,
    JSON,
    STRATEGIC,
    Client,
    causes,
    make_config_map,
    make_definition,
    make_kex,
)


async def test_updates_replace_everything_but_the_status(client: Client, kexes: str) -> None:
    old = await client.create(kexes, make_kex(spec={"a": 1}, metadata={"labels": {"a": "b"}}))
    await client.patch(f"{kexes}/one/status", {"status": {"s": 1}})
    fresh = await client.get(f"{kexes}/one")
    new = make_kex(spec={"b": 2}, status={"t": 2}, metadata={"resourceVersion": fresh["metadata"]["resourceVersion"]})
    reply = await client.call("PUT", f"{kexes}/one", json=new, expected=200)
    assert reply.body["spec"] == {"b": 2}
    assert reply.body["status"] == {"s": 1}
    assert reply.body["metadata"]["uid"] == old["metadata"]["uid"]
    assert reply.body["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]
    assert "labels" not in reply.body["metadata"]


async def test_updates_of_the_status_take_only_the_status(client: Client, kexes: str) -> None:
    old = await client.create(kexes, make_kex(spec={"a": 1}))
    new = make_kex(
        spec={"b": 2},
        status={"t": 2},
        metadata={"resourceVersion": old["metadata"]["resourceVersion"], "labels": {"a": "b"}},
    )
    reply = await client.call("PUT", f"{kexes}/one/status", json=new, expected=200)
    assert reply.body["spec"] == {"a": 1}
    assert reply.body["status"] == {"t": 2}
    assert "labels" not in reply.body["metadata"]
    assert reply.body["metadata"]["generation"] == 1


POD_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize(
    ("path", "spec", "labels", "owners"),
    [
        (
            "/apis/apps/v1/namespaces/default/deployments",
            {"selector": {"matchLabels": {"a": "b"}}, "template": POD_TEMPLATE},
            False,
            True,
        ),
        (
            "/apis/apps/v1/namespaces/default/statefulsets",
            {"selector": {"matchLabels": {"a": "b"}}, "template": POD_TEMPLATE, "serviceName": "x"},
            True,
            True,
        ),
        ("/api/v1/namespaces/default/pods", POD_TEMPLATE["spec"], True, False),
        ("/api/v1/namespaces/default/services", {"ports": [{"port": 80}]}, True, True),
        ("/api/v1/nodes", {}, True, True),
    ],
)
@pytest.mark.parametrize("method", ["PATCH", "PUT"])
async def test_metadata_come_with_the_status_of_builtin_kinds(
    client: Client,
    path: str,
    spec: Any,
    labels: bool,
    owners: bool,
    method: str,
) -> None:
    old = await client.create(path, {"metadata": {"name": "one"}, "spec": spec})
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    metadata = {
        "labels": {"l": "1"},
        "annotations": {"a": "1"},
        "finalizers": ["example.com/f"],
        "ownerReferences": [owner],
    }
    if method == "PATCH":
        new = await client.patch(f"{path}/one/status", {"metadata": metadata, "spec": {"x": 1}})
    else:
        new = {**old, "metadata": {**old["metadata"], **metadata}}
        new = (await client.call("PUT", f"{path}/one/status", json=new)).body
    assert new["metadata"]["annotations"] == {"a": "1"}
    assert new["metadata"]["finalizers"] == ["example.com/f"]
    assert ("labels" in new["metadata"]) is labels
    assert ("ownerReferences" in new["metadata"]) is owners
    assert new["metadata"].get("generation") == old["metadata"].get("generation")
    assert new["spec"] == old["spec"]


@pytest.mark.parametrize("path", [CRDS, "/apis/storage.k8s.io/v1/volumeattachments"])
async def test_metadata_of_some_builtin_kinds_do_not_come_with_the_status(client: Client, path: str) -> None:
    made = await client.create(
        path,
        make_definition()
        if path == CRDS
        else {
            "metadata": {"name": "one"},
            "spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p"}},
        },
    )
    new = await client.patch(
        f"{path}/{made['metadata']['name']}/status", {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}}
    )
    assert not {"labels", "annotations"} & set(new["metadata"])


async def test_stale_updates_are_conflicts(client: Client, kexes: str) -> None:
    old = await client.create(kexes, make_kex())
    await client.patch(f"{kexes}/one", {"spec": {"a": 1}})
    for path in (f"{kexes}/one", f"{kexes}/one/status"):
        reply = await client.call("PUT", path, json={**old, "spec": {"b": 1}}, expected=409)
        assert reply.body["reason"] == "Conflict"
        assert reply.body["message"] == (
            'Operation cannot be fulfilled on kexes.example.com "one": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
        assert reply.body["details"] == {"name": "one", "group": "example.com", "kind": "kexes"}
        stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}}
        assert (await client.send_patch(path, stale)).status == 409


async def test_another_object_of_the_same_name_is_a_conflict(client: Client, kexes: str) -> None:
    await client.create(kexes, make_kex())
    other = make_kex(metadata={"uid": "other"})
    reply = await client.call("PUT", f"{kexes}/one", json=other, expected=409)
    assert "Precondition failed: UID in precondition: other" in reply.body["message"]
    reply = await client.send_patch(f"{kexes}/one", {"metadata": {"uid": "other"}}, expected=422)
    assert causes(reply) == [("metadata.uid", "FieldValueInvalid")]
    assert reply.body["message"] == (
        'Kex.example.com "one" is invalid: metadata.uid: Invalid value: "other": field is immutable'
    )


async def test_custom_objects_are_updated_only_with_versions(client: Client, kexes: str) -> None:
    await client.create(kexes, make_kex())
    reply = await client.call("PUT", f"{kexes}/one", json=make_kex())
    assert causes(reply) == [("metadata.resourceVersion", "FieldValueInvalid")]
    assert "must be specified for an update" in reply.body["message"]


async def test_the_version_zero_is_none(client: Client, kexes: str) -> None:
    """The storage compares numbers, and no version is zero: objects of built-in kinds are written unconditionally."""
    zero: dict[str, Any] = {"metadata": {"resourceVersion": "0"}}
    made = await client.create(CONFIG_MAPS, make_config_map(**zero))
    assert made["metadata"]["resourceVersion"] != "0"
    reply = await client.call("PUT", f"{CONFIG_MAPS}/one", json=make_config_map(data={"a": "b"}, **zero))
    assert (reply.status, reply.body["data"]) == (200, {"a": "b"})
    assert (await client.patch(f"{CONFIG_MAPS}/one", {**zero, "data": {"a": "c"}}))["data"] == {"a": "c"}

    await client.create(kexes, make_kex(**zero))
    update = await client.call("PUT", f"{kexes}/one", json=make_kex(**zero))
    for reply in (
        update,
        await client.send_patch(f"{kexes}/one", zero),
        await client.send_patch(f"{kexes}/one", {"metadata": {"resourceVersion": None}}),
    ):
        assert reply.status == 422
        assert reply.body["message"] == (
            'Kex.example.com "one" is invalid: metadata.resourceVersion: '
            "Invalid value: 0x0: must be specified for an update"
        )


async def test_the_names_in_the_body_and_in_the_url_must_match(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    reply = await client.call("PUT", f"{CONFIG_MAPS}/one", json=make_config_map("two"), expected=400)
    assert reply.body["message"] == "the name of the object (two) does not match the name on the URL (one)"
    reply = await client.send_patch(f"{CONFIG_MAPS}/one", {"metadata": {"name": "two"}})
    assert (reply.status, reply.body["message"]) == (
        400,
        "the name of the object (two) does not match the name on the URL (one)",
    )
    reply = await client.send_patch(f"{CONFIG_MAPS}/one", {"metadata": {"namespace": "x"}})
    assert (reply.status, reply.body["message"]) == (
        400,
        "the namespace of the object (x) does not match the namespace on the URL (default)",
    )


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "GET"])
async def test_absent_objects_are_not_found(client: Client, kexes: str, method: str) -> None:
    body = {"json": make_kex(metadata={"resourceVersion": "1"})} if method == "PUT" else {}
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
    data = {"data": "{}"} if method == "PATCH" else {}
    reply = await client.call(method, f"{kexes}/one", **body, **data, headers=headers, expected=404)
    assert reply.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": 404,
        "reason": "NotFound",
        "message": 'kexes.example.com "one" not found',
        "details": {"name": "one", "group": "example.com", "kind": "kexes"},
    }


@pytest.mark.parametrize("version", [None, "", "5"])
async def test_updates_create_objects_of_some_builtin_kinds(client: Client, version: str | None) -> None:
    """Such as leases: their holders need no other request."""
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/one"
    lease = {"metadata": {"name": "one", "resourceVersion": version}, "spec": {"holderIdentity": "me"}}
    made = (await client.call("PUT", path, json=lease, expected=201)).body
    assert (made["metadata"]["namespace"], made["spec"]) == ("default", {"holderIdentity": "me"})
    assert await client.get(path) == made
    assert (await client.call("PUT", path, json=made, expected=200)).body == made
    await client.delete(path)
    reply = await client.call("PUT", path, json={"metadata": {"name": "one", "uid": "x"}}, expected=409)
    assert "UID in precondition: x, UID in object meta: " in reply.body["message"]
    await client.call("PUT", f"{CONFIG_MAPS}/one", json=make_config_map(), expected=404)


@pytest.mark.parametrize(
    ("path", "patch", "generation"),
    [
        ("", {"spec": {"a": 2}}, 2),
        ("", {"spec": {"a": 1}}, 1),
        ("", {"metadata": {"labels": {"a": "b"}}}, 1),
        ("", {"metadata": {"generation": 50}}, 1),
        ("", {"status": {"a": 1}}, 1),
        ("/status", {"status": {"a": 1}, "spec": {"a": 2}}, 1),
        ("", {"other": "pruned"}, 1),
    ],
)
async def test_only_changes_of_the_spec_make_generations(
    client: Client,
    kexes: str,
    path: str,
    patch: Any,
    generation: int,
) -> None:
    await client.create(kexes, make_kex(spec={"a": 1}))
    obj = await client.patch(f"{kexes}/one{path}", patch)
    assert obj["metadata"]["generation"] == generation


async def test_without_the_subresource_the_status_is_like_the_rest(client: Client) -> None:
    definition = make_definition(subresources={})
    await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    kexes = "/apis/example.com/v1/namespaces/default/kexes"
    obj = await client.create(kexes, make_kex(status={"a": 1}))
    assert obj["status"] == {"a": 1}
    obj = await client.patch(f"{kexes}/one", {"status": {"a": 2}})
    assert obj["status"] == {"a": 2}
    assert obj["metadata"]["generation"] == 2
    reply = await client.send_patch(f"{kexes}/one/status", {"status": {"a": 3}}, expected=404)
    assert reply.body["message"] == "the server could not find the requested resource"


async def test_changes_of_nothing_are_not_written(client: Client, kexes: str) -> None:
    old = await client.create(kexes, make_kex(spec={"a": 1}))
    assert await client.patch(f"{kexes}/one", {"spec": {"a": 1, "b": None}}) == old
    assert (await client.get(kexes))["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]


async def test_json_patches_are_guarded_by_tests(client: Client, kexes: str) -> None:
    await client.create(kexes, make_kex(metadata={"finalizers": ["a/b", "c/d"]}))
    guarded = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": "a/b"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    obj = await client.patch(f"{kexes}/one", guarded, JSON)
    assert obj["metadata"]["finalizers"] == ["c/d"]
    reply = await client.send_patch(f"{kexes}/one", guarded, JSON, expected=422)
    assert reply.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": "the server rejected our request due to an error in our request",
        "details": {},
    }


async def test_json_patches_can_be_guarded_by_the_version(client: Client, kexes: str) -> None:
    old = await client.create(kexes, make_kex())
    version = old["metadata"]["resourceVersion"]
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    await client.patch(f"{kexes}/one", [guard, {"op": "add", "path": "/spec/a", "value": 1}], JSON)
    await client.send_patch(f"{kexes}/one", [guard, {"op": "add", "path": "/spec/a", "value": 2}], JSON, expected=422)
    replacement = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/spec/a", "value": 2},
    ]
    assert (await client.send_patch(f"{kexes}/one", replacement, JSON)).status == 409


@pytest.mark.parametrize("content_type", [STRATEGIC, "application/json", "text/plain"])
async def test_unsupported_patches_are_refused(client: Client, kexes: str, content_type: str) -> None:
    await client.create(kexes, make_kex())
    reply = await client.send_patch(f"{kexes}/one", {"spec": {"a": 1}}, content_type, expected=415)
    assert reply.body["kind"] == "Status"
    assert reply.body["message"]


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"metadata": {"labels": {"a": 5}}}, 422),
        ({"metadata": "x"}, 422),
        ({"apiVersion": "example.com/v9"}, 400),
        ({"kind": "Other"}, 400),
    ],
)
async def test_patches_into_something_else_are_bad(client: Client, kexes: str, patch: Any, code: int) -> None:
    await client.create(kexes, make_kex())
    assert (await client.send_patch(f"{kexes}/one", patch)).status == code


@pytest.mark.parametrize("value", [5, None, "x", []])
async def test_patches_into_no_object_at_all_are_unprocessable(client: Client, kexes: str, value: Any) -> None:
    await client.create(kexes, make_kex())
    await client.send_patch(f"{kexes}/one", [{"op": "replace", "path": "", "value": value}], JSON, expected=422)
    assert await client.get(f"{kexes}/one")


async def test_immutable_config_maps_and_types_of_secrets(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map(data={"a": "b"}, immutable=True))
    reply = await client.send_patch(f"{CONFIG_MAPS}/one", {"data": {"a": "c"}})
    assert causes(reply) == [("data", "FieldValueForbidden")]
    await client.patch(f"{CONFIG_MAPS}/one", {"metadata": {"labels": {"x": "y"}}})
    secrets = "/api/v1/namespaces/default/secrets"
    await client.create(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})
    assert causes(await client.send_patch(f"{secrets}/s", {"type": "Other"})) == [("type", "FieldValueInvalid")]


async def test_claims_can_change_only_in_size_when_they_are_bound(client: Client) -> None:
    """As in "Expanding Persistent Volumes Claims", and the messages of the server."""
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1G"}}},
    }
    created = await client.create(claims, claim)
    assert created["status"] == {"phase": "Pending"}
    bigger = {"spec": {"resources": {"requests": {"storage": "2G"}}}}
    for change in (bigger, {"spec": {"resources": {"requests": {"storage": "1M"}}}}):
        reply = await client.send_patch(f"{claims}/c", change)
        assert causes(reply) == [("spec", "FieldValueForbidden")]
        assert reply.body["message"].startswith(
            'PersistentVolumeClaim "c" is invalid: spec: Forbidden: spec is immutable after creation except '
            "resources.requests and volumeAttributesClassName for bound claims\n"
        )
    await client.patch(f"{claims}/c", {"spec": {"volumeName": "v", "storageClassName": "fast"}})
    await client.patch(f"{claims}/c/status", {"status": {"phase": "Bound", "capacity": {"storage": "1G"}}})
    assert (await client.patch(f"{claims}/c", bigger))["spec"]["resources"]["requests"]["storage"] == "2G"
    for name, value in (("accessModes", ["ReadOnlyMany"]), ("volumeName", "w"), ("storageClassName", "slow")):
        reply = await client.send_patch(f"{claims}/c", {"spec": {name: value}})
        assert causes(reply) == [("spec", "FieldValueForbidden")]
