from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings

from kopf._storage.diffbase import (
    AnnotationsDiffBaseStorage,
    DiffBaseStorage,
    MultiDiffBaseStorage,
    StatusDiffBaseStorage,
)
from kopf._values.bodies import Body, BodyEssence
from kopf._values.patches import Patch, merge, thaw
from tests.values.strategies import objects

ESSENCE = BodyEssence(spec={"field": "value"}, metadata={"labels": {"l": "v"}})
NOTHING = Body({"metadata": {}})

STORAGES: list[DiffBaseStorage] = [
    AnnotationsDiffBaseStorage(),
    AnnotationsDiffBaseStorage(prefix="my-op.example.com", key="diff/base"),
    AnnotationsDiffBaseStorage(key="x" * 100),
    StatusDiffBaseStorage(),
    StatusDiffBaseStorage(field=("spec", "my.domain/base")),
    MultiDiffBaseStorage([StatusDiffBaseStorage(), AnnotationsDiffBaseStorage(prefix="my-op.example.com")]),
]


def store(storage: DiffBaseStorage, essence: BodyEssence = ESSENCE, body: Body = NOTHING) -> Patch:
    patch = Patch()
    storage.store(body=body, patch=patch, essence=essence)
    return patch


def apply(body: dict[str, Any], patch: Patch) -> Body:
    result = thaw(body)
    merge(result, patch)
    return Body(result)


def with_annotation(text: str) -> Body:
    return Body({"metadata": {"annotations": {"kopf.zalando.org/last-handled-configuration": text}}})


# --- the persisted format ---


def test_the_format_of_the_annotation() -> None:
    text = '{"spec":{"field":"value"},"metadata":{"labels":{"l":"v"}}}\n'
    assert store(AnnotationsDiffBaseStorage()) == {
        "metadata": {"annotations": {"kopf.zalando.org/last-handled-configuration": text}}
    }
    assert AnnotationsDiffBaseStorage().fetch(body=with_annotation(text)) == ESSENCE


def test_escaped_texts_of_the_older_versions_are_read() -> None:
    body = with_annotation('{"spec": {"field": "\\u0451\\""}}\n')
    assert AnnotationsDiffBaseStorage().fetch(body=body) == {"spec": {"field": 'ё"'}}


def test_custom_annotations_are_marked_with_their_prefix() -> None:
    assert list(store(AnnotationsDiffBaseStorage(prefix="my-op.example.com", key="key")).metadata.annotations) == [
        "my-op.example.com/key",
        "my-op.example.com/kopf-managed",
    ]


@pytest.mark.parametrize("v1", [True, False])
def test_long_keys_are_stored_by_all_their_names_and_found_by_any(v1: bool) -> None:
    storage = AnnotationsDiffBaseStorage(key="x" * 63, v1=v1)
    annotations = store(storage).metadata.annotations
    assert len(annotations) == (2 if v1 else 1)
    for name, text in annotations.items():
        assert storage.fetch(body=Body({"metadata": {"annotations": {name: text}}})) == ESSENCE


@pytest.mark.parametrize(
    ("storage", "path"),
    [
        (StatusDiffBaseStorage(), ["status", "kopf", "last-handled-configuration"]),
        (StatusDiffBaseStorage(name="my-op"), ["status", "my-op", "last-handled-configuration"]),
        (StatusDiffBaseStorage(field="status.diff-base"), ["status", "diff-base"]),
        (StatusDiffBaseStorage(name="my-op", field="spec.{name}.base"), ["spec", "my-op", "base"]),
        (StatusDiffBaseStorage(field=("status", "a.b")), ["status", "a.b"]),
    ],
)
def test_the_format_of_the_status(storage: StatusDiffBaseStorage, path: list[str]) -> None:
    value: Any = store(storage)
    assert storage.field == tuple(path)
    for key in path:
        assert list(value) == [key]
        value = value[key]
    assert json.loads(value) == ESSENCE


def test_the_field_of_the_status_can_be_changed() -> None:
    storage = StatusDiffBaseStorage()
    storage.field = "status.other"
    assert storage.field == ("status", "other")
    assert list(store(storage)["status"]) == ["other"]


# --- fetching ---


@pytest.mark.parametrize("storage", STORAGES)
def test_unhandled_objects_have_no_last_handled_configuration(storage: DiffBaseStorage) -> None:
    assert storage.fetch(body=NOTHING) is None
    assert storage.fetch(body=Body({})) is None
    assert storage.fetch(body=Body({"metadata": {"annotations": {"other": "{}"}}, "status": {"kopf": {}}})) is None


