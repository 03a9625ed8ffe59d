"""
Conversion between versions: in v1, the size is a number; in v2, it is a text with a unit.
"""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import CRDS, Client, Obj, causes, connect, make_definition
from tests.cluster.webhooks import Hooks
from tests.cluster.webhooks import respond as admitted
from tests.patience import PATIENCE

V1 = "/apis/example.com/v1/namespaces/default/kexes"
V2 = "/apis/example.com/v2/namespaces/default/kexes"


def convert(review: Obj) -> Obj:
    request = review["request"]
    converted = [convert_one(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
    return respond(review, convertedObjects=converted)


def convert_one(obj: Obj, version: str) -> Obj:
    size = obj["spec"]["size"]
    spec = {"size": int(size.removesuffix("Mi"))} if version == "example.com/v1" else {"size": f"{size}Mi"}
    return {**obj, "apiVersion": version, "spec": {**obj["spec"], **spec}}


def respond(review: Obj, **response: Any) -> Obj:
    return {
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {"uid": review["request"]["uid"], "result": {"status": "Success"}, **response},
    }


def definition(config: Obj, *, storage: str = "v1", versions: tuple[str, ...] = ("v1",)) -> Obj:
    made = make_definition()
    template = made["spec"]["versions"][0]

    def version(name: str, type_: str) -> Obj:
        spec = {"type": "object", "properties": {"size": {"type": type_}, "note": {"type": "string"}}}
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"type": "object", "properties": {"spec": spec, "status": anything}}
        return {**template, "name": name, "storage": name == storage, "schema": {"openAPIV3Schema": schema}}

    made["spec"]["versions"] = [version("v1", "integer"), version("v2", "string")]
    made["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": config, "conversionReviewVersions": list(versions)},
    }
    return made


@pytest.fixture
async def converted(cluster: LocalCluster, hooks: Hooks) -> Hooks:
    """A definition of two versions, the first of which is stored."""
    cluster.apply(definition(hooks.on("/", convert)))
    return hooks


def kex(size: object, name: str = "one", version: str = "v1", **fields: Any) -> Obj:
    return {
        "apiVersion": f"example.com/{version}",
        "kind": "Kex",
        "metadata": {"name": name, **fields},
        "spec": {"size": size},
    }


