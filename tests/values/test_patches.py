from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import jsonpatch
import pytest
from hypothesis import given

from kopf._values.bodies import Body
from kopf._values.codec import NestingError
from kopf._values.patches import JSONPatchItem, Patch, merge, thaw
from tests.values.strategies import objects, patches


def apply(body: Any, items: list[JSONPatchItem]) -> Any:
    return jsonpatch.apply_patch(thaw(body), json.dumps(items))


# --- a dict with views ---


def test_an_empty_patch_is_false_and_stays_so_when_its_views_are_looked_at() -> None:
    patch = Patch()
    assert not patch.spec
    assert patch.status.get("field") is None
    assert "x" not in patch.meta
    assert list(patch.meta.labels) == []
    assert len(patch.metadata.annotations) == 0
    assert patch.meta.labels.pop("l", None) is None
    assert patch == {}
    assert not patch


@pytest.mark.parametrize("patch", [Patch({"spec": {}}), Patch(fns=[lambda body: None])])
def test_a_patch_with_something_is_true(patch: Patch) -> None:
    assert patch


def test_stanzas_appear_with_the_first_value_written() -> None:
    patch = Patch()
    patch.spec["field"] = 1
    patch.status["field"] = 2
    patch.meta["name"] = "x"
    patch.metadata.labels["l"] = "v"
    patch.meta.annotations["a"] = None
    assert patch == {
        "spec": {"field": 1},
        "status": {"field": 2},
        "metadata": {"name": "x", "labels": {"l": "v"}, "annotations": {"a": None}},
    }


def test_views_see_and_change_what_is_in_the_patch() -> None:
    patch = Patch({"spec": {"field": 1, "dict": {}}, "metadata": {"labels": {"l": "v"}}})
    assert patch.spec == {"field": 1, "dict": {}}
    assert patch.meta.labels == {"l": "v"}
    patch.spec["dict"]["x"] = 2
    patch.spec.setdefault("more", {})["y"] = 3
    patch.spec.update(field=4)
    del patch.meta.labels["l"]
    assert patch == {"spec": {"field": 4, "dict": {"x": 2}, "more": {"y": 3}}, "metadata": {"labels": {}}}
    assert repr(patch.spec) == "{'field': 4, 'dict': {'x': 2}, 'more': {'y': 3}}"


def test_views_stay_valid_when_stanzas_are_replaced() -> None:
    patch = Patch()
    spec, labels = patch.spec, patch.meta.labels
    patch["spec"] = {"field": 1}
    patch["metadata"] = {"labels": {"l": "v"}}
    assert spec == {"field": 1}
    assert labels == {"l": "v"}


def test_stanzas_that_were_to_be_removed_can_be_written_anew() -> None:
    patch = Patch({"spec": None, "metadata": {"labels": None}})
    assert patch.spec == {}
    assert patch.meta.labels == {}
    patch.spec["field"] = 1
    patch.meta.labels["l"] = "v"
    assert patch == {"spec": {"field": 1}, "metadata": {"labels": {"l": "v"}}}


@pytest.mark.parametrize("patch", [Patch(), Patch({"spec": {"other": 1}})])
def test_absent_keys_of_views(patch: Patch) -> None:
    before = dict(patch)
    with pytest.raises(KeyError):
        patch.spec["field"]
    with pytest.raises(KeyError):
        del patch.spec["field"]
    assert patch == before


def test_the_source_of_a_patch_can_be_any_mapping() -> None:
    assert Patch(MappingProxyType({"spec": {"field": 1}})) == {"spec": {"field": 1}}


# --- merging (RFC 7386) ---


# The test cases of the appendix A of the RFC 7386, those for objects.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merging_as_in_the_standard(target: Any, patch: Any, result: Any) -> None:
    merge(target, patch)
    assert target == result


@given(objects, patches)
def test_merging_twice_is_the_same_as_once(target: dict[str, Any], patch: dict[str, Any]) -> None:
    merge(target, patch)
    once = thaw(target)
    merge(target, patch)
    assert target == once


def test_what_was_merged_is_not_shared_with_the_patch() -> None:
    target: dict[str, Any] = {}
    patch = {"list": [{"x": 1}], "dict": {"y": {}}}
    merge(target, patch)
    target["list"][0]["x"] = 2
    target["list"].append(3)
    target["dict"]["y"]["z"] = 4
    assert patch == {"list": [{"x": 1}], "dict": {"y": {}}}


@pytest.mark.parametrize("key", ["dict", "list"])
def test_values_that_contain_themselves(key: str) -> None:
    loops: dict[str, Any] = {"dict": {}, "list": []}
    loops["dict"].update(a=loops["dict"], b=loops["dict"])
    loops["list"] += [loops["list"]] * 2
    for action in (thaw, lambda value: merge({}, value), lambda value: Patch(value).apply_to({})):
        with pytest.raises(NestingError):
            action({"key": loops[key]})


def test_thawing_makes_plain_mutable_copies() -> None:
    source = Body({"metadata": {"labels": MappingProxyType({"l": "v"})}, "items": ({"a": [1]},)})
    copy = thaw(source)
    assert copy == {"metadata": {"labels": {"l": "v"}}, "items": [{"a": [1]}]}
    assert json.dumps(copy)
    copy["items"][0]["a"].append(2)
    assert source["items"] == ({"a": [1]},)


