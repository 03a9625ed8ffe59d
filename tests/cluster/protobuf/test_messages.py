"""
Objects of all kinds keep everything on the way to protobuf and back; and Google's library reads the same.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster.builtin_kinds import read_kinds
from kopf_cluster.protobuf.messages import encode_object, open_envelope
from kopf_cluster.protobuf.wire import ProtobufError

from .samples import decode_object, find, list_messages, make, without_empty
from .witness import find_class, unwrap

DEFINITIONS = sorted(kind.definition for kind in read_kinds())


def check(definition: str, obj: dict[str, Any]) -> None:
    message = find(definition)
    data = message.encode_fields(obj)
    decoded = message.decode(data)
    assert without_empty(decoded) == without_empty(obj)
    assert message.encode_fields(decoded) == data  # nothing but what was there all the time
    witness = find_class(definition)
    if witness is not None:
        read = witness.FromString(data)
        assert read.ByteSize() == len(data)
        assert message.decode(read.SerializeToString(deterministic=True)) == decoded


@given(st.sampled_from(DEFINITIONS), st.integers(0, 2**32))
def test_objects_are_the_same_after_a_round_trip(definition: str, seed: int) -> None:
    check(definition, make(definition, random.Random(seed), 3))


@pytest.mark.parametrize("obj", [{}, {"metadata": None, "spec": None}], ids=["absent", "null"])
def test_nothing_at_all_is_the_same_after_a_round_trip(obj: dict[str, Any]) -> None:
    for definition in list_messages():
        check(definition, obj)


def test_bytes_are_those_of_google() -> None:
    """The order of fields, that of maps, what is there though it is empty, and negative numbers: byte for byte."""
    dice = random.Random(1)
    compared = 0
    for definition in list_messages():
        witness = find_class(definition)
        obj = make(definition, dice, 2)
        data = find(definition).encode_fields(obj)
        if witness is not None and _knows_all(witness.FromString(data), data):
            assert witness.FromString(data).SerializeToString(deterministic=True) == data, definition
            compared += 1
    assert compared > 500


def _knows_all(message: Any, data: bytes) -> bool:
    message.DiscardUnknownFields()
    return bool(message.ByteSize() == len(data))


def test_objects_are_in_envelopes() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": {"containers": []}}
    data = encode_object(pod)
    api_version, kind, raw = unwrap(data)
    assert (api_version, kind) == ("v1", "Pod")
    assert find_class("io.k8s.api.core.v1.Pod").FromString(raw).metadata.name == "one"
    assert data.endswith(b"\x1a\x00\x22\x00")  # as kube-apiserver ends it
    assert decode_object(data)["metadata"] == {"name": "one"}


def decode(kind: str, api_version: str, **fields: Any) -> dict[str, Any]:
    return decode_object(encode_object({"kind": kind, "apiVersion": api_version, **fields}))


def test_what_is_empty_is_shown_as_by_go() -> None:
    """The expectation is what ``kubectl create deployment --dry-run=client -o json`` prints."""
    container = {"name": "x", "image": "x"}
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container]}}
    deployment = decode(
        "Deployment",
        "apps/v1",
        metadata={"name": "d"},
        spec={"replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": template},
    )
    assert deployment == {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "d"}},
            "strategy": {},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{**container, "resources": {}}]},
            },
        },
        "status": {},
    }
    assert decode("Role", "rbac.authorization.k8s.io/v1")["rules"] is None
    assert decode("ConfigMap", "v1", immutable=False)["immutable"] is False
    assert decode("Event", "v1", type="x")["eventTime"] is None
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    assert decode("Pod", "v1", status={"conditions": [condition]})["status"]["conditions"] == [
        {**condition, "lastProbeTime": None}
    ]


def test_nulls_inside_are_what_they_are_for_go() -> None:
    assert decode("ConfigMap", "v1", data={"a": None, "b": "c"})["data"] == {"a": "", "b": "c"}
    spec = {"containers": [{"name": "c", "args": [None, "x"], "resources": {"limits": {"cpu": None}}}]}
    [container] = decode("Pod", "v1", spec=spec)["spec"]["containers"]
    assert container == {"name": "c", "args": ["", "x"], "resources": {"limits": {"cpu": "0"}}}
    budget = decode("PodDisruptionBudget", "policy/v1", status={"disruptedPods": {"one": None}})
    assert budget["status"]["disruptedPods"] == {"one": None}


def test_fields_of_other_versions_are_left_out() -> None:
    data = find("io.k8s.api.core.v1.ConfigMap").encode_fields({"data": {"a": "b"}, "newer": {"x": 1}})
    newer = b"\xfa\x3f\x01x" + b"\xf8\x3f\x01" + b"\xf9\x3f12345678" + b"\xfd\x3f1234"  # 1023, of all wire types
    assert find("io.k8s.api.core.v1.ConfigMap").decode(data + newer) == {"metadata": {}, "data": {"a": "b"}}


def test_lists_of_numbers_can_be_packed() -> None:
    context = find("io.k8s.api.core.v1.PodSecurityContext")
    assert context.encode_fields({"supplementalGroups": [1, 300]}) == b"\x20\x01\x20\xac\x02"
    assert context.decode(b"\x22\x03\x01\xac\x02") == {"supplementalGroups": [1, 300]}


@given(st.binary(max_size=60), st.sampled_from(DEFINITIONS))
def test_noise_is_refused_or_decoded_but_nothing_else(noise: bytes, definition: str) -> None:
    try:
        obj = find(definition).decode(noise)
    except ProtobufError:
        return
    find(definition).encode_fields(obj)


@given(st.sampled_from(DEFINITIONS), st.integers(0, 2**32), st.data())
def test_broken_objects_are_refused_or_decoded(definition: str, seed: int, data: st.DataObject) -> None:
    message = find(definition)
    whole = bytearray(message.encode_fields(make(definition, random.Random(seed), 2)))
    for _ in range(data.draw(st.integers(0, 3))):
        if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        obj = message.decode(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    except ProtobufError:
        return
    message.encode_fields(obj)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty data"),
        (b"k8s", "does not appear to be a protobuf message"),
        (b"{}", "does not appear to be a protobuf message"),
        (b"k8s\0", "empty body"),
        (b"k8s\0" + b"\xff" * 20, "integer overflow"),
        (b"k8s\0\x0a\x7f", "unexpected EOF"),
        (b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "unexpected EOF"),
        (b"k8s\0\x02\x00", "illegal tag 0"),
        (b"k8s\0\x0b", "illegal wireType 3"),
        (b"k8s\0\x0f", "illegal wireType 7"),
    ],
)
def test_broken_envelopes(data: bytes, why: str) -> None:
    with pytest.raises(ProtobufError, match=why):
        open_envelope(data)


@pytest.mark.parametrize(
    ("definition", "data", "why"),
    [
        ("io.k8s.api.core.v1.ConfigMap", b"\x08\x05", "wrong wireType = 0 for field metadata"),
        ("io.k8s.api.core.v1.ConfigMap", b"\x22\x01x", "wrong wireType = 2 for field immutable"),
        ("io.k8s.api.core.v1.ConfigMap", b"\x12\x02\x10\x01", "wireType"),
        (
            "io.k8s.api.core.v1.PodSecurityContext",
            b"\x21" + bytes(8),
            "wrong wireType = 1 for field supplementalGroups",
        ),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry", b"\x3a\x03\x0a\x01{", "embedded JSON"),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", b"\x42\x0b\x08" + b"\xff" * 8 + b"\x7f\x10", "EOF"),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", b"\x42\x0a\x08" + b"\xff" * 8 + b"\x7f", "year outside"),
    ],
)
def test_broken_messages(definition: str, data: bytes, why: str) -> None:
    with pytest.raises(ProtobufError, match=why):
        find(definition).decode(data)
