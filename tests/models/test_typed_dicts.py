"""Typed dicts in models: which of their fields are required, whether the annotations are evaluated or not."""

from __future__ import annotations

from typing import NotRequired, Required, TypedDict

import kopf
from kopf._models.structural import make_schema


class Strict(TypedDict):
    first: str
    second: NotRequired[int]


class Loose(TypedDict, total=False):
    first: Required[str]
    second: int


def test_marks_of_fields_are_seen_if_annotations_are_postponed() -> None:
    for cls in (Strict, Loose):
        schema = make_schema(cls, cls)
        assert schema["required"] == ["first"]
        assert schema["properties"] == {"first": {"type": "string"}, "second": {"type": "integer"}}


def test_conditions_are_merged_by_their_types() -> None:
    schema = make_schema(kopf.ConditionList, Strict)
    assert schema["x-kubernetes-list-type"] == "map"
    assert schema["x-kubernetes-list-map-keys"] == ["type"]
    assert schema["items"]["required"] == ["type", "status", "reason", "message", "lastTransitionTime"]
