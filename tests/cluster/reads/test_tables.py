from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.conftest import CONFIG_MAPS, CRDS, KEXES, Client, make_config_map, make_definition, make_kex

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def columns(table: Any) -> list[str]:
    return [column["name"] for column in table["columnDefinitions"]]


def cells(table: Any) -> list[list[Any]]:
    return [row["cells"] for row in table["rows"]]


async def test_tables_of_builtin_kinds(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map(data={"a": "b", "c": "d"}))
    table = await client.get(CONFIG_MAPS, headers=TABLE)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert columns(table) == ["Name", "Data", "Age"]
    assert cells(table)[0][:2] == ["one", 2]
    assert cells(table)[0][2].endswith("s")
    row = table["rows"][0]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "one"
    assert table["metadata"]["resourceVersion"]
    one = await client.get(f"{CONFIG_MAPS}/one", headers=TABLE)
    assert len(one["rows"]) == 1


@pytest.mark.parametrize(
    ("include", "kind"), [("None", None), ("Metadata", "PartialObjectMetadata"), ("Object", "ConfigMap")]
)
async def test_what_rows_include(client: Client, include: str, kind: str | None) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    table = await client.get(CONFIG_MAPS, headers=TABLE, params={"includeObject": include})
    shown = table["rows"][0]["object"]
    assert (shown and shown["kind"]) == kind


async def test_rows_include_nothing_else(client: Client) -> None:
    reply = await client.call("GET", CONFIG_MAPS, headers=TABLE, params={"includeObject": "All"})
    assert (reply.status, reply.body["message"]) == (
        400,
        'Unable to convert to Table as requested: includeObject: Invalid value: "All": '
        "must be 'Metadata', 'Object', 'None', or empty",
    )


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_forms_of_both_versions(client: Client, version: str) -> None:
    await client.create(CONFIG_MAPS, make_config_map(data={"a": "b"}))
    meta = f"meta.k8s.io/{version}"

    async def get(path: str, form: str) -> Any:
        reply = await client.call(
            "GET", path, headers={"Accept": f"application/json;as={form};g=meta.k8s.io;v={version}"}
        )
        assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
        return reply.body

    table = await get(CONFIG_MAPS, "Table")
    assert (table["kind"], table["apiVersion"]) == ("Table", meta)
    assert (table["rows"][0]["object"]["kind"], table["rows"][0]["object"]["apiVersion"]) == (
        "PartialObjectMetadata",
        meta,
    )
    one = await get(f"{CONFIG_MAPS}/one", "PartialObjectMetadata")
    assert (one["kind"], one["apiVersion"], set(one)) == (
        "PartialObjectMetadata",
        meta,
        {"kind", "apiVersion", "metadata"},
    )
    many = await get(CONFIG_MAPS, "PartialObjectMetadataList")
    assert (many["kind"], many["apiVersion"]) == ("PartialObjectMetadataList", meta)
    assert many["items"] == [one]


