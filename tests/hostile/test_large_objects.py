"""Objects that are small as bytes, and large as Python objects: they are not decoded."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from kopf._client.errors import make_error
from kopf._client.resources.listing import parse_list
from kopf._values import codec
from kopf._values.objects import KubeObject
from tests.hostile.spoiling import LARGE, MIB, fill


def make(place: str, content: bytes) -> bytes:
    """Make an object with the content in that place."""
    obj: dict[str, Any] = {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": "obj", "namespace": "default", "uid": "u", "resourceVersion": "5", "finalizers": ["x/y"]},
    }
    where = {"metadata": obj["metadata"], "spec": obj.setdefault("spec", {}), "status": obj.setdefault("status", {})}
    where.get(place, obj)["managedFields" if place == "metadata" else "x"] = "HERE"
    return json.dumps(obj).encode().replace(b'"HERE"', content)


def get_peak(content: bytes) -> int:
    """How much memory the wrapping of the object takes at most, besides the object."""
    tracemalloc.start()
    try:
        assert KubeObject.salvage(content).pruned
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("place", ["spec", "status", "data", "metadata"])
@pytest.mark.parametrize("item", ["{}", "[]", '{"a":{"b":[]}}', '{"":0}'])
def test_nothing_of_it_is_decoded(place: str, item: str) -> None:
    content = make(place, fill(item, 3 * MIB))
    obj = KubeObject.salvage(content)
    assert "MiB" in obj.pruned
    head = obj.head
    assert (head.name, head.namespace, head.uid, head.resourceVersion) == ("obj", "default", "u", "5")
    assert head.finalizers == ["x/y"]
    assert (obj.api_version, obj.kind) == ("kopf.dev/v1", "KopfExample")
    assert obj.size < 1000
    if item == "{}":  # it takes long to measure it
        assert get_peak(content) < 20 * MIB


@pytest.mark.parametrize(
    "content",
    [make("metadata", LARGE)[:-1] + b"]", make("spec", LARGE[:-1] + b",1"), LARGE],
    ids=["an end", "a bracket", "a list"],
)
def test_malformed_ones_have_no_names(content: bytes) -> None:
    """It would take 10 seconds to find them out."""
    with pytest.raises(msgspec.ValidationError, match=r"it is malformed, and it would take \d+ MiB of memory"):
        KubeObject.salvage(content)


@pytest.mark.parametrize("item", ["{}", "[]", '{"name":"a","value":"b"}', "1", '""'])
def test_whatever_fits_to_etcd_is_decoded(item: str) -> None:
    """By default, its limit is 1.5 MiB."""
    obj = KubeObject.from_json(make("spec", fill(item, int(1.4 * MIB))))
    assert not obj.pruned
    assert obj["spec"]["x"]


def test_long_texts_are_not_large() -> None:
    text = json.dumps("{[,:" * MIB).encode()
    assert not KubeObject.from_json(make("data", text)).pruned


def test_listings_may_be_large() -> None:
    _, items = parse_list(b'{"metadata":{},"items":[' + b",".join([make("spec", LARGE)] * 3) + b"]}")
    assert [KubeObject.salvage(item).head.name for item in items] == ["obj"] * 3


def test_answers() -> None:
    assert codec.decode_answer(b'{"a":' + LARGE + b"}")
    with pytest.raises(codec.UnreadableError, match=r"it would take \d+ MiB of memory, and the limit is 256 MiB"):
        codec.decode_answer(fill("{}", 10 * MIB))


def test_errors() -> None:
    body = b'{"kind":"Status","details":' + fill("{}", 10 * MIB) + b"}"
    error = make_error(status=400, method="GET", path="/", headers={}, body=body)
    assert len(str(error)) < 1000
    assert not error.details
