from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster.api.protobuf import ProtobufError, decode_object


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


def test_managed_fields_are_json_inside() -> None:
    def config_map(fields: str) -> bytes:
        entry = (field(1, "kubectl") + field(2, "Update") + field(3, "v1") + field(4, field(1, 1_700_000_000))
                 + field(6, "FieldsV1") + field(7, field(1, fields)))
        return envelope("v1", "ConfigMap", field(1, field(1, "one") + field(17, entry)))

    assert decode_object(config_map('{"f:data":{"f:a":{}}}'))["metadata"]["managedFields"] == [{
        "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": "2023-11-14T22:13:20Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}]
    for broken in ("{", "[" * 100_000):
        with pytest.raises(ProtobufError, match="managed fields are not in JSON"):
            decode_object(config_map(broken))


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


def test_kinds_differ_from_version_to_version() -> None:
    target = field(1, field(1, "Deployment") + field(2, "web") + field(3, "apps/v1"))
    old = field(2, target + field(2, 1) + field(3, 5) + field(4, 80))
    assert decode_object(envelope("autoscaling/v1", "HorizontalPodAutoscaler", old))["spec"] == {
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "minReplicas": 1, "maxReplicas": 5, "targetCPUUtilizationPercentage": 80}
    metric = field(1, "Resource") + field(4, field(1, "cpu") + field(2, field(1, "Utilization") + field(4, 80)))
    new = field(2, target + field(3, 5) + field(4, metric))
    assert decode_object(envelope("autoscaling/v2", "HorizontalPodAutoscaler", new))["spec"]["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]
    event = field(4, "c") + field(8, field(3, "p")) + field(10, "text")
    assert decode_object(envelope("events.k8s.io/v1", "Event", event)) == {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "reportingController": "c", "regarding": {"name": "p"},
        "note": "text"}


def test_pods_with_all_their_defaults_are_decoded() -> None:
    container = field(1, "c") + field(15, b"") + field(9, field(1, "v") + field(3, "/v"))
    spec = field(1, field(1, "v") + field(2, field(2, b""))) + field(2, container) + field(14, b"") + field(30, 1)
    assert decode_object(envelope("v1", "Pod", field(2, spec)))["spec"] == {
        "volumes": [{"name": "v", "emptyDir": {}}], "securityContext": {}, "enableServiceLinks": True,
        "containers": [{"name": "c", "securityContext": {}, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}