# --- JSON patches (RFC 6902) ---


@pytest.mark.parametrize(
    ("body", "patch", "items"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"b": None}, []),
        ({"a": 1}, {"a": 2}, [{"op": "replace", "path": "/a", "value": 2}]),
        ({}, {"a": 2}, [{"op": "add", "path": "/a", "value": 2}]),
        ({"a": 1}, {"a": None}, [{"op": "remove", "path": "/a"}]),
        (
            {},
            {"metadata": {"labels": {"x": "y"}}},
            [{"op": "add", "path": "/metadata", "value": {"labels": {"x": "y"}}}],
        ),
        ({"a": {}}, {"a": {"my.domain/x": 1}}, [{"op": "add", "path": "/a/my.domain~1x", "value": 1}]),
        ({"a": {"~/": 1}}, {"a": {"~/": 2}}, [{"op": "replace", "path": "/a/~0~1", "value": 2}]),
        ({"a": {"~1": 1}}, {"a": {"~1": None}}, [{"op": "remove", "path": "/a/~01"}]),
    ],
)
def test_json_patches_are_minimal_and_escaped(body: Any, patch: Any, items: list[Any]) -> None:
    assert Patch(patch, body=body).as_json_patch() == items


def test_a_json_patch_without_a_body_would_overwrite_what_is_there() -> None:
    with pytest.raises(ValueError, match="relative to a body"):
        Patch({"spec": {"x": 1}}).as_json_patch()
    with pytest.raises(ValueError, match="relative to a body"):
        Patch({"spec": {"x": 1}}).as_json_patch(None)
    assert Patch().as_json_patch() == []


@pytest.mark.parametrize("own", [None, {"spec": {"x": 2}}], ids=["bodiless", "of another body"])
def test_a_json_patch_relative_to_an_explicit_body(own: Any) -> None:
    patch = Patch({"spec": {"x": 1}}, body=own, fns=[lambda body: body["spec"].update(z=3)])
    add_z = {"op": "add", "path": "/spec/z", "value": 3}
    assert patch.as_json_patch({"spec": {"x": 1, "y": 2}}) == [add_z]
    assert patch.as_json_patch({"spec": {"x": 0, "y": 2}}) == [{"op": "replace", "path": "/spec/x", "value": 1}, add_z]
    assert patch.as_json_patch(Body({"spec": {}})) == [{"op": "add", "path": "/spec/x", "value": 1}, add_z]
    assert patch.as_json_patch({}) == [{"op": "add", "path": "/spec", "value": {"x": 1, "z": 3}}]


@given(objects, patches)
def test_a_json_patch_does_the_same_as_the_merge_patch(body: dict[str, Any], patch: dict[str, Any]) -> None:
    expected = thaw(body)
    merge(expected, patch)
    assert apply(body, Patch(patch, body=body).as_json_patch()) == expected


@given(objects, patches, objects)
def test_a_json_patch_does_what_the_functions_did(
    body: dict[str, Any], patch: dict[str, Any], target: dict[str, Any]
) -> None:
    def transform(raw: dict[str, Any]) -> None:
        raw.clear()
        raw.update(thaw(target))

    assert apply(body, Patch(patch, body=body, fns=[transform]).as_json_patch()) == target


def test_values_that_are_moved_between_lists_and_dicts_are_not_mixed_up() -> None:
    def transform(raw: dict[str, Any]) -> None:
        raw["spec"]["env"]["key"] = raw["spec"]["args"].pop()
        raw["spec"]["args"].append("new")

    body = {"spec": {"args": ["old"], "env": {}}}
    items = Patch(body=body, fns=[transform]).as_json_patch()
    assert apply(body, items) == {"spec": {"args": ["new"], "env": {"key": "old"}}}


def test_functions_see_the_merged_body_and_each_others_changes() -> None:
    seen: list[Any] = []
    body = Body({"metadata": {"name": "x"}, "spec": {"list": [1]}})
    patch = Patch({"spec": {"field": "merged"}}, body=body)

    @patch.fns.append
    def one(raw: dict[str, Any]) -> None:
        seen.append(raw["spec"]["field"])
        raw["spec"]["list"].append(2)

    @patch.fns.append
    def two(raw: dict[str, Any]) -> None:
        seen.append(raw["spec"]["list"])
        raw["spec"]["list"] = [*raw["spec"]["list"], 3]

    assert apply(body, patch.as_json_patch())["spec"] == {"list": [1, 2, 3], "field": "merged"}
    assert seen == ["merged", [1, 2]]


def test_neither_the_body_nor_the_patch_are_modified_by_functions() -> None:
    def transform(raw: dict[str, Any]) -> None:
        raw["spec"]["own"].append(1)
        raw["spec"]["list"].append(2)
        raw["spec"]["dict"]["x"] = 3

    body: dict[str, Any] = {"spec": {"own": []}}
    patch = Patch({"spec": {"list": [1], "dict": {"y": 1}}}, body=body, fns=[transform])
    first = patch.as_json_patch()
    assert patch.as_json_patch() == first
    assert body == {"spec": {"own": []}}
    assert patch == {"spec": {"list": [1], "dict": {"y": 1}}}
