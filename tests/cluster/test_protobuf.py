from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._cluster.protobuf import ProtobufError, decode_object


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + field(1, field(1, api_version) + field(2, kind)) + field(2, raw) + field(3, "") + field(4, "")


def test_objects_are_decoded() -> None:
    metadata = (field(1, "one") + field(2, "") + field(7, 0) + field(8, b"") + field(11, field(1, "l") + field(2, "v"))
                + field(14, "a/b") + field(14, "c/d"))
    raw = field(1, metadata) + field(2, field(1, "k") + field(2, b"\x00\xff")) + field(3, "Opaque") + field(5, 0)
    assert decode_object(envelope("v1", "Secret", raw)) == {
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": "AP8="}, "immutable": False,
        "metadata": {"name": "one", "labels": {"l": "v"}, "finalizers": ["a/b", "c/d"]},
    }


def test_meaningful_zeros_are_kept_and_others_are_not() -> None:
    raw = field(1, field(1, "d")) + field(2, field(1, 0) + field(5, 0) + field(7, 0)) + field(3, field(2, 0))
    assert decode_object(envelope("apps/v1", "Deployment", raw)) == {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 0}}


def test_numbers_times_and_choices() -> None:
    assert decode_object(envelope("scheduling.k8s.io/v1", "PriorityClass", field(2, -100)))["value"] == -100
    lease = field(2, field(1, "me") + field(3, field(1, 1_700_000_000) + field(2, 123_456_000)))
    assert decode_object(envelope("coordination.k8s.io/v1", "Lease", lease))["spec"] == {
        "holderIdentity": "me", "acquireTime": "2023-11-14T22:13:20.123456Z"}
    port = field(2, field(1, field(3, 80) + field(4, field(1, 1) + field(2, 0) + field(3, "http"))))
    assert decode_object(envelope("v1", "Service", port))["spec"]["ports"] == [{"port": 80, "targetPort": "http"}]
    port = field(2, field(1, field(3, 80) + field(4, field(1, 0) + field(2, 8080) + field(3, ""))))
    assert decode_object(envelope("v1", "Service", port))["spec"]["ports"] == [{"port": 80, "targetPort": 8080}]


@pytest.mark.parametrize("data", [
    b"", b"k8s", b"{}", envelope("v1", "Nosuch", b""), envelope("v1", "ObjectReference", b""),
    envelope("v1", "ConfigMap", field(99, "x")), envelope("v1", "ConfigMap", b"\xff"),
    envelope("v1", "ConfigMap", field(1, 5)), envelope("v1", "ConfigMap", b"\x0a\x7f"),
    envelope("v1", "ConfigMap", b"\x0d1234"), b"k8s\0" + b"\xff" * 20,
])
def test_everything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ProtobufError):
        decode_object(data)


@given(st.binary(max_size=60), st.sampled_from(["ConfigMap", "Pod", "Deployment", "Lease", "Event"]))
def test_noise_is_refused_or_decoded_but_nothing_else(noise: bytes, kind: str) -> None:
    try:
        obj = decode_object(envelope("v1", kind, noise))
    except ProtobufError:
        return
    assert obj["kind"] == kind