@pytest.mark.parametrize("text", ["", "{", "garbage"])
@pytest.mark.parametrize(
    "make",
    [
        with_annotation,
        lambda text: Body({"metadata": {"name": "x"}, "status": {"kopf": {"last-handled-configuration": text}}}),
    ],
)
def test_malformed_configurations_are_reported_and_presumed_absent(
    make: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MultiDiffBaseStorage([AnnotationsDiffBaseStorage(), StatusDiffBaseStorage()])
    with caplog.at_level(logging.WARNING):
        assert storage.fetch(body=make(text)) is None
    assert "treated as never handled" in caplog.text


@pytest.mark.parametrize("text", ["null", "[]", "1", '"text"'])
def test_what_is_not_a_configuration_is_none(text: str) -> None:
    assert AnnotationsDiffBaseStorage().fetch(body=with_annotation(text)) is None


@pytest.mark.parametrize("storage", STORAGES)
@settings(max_examples=settings().max_examples // 2)
@given(spec=objects, data=objects)
def test_what_is_stored_is_fetched(storage: DiffBaseStorage, spec: Any, data: Any) -> None:
    source = {"metadata": {"name": "x", "labels": {"l": "v"}}, "spec": spec, "data": data, "status": {"done": True}}
    essence = storage.build(body=Body(source))
    body = apply(source, store(storage, essence, Body(source)))
    assert storage.fetch(body=body) == essence


# --- building ---


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    "source",
    [
        {"metadata": {}},
        {"metadata": {"labels": {"l": "v"}, "annotations": {"a": "v"}}, "spec": {"x": {}}, "status": {"done": True}},
    ],
)
def test_storing_is_not_a_change_of_the_object(storage: DiffBaseStorage, source: dict[str, Any]) -> None:
    before = storage.build(body=Body(source), extra_fields=["status"])
    body = apply(source, store(storage, before, Body(source)))
    assert storage.build(body=body, extra_fields=["status"]) == before


def test_storages_of_other_operators_are_not_changes_of_the_object() -> None:
    ours = AnnotationsDiffBaseStorage(prefix="one.com")
    theirs = AnnotationsDiffBaseStorage(prefix="two.com")
    source = {"metadata": {"annotations": {"a": "v"}}, "spec": {}}
    body = apply(source, store(theirs))
    assert ours.build(body=body) == ours.build(body=Body(source))


@pytest.mark.parametrize(
    ("ignored", "expected"),
    [
        ([], {"metadata": {"labels": {"l": "v"}}, "spec": {"a": 1, "b": {"c": 2}}}),
        (["spec.a"], {"metadata": {"labels": {"l": "v"}}, "spec": {"b": {"c": 2}}}),
        (["spec.b.c", "spec.absent"], {"metadata": {"labels": {"l": "v"}}, "spec": {"a": 1}}),
        (["spec", ("metadata", "labels", "l")], {}),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        AnnotationsDiffBaseStorage,
        StatusDiffBaseStorage,
        lambda ignored_fields: MultiDiffBaseStorage([AnnotationsDiffBaseStorage()], ignored_fields=ignored_fields),
        lambda ignored_fields: MultiDiffBaseStorage([AnnotationsDiffBaseStorage(ignored_fields=ignored_fields)]),
    ],
)
def test_ignored_fields_are_not_essential(make: Any, ignored: list[Any], expected: dict[str, Any]) -> None:
    source: dict[str, Any] = {"metadata": {"labels": {"l": "v"}}, "spec": {"a": 1, "b": {"c": 2}}}
    before = json.dumps(source)
    assert make(ignored_fields=ignored).build(body=Body(source)) == expected
    assert json.dumps(source) == before


@pytest.mark.parametrize("storage", STORAGES)
def test_extra_fields_are_essential(storage: DiffBaseStorage) -> None:
    body = Body({"metadata": {"finalizers": ["f"]}, "status": {"x": 1, "y": 2}})
    assert storage.build(body=body, extra_fields=["status.x", "metadata.finalizers"]) == {
        "status": {"x": 1},
        "metadata": {"finalizers": ["f"]},
    }


# --- several storages ---


def test_the_first_storage_that_has_it_is_read_but_all_are_written() -> None:
    status, annotations = StatusDiffBaseStorage(), AnnotationsDiffBaseStorage()
    multi = MultiDiffBaseStorage([status, annotations])
    one, two = BodyEssence(spec={"version": 1}), BodyEssence(spec={"version": 2})
    only_second = apply({"metadata": {}}, store(annotations, two))
    both = apply(dict(only_second), store(status, one))
    assert multi.fetch(body=only_second) == two
    assert multi.fetch(body=both) == one
    written = apply({"metadata": {}}, store(multi))
    assert status.fetch(body=written) == annotations.fetch(body=written) == ESSENCE


def test_the_interface_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        DiffBaseStorage()  # type: ignore[abstract]  # this is what is tested
