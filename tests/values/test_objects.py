from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given

from kopf._values import codec
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from tests.values.strategies import objects

SOURCE: dict[str, Any] = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {
        "name": "name1",
        "namespace": "ns1",
        "uid": "uid1",
        "resourceVersion": "123",
        "generation": 5,
        "creationTimestamp": "2026-11-21T00:00:00Z",
        "deletionTimestamp": "2026-11-21T00:00:01Z",
        "labels": {"l": "v"},
        "annotations": {"a": "v"},
        "finalizers": ["f"],
        "ownerReferences": [{"name": "owner"}],
    },
    "spec": {"field": "value"},
    "status": {"list": [1, 2]},
}


def make(source: Mapping[str, Any] = SOURCE, **kwargs: Any) -> KubeObject:
    return KubeObject.from_json(codec.encode(dict(source)), **kwargs)


@pytest.mark.parametrize("obj", [make(), KubeObject.from_dict(SOURCE), KubeObject.from_dict(MappingProxyType(SOURCE))])
def test_the_head_is_what_the_framework_needs(obj: KubeObject) -> None:
    assert {**msgspec.structs.asdict(obj.head), "ownerReferences": [{"name": "owner"}]} == SOURCE["metadata"]
    assert (obj.api_version, obj.kind) == ("kopf.dev/v1", "KopfExample")


@pytest.mark.parametrize("metadata", [{}, {"namespace": None, "labels": None, "annotations": None, "finalizers": None}])
def test_the_head_of_an_object_with_nothing(metadata: dict[str, Any]) -> None:
    head = make({"metadata": metadata}).head
    assert (head.name, head.uid, head.resourceVersion) == ("", "", "")
    optional = [head.namespace, head.labels, head.annotations, head.finalizers, head.deletionTimestamp]
    assert optional == [None] * len(optional)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"{}", b'{"metadata":null}', b'{"metadata":{"labels":[]}}'])
def test_what_is_not_an_object_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        KubeObject.from_json(raw)


@pytest.mark.parametrize("source", [{"metadata": None}, {"metadata": {"labels": []}}, {"metadata": {"uid": 1}}])
def test_a_dict_that_is_not_an_object_is_a_value_error(source: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        KubeObject.from_dict(source)


@pytest.mark.parametrize("obj", [make(), KubeObject.from_dict(SOURCE)])
def test_it_is_a_mapping_of_its_content(obj: KubeObject) -> None:
    assert obj == SOURCE
    assert dict(obj) == SOURCE
    assert len(obj) == 5
    assert set(obj) == set(SOURCE)
    assert obj["spec"] == {"field": "value"}
    assert "spec" in obj
    assert "absent" not in obj
    assert obj.get("absent") is None
    assert repr(obj) == repr(dict(obj))
    with pytest.raises(KeyError):
        obj["absent"]


@given(objects)
def test_any_content_is_the_same_in_any_order_of_access(content: dict[str, Any]) -> None:
    source = {**content, "metadata": {"name": "x"}}
    forward, backward = make(source), make(source)
    assert {key: forward[key] for key in source} == source
    assert {key: backward[key] for key in reversed(source)} == source
    assert forward == backward == KubeObject.from_dict(source) == source
    assert json.loads(forward.raw) == json.loads(KubeObject.from_dict(source).raw) == source


def test_values_are_built_once() -> None:
    obj = make()
    assert obj["spec"] is obj["spec"]
    assert obj["metadata"] is obj["metadata"]


def test_values_are_built_only_when_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def spy(data: Any) -> Any:
        decoded.append(bytes(data).decode())
        return json.loads(bytes(data))

    monkeypatch.setattr("kopf._values.codec.decode", spy)
    obj = make()
    assert obj.head.name == "name1"
    assert "spec" in obj
    assert len(obj) == len(list(obj)) == 5
    assert decoded == []
    assert obj["status"] == {"list": [1, 2]}
    assert decoded == ['{"list":[1,2]}']


def test_managed_fields_are_never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def spy(data: Any) -> Any:
        assert b"kubectl" not in bytes(data)
        return json.loads(bytes(data))

    monkeypatch.setattr("kopf._values.codec.decode", spy)
    obj = make({**SOURCE, "metadata": {**SOURCE["metadata"], "managedFields": [{"manager": "kubectl"}]}})
    assert "managedFields" not in obj["metadata"]
    assert obj["metadata"] == SOURCE["metadata"]
    assert obj == SOURCE
    assert b"kubectl" in obj.raw


def test_items_of_lists_get_the_kind_of_the_list() -> None:
    item = {"metadata": {"name": "x"}, "spec": {}}
    obj = make(item, api_version="v1", kind="Pod")
    assert (obj.api_version, obj.kind) == ("v1", "Pod")
    assert obj == {"apiVersion": "v1", "kind": "Pod", **item}
    assert obj["apiVersion"] == "v1"
    assert obj["kind"] == "Pod"


def test_objects_keep_their_own_kind() -> None:
    obj = make(api_version="v1", kind="Pod")
    assert (obj.api_version, obj.kind) == ("kopf.dev/v1", "KopfExample")
    assert obj == SOURCE


def test_without_a_kind_there_is_no_kind() -> None:
    obj = make({"metadata": {}})
    assert (obj.api_version, obj.kind) == (None, None)
    assert "kind" not in obj
    assert dict(obj) == {"metadata": {}}


def test_the_raw_content_is_as_it_arrived() -> None:
    raw = b'{ "metadata": {"name": "x"}, "spec": {} }'
    assert KubeObject.from_json(raw).raw == raw


def test_memory_is_not_taken_by_idle_objects() -> None:
    obj = make()
    assert not hasattr(obj, "__dict__")
    assert not hasattr(obj.head, "__dict__")


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda obj: pickle.loads(pickle.dumps(obj))])
@pytest.mark.parametrize("obj", [make(), Body(make()), KubeObject.from_dict(SOURCE)])
def test_objects_and_bodies_can_be_copied_and_sent_to_other_processes(obj: Any, duplicate: Any) -> None:
    assert dict(duplicate(obj)) == SOURCE


CONTENTS: list[dict[str, Any]] = [
    {},
    {"spec": {"a": 1}},
    {"spec": None},
    {"data": {"a": "b"}, "type": "Opaque"},
    {"rules": [1]},
    {"spec": {}, "x": 1},
]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("status", [{}, {"status": {"a": 1}}, {"status": None}])
def test_the_content_is_all_but_the_metadata_and_the_status(content: dict[str, Any], status: dict[str, Any]) -> None:
    source = {"apiVersion": "v1", "kind": "Kind", "metadata": {"name": "a"}, **content, **status}
    obj = make(source)
    assert codec.encode(obj.get_content()) == codec.encode(content)
    assert dict(obj) == source
    assert list(obj) == list(source)
    obj.forget_values()
    assert codec.encode(obj.get_content()) == codec.encode(content)
    obj.decode_content()
    assert {key: obj.get(key, "nothing") for key in source} == source
    assert obj.get("nothing") is None
    assert obj.for_users() == source


@pytest.mark.parametrize("one", CONTENTS)
@pytest.mark.parametrize("two", CONTENTS)
def test_the_content_is_compared_with_nothing_decoded(one: dict[str, Any], two: dict[str, Any]) -> None:
    obj = make({"metadata": {"name": "a", "generation": 1}, **one, "status": {"a": 1}})
    other = make({"metadata": {"name": "b", "generation": 2}, **two})
    assert obj.has_same_content(other) is (one == two)
