from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.conftest import CONFIG_MAPS, JSON, PODS, Client, causes, make_config_map, make_kex


async def test_deleted_objects_are_gone(client: Client, kexes: str) -> None:
    obj = await client.create(kexes, make_kex())
    answer = await client.delete(f"{kexes}/one")
    assert answer == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "one", "group": "example.com", "kind": "kexes", "uid": obj["metadata"]["uid"]},
    }
    assert (await client.call("GET", f"{kexes}/one")).status == 404


async def test_finalizers_hold_the_object(client: Client, kexes: str) -> None:
    await client.create(kexes, make_kex(metadata={"finalizers": ["a/b", "c/d"]}))
    marked = await client.delete(f"{kexes}/one")
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert marked["metadata"]["generation"] == 2
    reply = await client.call("POST", kexes, json=make_kex(), expected=409)
    assert reply.body["message"] == 'object is being deleted: kexes.example.com "one" already exists'

    again = await client.delete(f"{kexes}/one")
    assert again == marked

    less = await client.patch(f"{kexes}/one", [{"op": "remove", "path": "/metadata/finalizers/0"}], JSON)
    assert less["metadata"]["finalizers"] == ["c/d"]
    last = await client.patch(f"{kexes}/one", {"metadata": {"finalizers": None}})
    assert "finalizers" not in last["metadata"]
    assert last["metadata"]["resourceVersion"] == less["metadata"]["resourceVersion"]  # as the real server answers
    assert (await client.call("GET", f"{kexes}/one")).status == 404


async def test_the_deletion_cannot_be_undone_or_prolonged(client: Client, kexes: str) -> None:
    await client.create(kexes, make_kex(metadata={"finalizers": ["a/b"]}))
    marked = await client.delete(f"{kexes}/one")
    reply = await client.send_patch(f"{kexes}/one", {"metadata": {"finalizers": ["a/b", "x/y"]}})
    assert causes(reply) == [("metadata.finalizers", "FieldValueForbidden")]
    assert reply.body["message"] == (
        'Kex.example.com "one" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the '
        'object is being deleted, found new finalizers []string{"x/y"}'
    )
    kept = await client.patch(f"{kexes}/one", {"metadata": {"deletionTimestamp": None}, "spec": {"a": 1}})
    assert kept["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]


async def test_preconditions(client: Client, kexes: str) -> None:
    obj = await client.create(kexes, make_kex())
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        reply = await client.call("DELETE", f"{kexes}/one", json={"preconditions": wrong}, expected=409)
        assert "Precondition failed: " in reply.body["message"]
    right = {key: obj["metadata"][key] for key in ("uid", "resourceVersion")}
    await client.delete(f"{kexes}/one", preconditions=right)


async def test_wrong_options_are_bad(client: Client, kexes: str) -> None:
    await client.create(kexes, make_kex())
    for wrong in ({"propagationPolicy": "Sideways"}, {"preconditions": "x"}, {"gracePeriodSeconds": "soon"}):
        assert (await client.call("DELETE", f"{kexes}/one", json=wrong)).status in (400, 422)
    assert (await client.call("DELETE", f"{kexes}/one?propagationPolicy=Sideways")).status == 422
    assert (await client.call("DELETE", f"{kexes}/one?gracePeriodSeconds=0")).status == 200


async def test_options_in_the_query_are_ignored_if_there_is_a_body(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    await client.call("DELETE", f"{CONFIG_MAPS}/one?dryRun=All", json={"dryRun": ["All"]}, expected=200)
    await client.call("GET", f"{CONFIG_MAPS}/one", expected=200)
    body = {"propagationPolicy": "Background"}
    await client.call("DELETE", f"{CONFIG_MAPS}/one?dryRun=All", json=body, expected=200)
    await client.call("GET", f"{CONFIG_MAPS}/one", expected=404)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set',
        ),
        ({"dryRun": ["Some"]}, 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
    ],
)
async def test_options_that_do_not_fit_are_refused(client: Client, options: dict[str, Any], why: str) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    pod = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "main", "image": "main"}]}}
    await client.create(PODS, pod)
    replies = [
        await client.call("DELETE", f"{CONFIG_MAPS}/one", json=options),
        await client.call("DELETE", CONFIG_MAPS, json=options),
        await client.call(
            "POST",
            f"{PODS}/one/eviction",
            json={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}, "deleteOptions": options},
        ),
    ]
    for reply in replies:
        assert (reply.status, reply.body["message"]) == (422, f'DeleteOptions.meta.k8s.io "" is invalid: {why}')
    await client.get(f"{CONFIG_MAPS}/one")
    await client.get(f"{PODS}/one")


async def test_what_becomes_of_dependents_can_be_changed_until_the_object_is_gone(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map(metadata={"finalizers": ["a/b"]}))
    await client.create(CONFIG_MAPS, make_config_map("two", metadata={"ownerReferences": [], "finalizers": ["orphan"]}))
    for policy, finalizer in (("Foreground", ["foregroundDeletion"]), ("Background", []), ("Orphan", ["orphan"])):
        shown = await client.delete(f"{CONFIG_MAPS}/one", propagationPolicy=policy, dryRun=["All"])
        assert shown["metadata"]["finalizers"] == ["a/b", *finalizer]
    marked = await client.delete(f"{CONFIG_MAPS}/one")
    shown = await client.delete(f"{CONFIG_MAPS}/one", propagationPolicy="Foreground", dryRun=["All"])
    assert shown["metadata"]["finalizers"] == ["a/b", "foregroundDeletion"]
    assert shown["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    await client.delete(f"{CONFIG_MAPS}/two", propagationPolicy="Background")
    assert (await client.call("GET", f"{CONFIG_MAPS}/two")).status == 404


async def test_the_old_option_is_answered_when_it_is_not_done_yet(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map(metadata={"finalizers": ["a/b"]}))
    await client.create(CONFIG_MAPS, make_config_map("two"))
    for name, option, status in (("one", False, 202), ("one", True, 200), ("two", False, 200)):
        await client.call("DELETE", f"{CONFIG_MAPS}/{name}", json={"orphanDependents": option}, expected=status)


async def test_collections_are_deleted_by_selectors(client: Client) -> None:
    for name, label in [("a", "x"), ("b", "x"), ("c", "y")]:
        await client.create(CONFIG_MAPS, make_config_map(name, metadata={"labels": {"l": label}}))
    gone = await client.delete(f"{CONFIG_MAPS}?labelSelector=l%3Dx")
    assert gone["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "b"]
    left = await client.get(CONFIG_MAPS)
    assert [item["metadata"]["name"] for item in left["items"]] == ["c"]
