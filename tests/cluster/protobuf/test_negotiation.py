"""
In which encoding clients are answered, and what happens to what cannot be had or read in it.

The expectations are those of "Kubernetes API Concepts" ("Alternate representations of resources"), and the wording
is that of kube-apiserver.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kopf_cluster import LocalCluster
from kopf_cluster.encodings import parse_accept

from ..conftest import CONFIG_MAPS, KEXES, MERGE, Client, make_config_map, make_kex
from .typed import CORE, META, PROTOBUF, TypedClient, make, read
from .witness import MAGIC, find_class, unwrap, wrap

JSON = "application/json"
YAML = "application/yaml"
CBOR = "application/cbor"
TABLE = "as=Table;g=meta.k8s.io;v=v1"
METADATA = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
SERVED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
AGGREGATED = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (PROTOBUF, PROTOBUF),
        (f"{PROTOBUF},{JSON}", PROTOBUF),
        (f"{JSON},{PROTOBUF}", JSON),
        (f"{JSON};q=0.5,{PROTOBUF}", PROTOBUF),
        (f"{JSON};q=0.5,{PROTOBUF};q=0.9,{YAML};q=0.7", PROTOBUF),
        (f"{PROTOBUF};q=x,{JSON};q=0.1", JSON),
        (f"*/*,{PROTOBUF}", PROTOBUF),
        (f"*/*,{PROTOBUF};q=0.9", JSON),
        ("application/*", JSON),
        (f"{PROTOBUF};{TABLE},{JSON};{TABLE},{JSON}", JSON),
        (f"{PROTOBUF};{METADATA},{JSON}", PROTOBUF),
        (f"{PROTOBUF};as=Nosuch;g=meta.k8s.io;v=v1,{YAML}", YAML),
        (f"{CBOR},{PROTOBUF};q=0.9,{JSON};q=0.8", PROTOBUF),
        (YAML, YAML),
    ],
)
async def test_the_most_wanted_is_served(accept: str, expected: str, client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map(data={"a": "b"}))
    for path in (CONFIG_MAPS, f"{CONFIG_MAPS}/one"):
        reply = await client.call("GET", path, headers={"Accept": accept})
        assert (reply.status, reply.headers["Content-Type"]) == (200, expected)


def test_weights_are_the_same_as_nothing_if_they_are_wrong() -> None:
    assert parse_accept("a/a;q=2,b/b;q=-1,c/c;q=nan,d/d;q=0.1")[0].media == "d/d"


async def test_what_cannot_be_had_is_refused_before_anything_is_done(client: Client, kexes: str) -> None:
    for accept, path, obj in [
        (CBOR, CONFIG_MAPS, make_config_map()),
        ("text/html", CONFIG_MAPS, make_config_map()),
        (f"{PROTOBUF};{TABLE}", CONFIG_MAPS, make_config_map()),
        (PROTOBUF, kexes, make_kex()),
    ]:
        for method in ("GET", "POST"):
            reply = await client.call(method, path, json=obj, headers={"Accept": accept}, expected=406)
            status = _read_status(reply)
            assert (status["reason"], status["message"]) == (
                "NotAcceptable",
                f"only the following media types are accepted: {SERVED}",
            )
        assert (await client.get(path))["items"] == []


def _read_status(reply: Any) -> Any:
    if reply.headers["Content-Type"] == JSON:
        return reply.body
    message = read(reply, META).message
    return {"reason": message.reason, "message": message.message}


async def test_streams_are_not_in_yaml(client: Client) -> None:
    for accept in (YAML, f"{YAML};stream=watch"):
        reply = await client.call("GET", CONFIG_MAPS, params={"watch": "1"}, headers={"Accept": accept}, expected=406)
    reply = await client.call("GET", CONFIG_MAPS, params={"watch": "1"}, headers={"Accept": YAML})
    assert yaml.safe_load(reply.body)["message"] == (
        "only the following media types are accepted: "
        "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    )


async def test_answers_in_yaml(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map(data={"a": "1\n2"}))
    reply = await client.call("GET", f"{CONFIG_MAPS}/one", headers={"Accept": YAML})
    assert reply.body.startswith(b"apiVersion: v1\ndata:\n  a: |-\n    1\n    2\nkind: ConfigMap\n")
    assert yaml.safe_load(reply.body) == await client.get(f"{CONFIG_MAPS}/one")


async def test_custom_resources_are_in_json_for_those_who_take_it(client: Client, kexes: str) -> None:
    both = {"Accept": f"{PROTOBUF},{JSON}"}
    created = await client.call("POST", kexes, json=make_kex(), headers=both)
    assert (created.status, created.body["kind"]) == (201, "Kex")
    assert (await client.get(kexes, headers=both))["items"][0]["metadata"]["name"] == "one"
    missing = await client.call("GET", f"{kexes}/two", headers=both)
    assert (missing.status, read(missing, META).message.reason) == (404, "NotFound")
    partial = {"Accept": f"{PROTOBUF};{METADATA}"}
    changed = await client.call(
        "PATCH", f"{kexes}/one", data=b'{"metadata":{"finalizers":["a/b"]}}', headers={**partial, "Content-Type": MERGE}
    )
    assert read(changed, META).message.metadata.finalizers == ["a/b"]
    deleted = await client.call("DELETE", f"{kexes}/one", headers=partial)
    assert read(deleted, META).message.metadata.deletionTimestamp.seconds > 0


async def test_custom_resources_cannot_be_sent_in_protobuf(client: Client, kexes: str) -> None:
    body = wrap("example.com/v1", "Kex", find_class(f"{META}.PartialObjectMetadata")())
    reply = await client.call("POST", KEXES, data=body, headers={"Content-Type": PROTOBUF}, expected=400)
    assert reply.body["message"] == (
        'Kex in version "v1" cannot be handled as a Kex: object *unstructured.Unstructured does not implement '
        "the protobuf marshalling interface and cannot be encoded to a protobuf message"
    )
    options = wrap("example.com/v1", "DeleteOptions", find_class(f"{META}.DeleteOptions")())
    await client.create(KEXES, make_kex())
    assert (await client.call("DELETE", f"{KEXES}/one", data=options, headers={"Content-Type": PROTOBUF})).status == 200


async def test_metadata_is_only_shown(client: Client) -> None:
    """What is sent as metadata only, is no such object."""
    body = wrap("meta.k8s.io/v1", "PartialObjectMetadata", find_class(f"{META}.PartialObjectMetadata")())
    await client.call("POST", CONFIG_MAPS, data=body, headers={"Content-Type": PROTOBUF}, expected=400)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the object provided is unrecognized (must be of type ConfigMap): empty data"),
        (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (7b7d)"),
        (MAGIC, "empty body (6b387300)"),
        (MAGIC + b"\x12\x01\x0a", 'ConfigMap in version "v1" cannot be handled as a ConfigMap: unexpected EOF'),
        (MAGIC + b"\x12\x02\x08\x05", "cannot be handled as a ConfigMap: proto: wrong wireType = 0 for field metadata"),
        (
            wrap("v2", "ConfigMap", find_class(f"{CORE}.ConfigMap")()),
            "the API version in the data (v2) does not match the expected API version (v1)",
        ),
        (wrap("v1", "Pod", find_class(f"{CORE}.Pod")()), "the kind in the data does not match the expected kind"),
    ],
)
async def test_broken_and_wrong_bodies_are_refused(body: bytes, message: str, client: Client) -> None:
    reply = await client.call("POST", CONFIG_MAPS, data=body, headers={"Content-Type": PROTOBUF}, expected=400)
    assert message in reply.body["message"]


async def test_nested_bodies_are_refused(client: Client) -> None:
    """Schemas contain schemas: nothing is told of their depth but by themselves."""
    schema = b""
    for _ in range(20_000):
        schema = b"\xd2\x01" + _size(len(schema)) + schema  # `not`: 26
        if len(schema) > 1_000_000:
            break
    version = b"\x22" + _size(len(schema) + 1 + len(_size(len(schema)))) + b"\x0a" + _size(len(schema)) + schema
    spec = b"\x3a" + _size(len(version)) + version
    raw = b"\x12" + _size(len(spec)) + spec
    data = MAGIC + b"\x12" + _size(len(raw)) + raw
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await client.call("POST", path, data=data, headers={"Content-Type": PROTOBUF}, expected=400)
    assert (await client.get(path))["items"] == []


def _size(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


async def test_kinds_can_be_left_out_of_envelopes(client: Client) -> None:
    body = wrap("", "", make("v1", CORE, "ConfigMap", name="one").message)
    reply = await client.call("POST", CONFIG_MAPS, data=body, headers={"Content-Type": PROTOBUF})
    assert (reply.status, reply.body["kind"]) == (201, "ConfigMap")


async def test_cbor_is_refused_as_long_as_its_gate_is_off(client: Client) -> None:
    """Clients fall back to JSON then."""
    for method, path in [("POST", CONFIG_MAPS), ("PUT", f"{CONFIG_MAPS}/one"), ("DELETE", f"{CONFIG_MAPS}/one")]:
        reply = await client.call(method, path, data=b"\xd9\xd9\xf7\xa0", headers={"Content-Type": CBOR})
        assert (reply.status, reply.body["reason"]) == (415, "UnsupportedMediaType")
        assert reply.body["message"] == (
            f"the body of the request was in an unknown format - accepted media types include: {SERVED}"
        )
    await client.call(
        "PATCH",
        f"{CONFIG_MAPS}/one",
        data=b"\xa0",
        params={"fieldManager": "x"},
        headers={"Content-Type": "application/apply-patch+cbor"},
        expected=415,
    )
    for path in (CONFIG_MAPS, "/api", "/apis", "/api/v1"):
        reply = await client.call("GET", path, headers={"Accept": CBOR})
        assert (reply.status, reply.body["code"]) == (406, 406)
        reply = await client.call("GET", path, headers={"Accept": f"{CBOR},{JSON};q=0.9"})
        assert (reply.status, reply.headers["Content-Type"]) == (200, JSON)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/apps", "APIGroup"),
        ("/apis/apps/v1", "APIResourceList"),
        ("/api/v1", "APIResourceList"),
    ],
)
async def test_discovery(path: str, kind: str, client: Client) -> None:
    message = read(await client.call("GET", path, headers={"Accept": f"{PROTOBUF},{JSON}"}), META)
    assert message.kind == kind
    in_json = await client.get(path)
    match kind:
        case "APIResourceList":
            verbs = {item.name: list(item.verbs.items) for item in message.message.resources}
            assert verbs == {item["name"]: item["verbs"] for item in in_json["resources"]}
        case "APIGroupList":
            assert [item.name for item in message.message.groups] == [item["name"] for item in in_json["groups"]]
        case "APIVersions":
            assert message.message.versions == ["v1"]
        case "APIGroup":
            assert message.message.preferredVersion.groupVersion == "apps/v1"


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_aggregated_discovery(path: str, client: Client, kexes: str) -> None:
    accept = f"{PROTOBUF};{AGGREGATED},{JSON};{AGGREGATED},{JSON}"
    reply = await client.call("GET", path, headers={"Accept": accept})
    assert reply.headers["Content-Type"] == f"{PROTOBUF};{AGGREGATED}"
    api_version, kind, raw = unwrap(reply.body)
    assert (api_version, kind) == ("apidiscovery.k8s.io/v2", "APIGroupDiscoveryList")
    listed = find_class("io.k8s.api.apidiscovery.v2.APIGroupDiscoveryList").FromString(raw)
    in_json = await client.call("GET", path, headers={"Accept": f"{JSON};{AGGREGATED}"})
    expected = {
        (group["metadata"].get("name", ""), resource["resource"]): resource["verbs"]
        for group in in_json.body["items"]
        for version in group["versions"]
        for resource in version["resources"]
    }
    assert expected == {
        (group.metadata.name, resource.resource): list(resource.verbs)
        for group in listed.items
        for version in group.versions
        for resource in version.resources
    }


async def test_refusals_of_all_sorts(cluster: LocalCluster, client: Client) -> None:
    typed = TypedClient(client)
    assert (await typed.fail("GET", "/apis/apps/v1/things")).reason == "NotFound"
    assert (await typed.fail("PUT", CONFIG_MAPS)).reason == "MethodNotAllowed"
    assert (await typed.fail("GET", CONFIG_MAPS, headers={"Authorization": "Bearer x"})).reason == "Unauthorized"
    conflict = make("v1", CORE, "ConfigMap", name="one")
    await typed.do("POST", CONFIG_MAPS, CORE, conflict)
    assert (await typed.fail("POST", CONFIG_MAPS, conflict)).reason == "AlreadyExists"
