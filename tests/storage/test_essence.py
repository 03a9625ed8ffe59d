from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

import kopf
from kopf._storage.essence import build_essence, drop_annotations, drop_field
from kopf._values import codec
from kopf._values.bodies import Body, BodyEssence
from kopf._values.objects import KubeObject
from tests.values.strategies import objects


def make_body(source: dict[str, Any]) -> Body:
    return Body(KubeObject.from_json(codec.encode(source)))


@pytest.mark.parametrize("make", [Body, make_body])
def test_system_fields_are_not_essential(make: Any) -> None:
    body = make(
        {
            "apiVersion": "kopf.dev/v1",
            "kind": "KopfExample",
            "metadata": {
                "name": "x",
                "namespace": "ns",
                "uid": "uid1",
                "resourceVersion": "1",
                "generation": 1,
                "creationTimestamp": "2026-11-21T00:00:00Z",
                "deletionTimestamp": "2026-11-21T00:00:00Z",
                "deletionGracePeriodSeconds": 0,
                "generateName": "x-",
                "selfLink": "/",
                "managedFields": [{}],
                "finalizers": ["f"],
                "ownerReferences": [{}],
                "labels": {"l": "v"},
                "annotations": {"a": "v"},
            },
            "spec": {"field": "value"},
            "data": {"key": "value"},
            "status": {"done": True},
        }
    )
    assert build_essence(body) == {
        "metadata": {"labels": {"l": "v"}, "annotations": {"a": "v"}},
        "spec": {"field": "value"},
        "data": {"key": "value"},
    }


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": {}, "annotations": {}},
        {"labels": None, "annotations": None},
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
        {"annotations": {"kopf.zalando.org/last-handled-configuration": "{}", "kopf.zalando.org/fn": "{}"}},
        {"annotations": {"my-op.com/kopf-managed": "yes", "my-op.com/last-handled-configuration": "{}"}},
    ],
)
def test_empty_stanzas_of_the_metadata_are_removed(metadata: dict[str, Any]) -> None:
    assert build_essence(Body({"metadata": metadata, "spec": {"field": 1}})) == {"spec": {"field": 1}}


def test_empty_stanzas_outside_of_the_metadata_are_essential() -> None:
    # It is so in the annotations of the objects that are handled already: `{"spec":{}}`.
    assert build_essence(Body({"metadata": {}, "spec": {}, "data": {"x": []}})) == {"spec": {}, "data": {"x": []}}


@pytest.mark.parametrize(
    ("annotation", "essential"),
    [
        ("some", True),
        ("some.com/x", True),
        ("kubectl.kubernetes.io/restartedAt", True),
        ("kubectl.kubernetes.io/last-applied-configuration", False),
        ("kopf.zalando.org/fn", False),
        ("kopf.zalando.org/touch-dummy", False),
        ("kopf.zalando.org", True),
        ("kopf.zalando.organic/x", True),
        ("sub.kopf.zalando.org/x", False),
        ("xkopf.zalando.org/x", True),
        ("marked.com/kopf-managed", False),
        ("marked.com/x", False),
        ("marked.com", True),
        ("not.marked.com/x", True),
        ("marked.community/x", True),
    ],
)
def test_annotations_of_frameworks_are_not_essential(annotation: str, essential: bool) -> None:
    annotations = {"marked.com/kopf-managed": "yes", annotation: "value"}
    essence = build_essence(Body({"metadata": {"annotations": annotations}}))
    assert essence == ({"metadata": {"annotations": {annotation: "value"}}} if essential else {})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["status"], {"spec": {"a": 1}, "status": {"x": {"y": 1, "z": 2}}}),
        (["status.x"], {"spec": {"a": 1}, "status": {"x": {"y": 1, "z": 2}}}),
        (["status.x.y", ("status", "x", "z")], {"spec": {"a": 1}, "status": {"x": {"y": 1, "z": 2}}}),
        (["status.x.y"], {"spec": {"a": 1}, "status": {"x": {"y": 1}}}),
        (["metadata.finalizers"], {"spec": {"a": 1}, "metadata": {"labels": {"l": "v"}, "finalizers": ["f"]}}),
        (["kind"], {"spec": {"a": 1}, "kind": "X"}),
        (["status.absent", "absent", "spec.a", "spec", None], {"spec": {"a": 1}}),
    ],
)
def test_extra_fields_are_included(fields: list[Any], expected: dict[str, Any]) -> None:
    body = Body(
        {
            "kind": "X",
            "metadata": {"name": "x", "labels": {"l": "v"}, "finalizers": ["f"]},
            "spec": {"a": 1},
            "status": {"x": {"y": 1, "z": 2}},
        }
    )
    assert build_essence(body, fields) == {"metadata": {"labels": {"l": "v"}}, **expected}