async def test_objects_are_shown_in_the_requested_version(client: Client, converted: Hooks) -> None:
    created = await client.create(V1, kex(1, labels={"a": "b"}))
    shown = await client.get(f"{V2}/one")
    assert (shown["apiVersion"], shown["spec"]) == ("example.com/v2", {"size": "1Mi"})
    assert shown["metadata"] == created["metadata"]
    ((_, review),) = converted.reviews
    assert (review["apiVersion"], review["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert review["request"]["desiredAPIVersion"] == "example.com/v2"
    del created["metadata"]["resourceVersion"]
    assert review["request"]["objects"] == [created]


async def test_the_same_state_is_converted_once_for_lists_but_for_each_read(client: Client, converted: Hooks) -> None:
    """Real servers have caches in each version, which answer lists and watches; single objects are read from etcd."""
    await client.create(V1, kex(1))
    for _ in range(3):
        await client.get(V2)
    assert len(converted.reviews) == 1
    for _ in range(3):
        await client.get(f"{V2}/one")
    assert len(converted.reviews) == 4


async def test_objects_are_stored_in_the_stored_version(client: Client, converted: Hooks) -> None:
    created = await client.create(V2, kex("1Mi", version="v2"))
    assert (created["apiVersion"], created["spec"]) == ("example.com/v2", {"size": "1Mi"})
    assert [request["desiredAPIVersion"] for request in converted.requests()] == ["example.com/v1", "example.com/v2"]
    stored = await client.get(f"{V1}/one")
    assert stored["spec"] == {"size": 1}
    assert stored["metadata"] == created["metadata"]


async def test_objects_are_validated_in_the_version_of_the_request(client: Client, converted: Hooks) -> None:
    reply = await client.call("POST", V2, json=kex(1, version="v2"))
    assert causes(reply) == [("spec.size", "FieldValueTypeInvalid")]
    assert not converted.reviews


async def test_objects_are_changed_in_either_version(client: Client, converted: Hooks) -> None:
    await client.create(V1, kex(1))
    patched = await client.patch(f"{V2}/one", {"spec": {"size": "2Mi"}})
    assert (patched["spec"], patched["metadata"]["generation"]) == ({"size": "2Mi"}, 2)
    patched = await client.patch(f"{V1}/one", {"spec": {"size": 3}})
    assert (patched["spec"], patched["metadata"]["generation"]) == ({"size": 3}, 3)
    replaced = await client.call("PUT", f"{V2}/one", json={**await client.get(f"{V2}/one"), "spec": {"size": "4Mi"}})
    assert (replaced.status, replaced.body["spec"]) == (200, {"size": "4Mi"})
    assert (await client.get(f"{V1}/one"))["spec"] == {"size": 4}


async def test_the_status_is_changed_in_another_version(client: Client, converted: Hooks) -> None:
    await client.create(V1, kex(1))
    patched = await client.patch(f"{V2}/one/status", {"status": {"ok": True}})
    assert (patched["spec"], patched["status"]) == ({"size": "1Mi"}, {"ok": True})
    assert (await client.get(f"{V1}/one"))["status"] == {"ok": True}


async def test_dry_runs_leave_no_traces_in_other_versions(client: Client, converted: Hooks) -> None:
    await client.create(V1, kex(1))
    reply = await client.call(
        "PATCH",
        f"{V2}/one?dryRun=All",
        json={"spec": {"size": "9Mi"}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert reply.body["spec"] == {"size": "9Mi"}
    await client.patch(f"{V1}/one", {"spec": {"size": 2}})
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": "2Mi"}


async def test_lists_are_converted_at_once(client: Client, converted: Hooks) -> None:
    for number in range(5):
        await client.create(V1, kex(number, f"n{number}"))
    assert [item["spec"]["size"] for item in (await client.get(V2))["items"]] == [f"{n}Mi" for n in range(5)]
    ((_, review),) = converted.reviews
    assert len(review["request"]["objects"]) == 5


async def test_lists_that_are_larger_than_what_is_remembered(
    client: Client, converted: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the others need, does not take from a list what it needs itself; that went on forever."""
    monkeypatch.setattr("kopf_cluster.custom_resources.converting._REMEMBERED", 5)
    for number in range(10):
        await client.create(V1, kex(number, f"obj{number}"))
    assert len((await client.get(V2))["items"]) == 10
    await client.create(V1, kex(10, "obj10"))
    await client.get(f"{V2}/obj10")
    async with asyncio.timeout(PATIENCE):
        items = (await client.get(V2))["items"]
    assert {item["spec"]["size"] for item in items} == {f"{number}Mi" for number in range(11)}
    assert [len(review["request"]["objects"]) for _, review in converted.reviews] == [10, 1, 6]


async def test_tables_are_made_of_converted_objects(client: Client, hooks: Hooks, cluster: LocalCluster) -> None:
    made = definition(hooks.on("/", convert))
    made["spec"]["versions"][1]["additionalPrinterColumns"] = [
        {"name": "Size", "type": "string", "jsonPath": ".spec.size"}
    ]
    cluster.apply(made)
    await client.create(V1, kex(1))
    table = await client.get(V2, headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"})
    assert table["rows"][0]["cells"] == ["one", "1Mi"]


async def test_watches_are_converted(client: Client, converted: Hooks) -> None:
    await client.create(V1, kex(1, "n1"))
    await client.create(V1, kex(2, "n2"))
    async with client.watch(V2) as stream:
        for size in ("1Mi", "2Mi"):
            event = await stream.next()
            assert (event["type"], event["object"]["spec"]["size"]) == ("ADDED", size)
        for number in (3, 4, 5):
            await client.patch(f"{V1}/n1", {"spec": {"size": number}})
        for size in ("3Mi", "4Mi", "5Mi"):
            event = await stream.next()
            assert (event["type"], event["object"]["spec"]["size"]) == ("MODIFIED", size)
        await client.delete(f"{V1}/n1")
        event = await stream.next()
        assert (event["type"], event["object"]["spec"]["size"]) == ("DELETED", "5Mi")


async def names(client: Client, path: str, selector: str) -> list[str]:
    found = await client.get(path, params={"fieldSelector": selector})
    return [item["metadata"]["name"] for item in found["items"]]


async def test_fields_are_selected_in_the_requested_version(
    client: Client,
    hooks: Hooks,
    cluster: LocalCluster,
) -> None:
    made = definition(hooks.on("/", convert))
    for version, fields in zip(made["spec"]["versions"], ([".spec.size"], [".spec.size", ".spec.note"]), strict=True):
        version["selectableFields"] = [{"jsonPath": path} for path in fields]
    cluster.apply(made)
    await client.create(V1, kex(1, "n1"))
    await client.create(V2, kex("2Mi", "n2", "v2"))
    for path, first, second in ((V1, "1", "2"), (V2, "1Mi", "2Mi")):
        assert await names(client, path, f"spec.size={first}") == ["n1"]
        assert await names(client, path, f"spec.size!={first}") == ["n2"]
        assert await names(client, path, f"spec.size={second},metadata.name=n1") == []
    assert await names(client, V2, "spec.note=") == ["n1", "n2"]
    refused = await client.call("GET", V1, params={"fieldSelector": "spec.note="})
    assert (refused.status, refused.body["message"]) == (400, "field label not supported: spec.note")

    async with client.watch(V2, fieldSelector="spec.size=1Mi") as stream:
        assert await stream.take(1) == [("ADDED", "n1")]
        await client.patch(f"{V1}/n2", {"spec": {"size": 1}})
        await client.patch(f"{V1}/n1", {"spec": {"size": 2}})
        assert await stream.take(2) == [("ADDED", "n2"), ("DELETED", "n1")]


async def test_fields_become_selectable_with_the_definition(client: Client, cluster: LocalCluster) -> None:
    made = make_definition()
    made["spec"]["versions"].append({**made["spec"]["versions"][0], "name": "v2", "storage": False})
    cluster.apply(made)
    await client.create(V1, kex(1, "n1"))
    made["spec"]["versions"][1]["selectableFields"] = [{"jsonPath": ".spec.size"}]
    cluster.apply(made)
    await client.create(V1, kex(2, "n2"))
    assert await names(client, V2, "spec.size=1") == ["n1"]
    assert await names(client, V2, "spec.size=2") == ["n2"]


async def test_objects_are_deleted_in_another_version(client: Client, converted: Hooks) -> None:
    await client.create(V1, kex(1, finalizers=["a/b"]))
    marked = await client.delete(f"{V2}/one")
    assert (marked["apiVersion"], marked["spec"]) == ("example.com/v2", {"size": "1Mi"})
    await client.patch(f"{V2}/one", {"metadata": {"finalizers": None}})
    await client.wait_gone(f"{V1}/one")


async def test_objects_remain_readable_after_the_stored_version_is_changed(
    client: Client, cluster: LocalCluster, converted: Hooks
) -> None:
    await client.create(V1, kex(1))
    cluster.apply(definition(converted.on("/", convert), storage="v2"))
    assert (await client.get(f"{V1}/one"))["spec"] == {"size": 1}
    assert not converted.reviews
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": "1Mi"}
    await client.patch(f"{V1}/one", {"spec": {"note": "x"}})
    converted.reviews.clear()
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": "1Mi", "note": "x"}
    assert not converted.reviews, "it is stored in the new version by now"


async def test_definitions_and_owners_clean_up_converted_objects(
    client: Client, cluster: LocalCluster, converted: Hooks
) -> None:
    parent = await client.create(V1, kex(1, "parent"))
    owner = {"apiVersion": "example.com/v1", "kind": "Kex", "name": "parent", "uid": parent["metadata"]["uid"]}
    await client.create(V2, kex("1Mi", "child", "v2", ownerReferences=[owner]))
    cluster.apply(definition(converted.on("/", convert), storage="v2"))  # the control loops must convert, too
    await client.delete(f"{V1}/parent")
    await client.wait_gone(f"{V1}/child")
    await client.create(V1, kex(1, "other"))
    await client.delete(f"{CRDS}/kexes.example.com")
    await client.wait_gone(f"{CRDS}/kexes.example.com")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda review: respond(review, result={"status": "Failed", "message": "cannot do"}), "failed: cannot do"),
        (lambda review: respond(review, result={}), "failed: response.result.status was '', not 'Success'"),
        (lambda review: respond(review, convertedObjects=[]), "returned 0 objects, expected 1"),
        (lambda review: respond(review, uid="other"), 'failed: expected response.uid="'),
        (lambda review: {}, "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview"),
        (lambda review: {"#status": 500}, "failed: an error on the server"),
    ],
)
async def test_failures_are_told(client: Client, converted: Hooks, answer: Any, why: str) -> None:
    await client.create(V1, kex(1))
    converted.on("/", answer)
    for path in (f"{V2}/one", V2):
        reply = await client.call("GET", path, expected=500)
        assert reply.body["message"].startswith(f"conversion webhook for example.com/v1, Kind=Kex {why}")
    async with client.watch(V2) as stream:
        event = await stream.next()
        assert (event["type"], event["object"]["code"]) == ("ERROR", 500)
    converted.on("/", convert)
    assert (await client.get(f"{V2}/one"))["spec"] == {"size": "1Mi"}


async def test_older_reviews_are_sent_to_those_who_want_them(
    client: Client, cluster: LocalCluster, hooks: Hooks
) -> None:
    cluster.apply(definition(hooks.on("/", convert), versions=("v1beta1",)))
    await client.create(V2, kex("1Mi", version="v2"))
    assert hooks.reviews[0][1]["apiVersion"] == "apiextensions.k8s.io/v1beta1"


@pytest.mark.parametrize(
    ("conversion", "field"),
    [
        ({"strategy": "Other"}, "spec.conversion.strategy"),
        ({"strategy": "Webhook"}, "spec.conversion.webhook.clientConfig"),
        (
            {"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}},
            "spec.conversion.webhook.clientConfig",
        ),
        (
            {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x"}}},
            "spec.conversion.webhook.conversionReviewVersions",
        ),
        (
            {
                "strategy": "Webhook",
                "webhook": {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v9"]},
            },
            "spec.conversion.webhook.conversionReviewVersions",
        ),
        (
            {"strategy": "None", "webhook": {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]}},
            "spec.conversion.webhook",
        ),
    ],
)
async def test_wrong_conversions_are_refused(client: Client, conversion: Obj, field: str) -> None:
    made = make_definition()
    made["spec"]["conversion"] = conversion
    assert [cause for cause, _ in causes(await client.call("POST", CRDS, json=made))] == [field]


async def test_converted_objects_are_there_after_a_restart(tmp_path: pathlib.Path, hooks: Hooks) -> None:
    async with LocalCluster(data_dir=tmp_path / "data") as cluster, connect(cluster) as client:
        cluster.apply(definition(hooks.on("/", convert)))
        await client.create(V2, kex("1Mi", version="v2"))
    hooks.reviews.clear()
    async with LocalCluster(data_dir=tmp_path / "data") as cluster, connect(cluster) as client:
        assert (await client.get(f"{V1}/one"))["spec"] == {"size": 1}
        assert not hooks.reviews
        assert (await client.get(f"{V2}/one"))["spec"] == {"size": "1Mi"}


async def test_conversion_and_admission_go_together(client: Client, cluster: LocalCluster, converted: Hooks) -> None:
    rule = {"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["kexes"]}
    cluster.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "hooks"},
            "webhooks": [
                {
                    "name": "x.example.com",
                    "clientConfig": converted.on("/admit", lambda review: admitted(review, warnings=["seen"])),
                    "rules": [rule],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
    )
    reply = await client.call("POST", V2, json=kex("1Mi", version="v2"))
    assert (reply.status, reply.headers["Warning"]) == (201, '299 - "seen"')
    assert converted.requests("/admit")[0]["object"]["spec"] == {"size": "1Mi"}
    async with asyncio.timeout(PATIENCE):
        assert (await client.get(f"{V1}/one"))["spec"] == {"size": 1}
