"""Objects that are small as bytes, and large as Python objects: they are skipped, and all others are handled."""

from __future__ import annotations

import json
import logging
import tracemalloc
from typing import Any

import msgspec
import pytest

import kopf
from kopf._client.errors import make_error
from kopf._client.resources.listing import parse_list
from kopf._values import codec
from kopf._values.objects import KubeObject
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator
from tests.hostile.spoiling import SpoilingProxy, custom

TOO_LARGE = "The object cannot be decoded: it would take .* MiB of memory.*It is not handled until.*"
MIB = 2**20


def fill(item: str, size: int) -> bytes:
    return f"[{','.join([item] * (size // (len(item) + 1)))}]".encode()


LARGE = fill("{}", 3 * MIB)
"""It becomes about 80 MiB."""


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


@pytest.fixture(autouse=True)
def _handlers(calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    async def fn(name: str, reason: str, **_: Any) -> None:
        calls.append((reason, name))


@pytest.fixture
def large(proxy: SpoilingProxy) -> str:
    """The mark of what is too large."""
    proxy.texts.append(LARGE)
    return custom(0)


async def test_others_are_handled(operator: Operator, kex: Objects, logs: Logs, calls: Calls, large: str) -> None:
    await kex.create("large1", spec={"x": large})
    await kex.create("small1")
    await operator.start()
    await kex.create("large2", spec={"x": large})
    await kex.create("small2")
    await kex.wait_handled("small1")
    await kex.wait_handled("small2")
    await logs.wait(TOO_LARGE, times=2)
    await kex.merge({"spec": {"b": 1}}, "large1")
    await kex.change_and_wait("small1", b=1)
    assert sorted(calls) == [("create", "small1"), ("create", "small2"), ("update", "small1")]
    assert len(logs.get_messages(level=logging.WARNING)) == 2  # once for each, not for every event


async def test_it_is_handled_once_it_is_smaller(operator: Operator, kex: Objects, logs: Logs, large: str) -> None:
    await kex.create(spec={"x": large})
    await operator.start()
    await logs.wait(TOO_LARGE)
    await kex.change_and_wait(x="small")


async def test_it_can_be_deleted(operator: Operator, kex: Objects, logs: Logs, calls: Calls, large: str) -> None:
    await operator.start()
    await kex.create_and_wait()
    await kex.merge({"spec": {"x": large}})
    await logs.wait(TOO_LARGE)
    await kex.delete()
    await kex.wait_gone()
    assert calls == [("create", "obj")]


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