@given(spec=objects, status=objects)
def test_the_body_is_not_modified(spec: Any, status: Any) -> None:
    source = {"metadata": {"name": "x", "annotations": {"kopf.zalando.org/x": "1"}}, "spec": spec, "status": status}
    before = json.dumps(source)
    essence = build_essence(Body(source), ["status.a", "status.a.b", "spec.a", "spec.b.a", "metadata.name"])
    drop_field(essence, ("spec", "a"))
    drop_annotations(essence, prefix="x")
    assert json.dumps(source) == before


ESSENCE = BodyEssence(
    metadata={"annotations": {"own.com/x": "1", "own.com/y": "2", "own.community/x": "3", "own.com": "4"}},
    spec={"a": {"b": 1}, "c": 2},
)


@pytest.mark.parametrize(
    ("options", "annotations"),
    [
        ({"prefix": "own.com"}, {"own.community/x": "3", "own.com": "4"}),
        ({"names": ["own.com/x", "own.com", "absent"]}, {"own.com/y": "2", "own.community/x": "3"}),
        ({"prefix": "own.com", "names": ["own.com", "own.community/x"]}, None),
    ],
)
def test_dropping_annotations(options: Any, annotations: Any) -> None:
    assert drop_annotations(ESSENCE, **options).get("metadata") == (annotations and {"annotations": annotations})


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        (("spec", "a", "b"), {"c": 2}),
        (("spec", "c"), {"a": {"b": 1}}),
        (("spec",), None),
    ],
)
def test_dropping_fields(path: tuple[str, ...], spec: Any) -> None:
    assert drop_field(ESSENCE, path).get("spec") == spec


def test_nothing_is_copied_if_there_is_nothing_to_drop() -> None:
    assert drop_field(ESSENCE, ("status", "x")) is ESSENCE
    assert drop_annotations(ESSENCE, prefix="other.com", names=["absent"]) is ESSENCE


# --- the helpers of the descendants of the storages ---


@pytest.mark.parametrize(
    ("essence", "expected"),
    [
        ({}, {}),
        ({"metadata": {"annotations": {}, "labels": {}}, "status": {}, "spec": {}}, {"spec": {}}),
        (
            {"metadata": {"annotations": {}, "finalizers": []}, "status": {"a": {}}},
            {"metadata": {"finalizers": []}, "status": {"a": {}}},
        ),
    ],
)
def test_storages_remove_empty_stanzas(essence: Any, expected: Any) -> None:
    kopf.StatusDiffBaseStorage.remove_empty_stanzas(essence)
    assert essence == expected


@pytest.mark.parametrize(
    ("essence", "expected"),
    [
        ({}, {}),
        ({"metadata": {}}, {"metadata": {}}),
        ({"metadata": {"annotations": {"a": "1", "b": "2"}}}, {"metadata": {"annotations": {"b": "2"}}}),
    ],
)
def test_storages_remove_annotations(essence: Any, expected: Any) -> None:
    kopf.StatusProgressStorage.remove_annotations(essence, {"a", "x"})
    assert essence == expected