async def test_answers_to_questions_are_no_tables(client: Client) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    table = TABLE["Accept"].partition(",")[0]
    refused = await client.call("POST", path, json=review, headers={"Accept": table})
    assert (refused.status, refused.body["reason"]) == (406, "NotAcceptable")
    answered = await client.call("POST", path, json=review, headers=TABLE)
    assert (answered.status, answered.body["kind"]) == (201, "SelfSubjectAccessReview")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_watches_as_tables(client: Client, version: str) -> None:
    await client.create(CONFIG_MAPS, make_config_map(data={"a": "b"}))
    params = {
        "watch": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    accept = {"Accept": f"application/json;as=Table;g=meta.k8s.io;v={version}"}
    async with client.session.get(CONFIG_MAPS, params=params, headers=accept) as response:
        added, bookmark = [json.loads(await response.content.readline()) for _ in range(2)]
        await client.patch(f"{CONFIG_MAPS}/one", {"data": {"c": "d"}})
        modified = json.loads(await response.content.readline())
    assert [event["type"] for event in (added, bookmark, modified)] == ["ADDED", "BOOKMARK", "MODIFIED"]
    for event in (added, bookmark, modified):
        table = event["object"]
        assert (table["kind"], table["apiVersion"]) == ("Table", f"meta.k8s.io/{version}")
        assert columns(table) == (["Name", "Data", "Age"] if event is added else [])
        assert table["metadata"]["resourceVersion"] == table["rows"][0]["object"]["metadata"]["resourceVersion"]
    assert cells(modified["object"])[0][:2] == ["one", 2]
    [row] = bookmark["object"]["rows"]
    assert row["cells"] == ["", 0, "<unknown>"]
    assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_watches_of_metadata(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    params = {
        "watch": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    accept = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    async with client.session.get(CONFIG_MAPS, params=params, headers=accept) as response:
        events = [json.loads(await response.content.readline()) for _ in range(2)]
    assert [(event["type"], event["object"]["kind"], event["object"]["apiVersion"]) for event in events] == [
        ("ADDED", "PartialObjectMetadata", "meta.k8s.io/v1"),
        ("BOOKMARK", "PartialObjectMetadata", "meta.k8s.io/v1"),
    ]


async def test_tables_of_custom_kinds(client: Client) -> None:
    await client.create(
        CRDS,
        make_definition(
            additionalPrinterColumns=[
                {"name": "Text", "type": "string", "jsonPath": ".spec.text", "description": "What it says"},
                {"name": "Number", "type": "integer", "jsonPath": ".spec.number", "priority": 1},
                {"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag"},
                {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                {"name": "Names", "type": "string", "jsonPath": ".spec.items[*].name"},
            ]
        ),
    )
    await client.create(
        KEXES, make_kex("a", spec={"text": "hello", "number": 5, "flag": True, "items": [{"name": "x"}, {"name": "y"}]})
    )
    await client.create(KEXES, make_kex("b", spec={"text": 7, "number": "five", "flag": "maybe"}))
    table = await client.get(KEXES, headers=TABLE)
    assert columns(table) == ["Name", "Text", "Number", "Flag", "Since", "Names"]
    assert table["columnDefinitions"][2]["priority"] == 1
    assert table["columnDefinitions"][1]["description"] == "What it says"
    ages = [row["cells"].pop(4) for row in table["rows"]]
    assert all(age.endswith("s") for age in ages)
    assert cells(table) == [["a", "hello", 5, True, "x y"], ["b", "7", None, None, None]]


async def test_tables_of_custom_kinds_without_columns(client: Client, kexes: str) -> None:
    assert columns(await client.get(kexes, headers=TABLE)) == ["Name", "Age"]


async def test_tables_of_pods(client: Client) -> None:
    pods = "/api/v1/namespaces/default/pods"
    await client.create(
        pods,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "finalizers": ["a/b"]},
            "spec": {"containers": [{"name": "x", "image": "i"}, {"name": "y", "image": "i"}]},
        },
    )
    assert cells(await client.get(pods, headers=TABLE))[0][:4] == ["p", "0/2", "Pending", "0"]
    await client.patch(
        f"{pods}/p/status",
        {
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {"name": "x", "ready": True, "restartCount": 2},
                    {
                        "name": "y",
                        "ready": False,
                        "restartCount": 1,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    },
                ],
            }
        },
    )
    assert cells(await client.get(pods, headers=TABLE))[0][:4] == ["p", "1/2", "CrashLoopBackOff", "3"]
    await client.delete(f"{pods}/p")
    assert cells(await client.get(pods, headers=TABLE))[0][2] == "Terminating"


async def test_tables_survive_nonsense_in_objects(client: Client) -> None:
    nonsense: list[Any] = [5, "x", [1], {"a": 1}, None, True]
    for resource in (await client.get("/api/v1"))["resources"] + (await client.get("/apis/apps/v1"))["resources"]:
        if "/" in resource["name"] or not resource["namespaced"] or "list" not in resource["verbs"]:
            continue
        group = "apis/apps/v1" if resource["name"].endswith(("sets", "deployments", "revisions")) else "api/v1"
        path = f"/{group}/namespaces/default/{resource['name']}"
        for number, value in enumerate(nonsense):
            reply = await client.call(
                "POST",
                path,
                json={
                    "apiVersion": group.partition("/")[2],
                    "kind": resource["kind"],
                    "metadata": {"name": f"n{number}"},
                    "spec": value,
                    "data": value,
                    "secrets": value,
                    "rules": value,
                },
            )
            assert reply.status in (201, 400, 422), reply
        assert (await client.call("GET", path, headers=TABLE)).status == 200
