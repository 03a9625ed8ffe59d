from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kopf._values import codec
from kopf._values.bodies import Body, Meta, Spec, Status
from kopf._values.objects import KubeObject

SOURCE: dict[str, Any] = {
    "metadata": {
        "name": "name1",
        "namespace": "ns1",
        "uid": "uid1",
        "labels": {"l": "v"},
        "annotations": {"a": "v"},
        "creationTimestamp": "2026-11-21T00:00:00Z",
        "deletionTimestamp": "2026-11-21T00:00:01Z",
    },
    "spec": {"field": "value"},
    "status": {"done": True},
}

Make = Callable[[Mapping[str, Any]], Body]


def of_dict(source: Mapping[str, Any]) -> Body:
    return Body(source)


def of_json(source: Mapping[str, Any]) -> Body:
    return Body(KubeObject.from_json(codec.encode(dict(source))))


def of_body(source: Mapping[str, Any]) -> Body:
    return Body(Body(source))


@pytest.fixture(params=[of_dict, of_json, of_body])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


VIEWS: list[tuple[Callable[[Body], Mapping[str, Any]], dict[str, Any]]] = [
    (lambda body: body, SOURCE),
    (lambda body: body.spec, SOURCE["spec"]),
    (lambda body: body.status, SOURCE["status"]),
    (lambda body: body.meta, SOURCE["metadata"]),
    (lambda body: body.metadata, SOURCE["metadata"]),
    (lambda body: body.meta.labels, SOURCE["metadata"]["labels"]),
    (lambda body: body.meta.annotations, SOURCE["metadata"]["annotations"]),
]


@pytest.mark.parametrize(("get_view", "expected"), VIEWS)
def test_views_are_mappings_of_their_stanzas(
    make: Make, get_view: Callable[[Body], Mapping[str, Any]], expected: dict[str, Any]
) -> None:
    view = get_view(make(SOURCE))
    assert view == expected
    assert dict(view) == expected
    assert list(view) == list(expected)
    assert len(view) == len(expected)
    assert all(key in view for key in expected)
    assert "absent" not in view
    assert view.get("absent", 123) == 123
    assert repr(view) == repr(expected)
    assert isinstance(view, Mapping)
    with pytest.raises(KeyError):
        view["absent"]


@pytest.mark.parametrize(("get_view", "_"), VIEWS)
def test_views_are_read_only(get_view: Callable[[Body], Any], _: object) -> None:
    view = get_view(Body(SOURCE))
    with pytest.raises(TypeError):
        view["key"] = "value"
    with pytest.raises(TypeError):
        del view["key"]


@pytest.mark.parametrize(
    "source",
    [
        {"metadata": {}},
        {"metadata": {"labels": {}, "annotations": {}}, "spec": {}, "status": {}},
        {"metadata": {"labels": None, "annotations": None}, "spec": None, "status": None},
    ],
)
def test_absent_stanzas_are_empty(make: Make, source: dict[str, Any]) -> None:
    body = make(source)
    assert body.spec == body.status == body.meta.labels == body.meta.annotations == {}
    assert not body.spec
    assert body.meta.name is body.meta.uid is body.meta.namespace is None
    assert body.meta.creation_timestamp is body.meta.deletion_timestamp is None


def test_a_body_of_nothing() -> None:
    body = Body({})
    assert body == body.meta == body.spec == body.status == {}
    assert body.object.head.name == ""


def test_shortcuts_of_the_metadata(make: Make) -> None:
    meta = make(SOURCE).metadata
    assert (meta.name, meta.namespace, meta.uid) == ("name1", "ns1", "uid1")
    assert meta.creation_timestamp == "2026-11-21T00:00:00Z"
    assert meta.deletion_timestamp == "2026-11-21T00:00:01Z"


def test_all_views_are_live(make: Make) -> None:
    body = make(SOURCE)
    views: list[Mapping[str, Any]] = [body.spec, body.status, body.meta, body.meta.labels, body.meta.annotations]
    new: dict[str, Any] = {
        "metadata": {"name": "name2", "labels": {"l": "2"}, "annotations": {"a": "2"}},
        "spec": {"field": 2},
        "status": {},
    }
    body._replace_with(new)
    assert body == new
    assert views == [{"field": 2}, {}, new["metadata"], {"l": "2"}, {"a": "2"}]
    assert body.object.head.name == "name2"


@pytest.mark.parametrize("cls", [Spec, Status, Meta])
def test_views_can_be_made_of_bodies(cls: type[Spec] | type[Status] | type[Meta]) -> None:
    assert cls(Body(SOURCE)) == SOURCE[{Spec: "spec", Status: "status", Meta: "metadata"}[cls]]


def test_the_object_behind_the_body_is_not_decoded_twice(make: Make) -> None:
    obj = KubeObject.from_json(codec.encode(SOURCE))
    assert Body(obj).object is obj
    body = make(SOURCE)
    assert body.object is body.object
    assert body.object.head.labels == {"l": "v"}
