"""What the API servers can filter out by themselves: nobody may notice a difference."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kopf
from kopf._admission.webhook_declarations import list_conditions, select_objects
from kopf._handlers.causes import ResourceCause
from kopf._handlers.filters import matches
from kopf._handlers.handlers import WebhookHandler
from kopf._values.bodies import Body
from kopf._values.patches import Patch
from kopf._values.resources import Resource
from kopf_cluster.cel.expressions import compile_expression
from tests.admission.reviewing import describe

VARIABLES = {"object": "dyn", "oldObject": "dyn", "request": "dyn"}
PODS, NAMESPACES = Resource("", "v1", "pods", namespaced=True), Resource("", "v1", "namespaces", namespaced=False)


def declare(**options: Any) -> WebhookHandler:
    registry = kopf.OperatorRegistry()
    kopf.on.validate("pods", registry=registry, **options)(lambda **_: None)
    return registry.webhooks[0]


def meets(handler: WebhookHandler, new: Any, old: Any) -> bool:
    """Evaluate the match conditions as the API server does."""
    values = {"object": new, "oldObject": old, "request": {}}
    conditions = list_conditions(handler)
    return all(compile_expression(item["expression"], VARIABLES).evaluate(values) is True for item in conditions)


def is_matching(handler: WebhookHandler, body: Any) -> bool:
    """Check the filters as the operator does."""
    cause = ResourceCause(
        logger=logging.getLogger(), memo=None, indices={}, resource=PODS, body=Body(body or {}), patch=Patch()
    )
    return matches(handler, cause)


LABELS: list[tuple[Any, list[Any]]] = [
    ({"l": "v"}, [{"key": "l", "operator": "In", "values": ["v"]}]),
    ({"l": ""}, [{"key": "l", "operator": "In", "values": [""]}]),
    ({"l": kopf.PRESENT}, [{"key": "l", "operator": "Exists"}]),
    ({"l": kopf.ABSENT}, [{"key": "l", "operator": "DoesNotExist"}]),
    ({"a.example.com/b": "c"}, [{"key": "a.example.com/b", "operator": "In", "values": ["c"]}]),
    (
        {"a": "1", "b": kopf.PRESENT},
        [{"key": "a", "operator": "In", "values": ["1"]}, {"key": "b", "operator": "Exists"}],
    ),
    ({"l": lambda value, **_: True}, []),
    ({"l": "not a label's value!"}, []),
    ({"l": "x" * 64}, []),
    ({"not a label": kopf.PRESENT}, []),
    ({"UPPER.case/x": kopf.PRESENT}, []),
    ({}, []),
    (None, []),
]


@pytest.mark.parametrize(("labels", "expressions"), LABELS, ids=describe)
def test_labels(labels: Any, expressions: list[Any]) -> None:
    assert select_objects(declare(labels=labels)) == ({"matchExpressions": expressions} if expressions else {})


@pytest.mark.parametrize("subresource", ["exec", "*"])
def test_absent_labels_of_subresources_are_left_to_the_operator(subresource: str) -> None:
    """What cannot have labels is not selected by the API servers even if a label must be absent."""
    handler = declare(labels={"x": kopf.ABSENT, "y": kopf.PRESENT}, subresource=subresource)
    assert select_objects(handler) == {"matchExpressions": [{"key": "y", "operator": "Exists"}]}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"annotations": {}},
        {"annotations": {"a": lambda value, **_: True}},
        {"when": lambda **_: True},
        {"field": "spec.x", "value": 1},
        {"field": "spec.x", "value": True},
        {"field": "spec.x", "value": {"a": "b"}},
        {"field": "spec.x", "value": lambda value, **_: True},
        {"annotations": {"a": "new\nline"}},
        {"annotations": {"\0": kopf.PRESENT}},
        {"field": ("spec", "\ud800")},
    ],
    ids=describe,
)
def test_what_cannot_be_said_exactly_is_not_said(options: Any) -> None:
    assert list_conditions(declare(**options)) == []


keys = st.sampled_from(["a", "b/c", 'it\'s "quoted"', "ключ", "\\n\\", "{{x}}", "$"])
metadata_filters = st.sampled_from(["", "value", '"; true', "знач\U0001f600", kopf.PRESENT, kopf.ABSENT])
strings = st.sampled_from(["", "value", '"; true', "знач\U0001f600", "other"])
anything = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, 0.5]) | strings,
    lambda values: st.lists(values, max_size=2) | st.dictionaries(keys, values, max_size=2),
    max_leaves=5,
)
annotations_or_none = st.none() | st.dictionaries(keys, strings, max_size=3)
bodies = st.none() | st.builds(
    lambda annotations, spec: {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"} | ({} if annotations is None else {"annotations": annotations}),
        **({} if spec is ... else {"spec": spec}),
    },
    annotations_or_none,
    st.just(...) | anything,
)


@given(filters=st.dictionaries(keys, metadata_filters, max_size=2), new=bodies, old=bodies)
def test_annotations(filters: dict[str, Any], new: Any, old: Any) -> None:
    handler = declare(annotations=filters)
    assert meets(handler, new, old) == is_matching(handler, old if new is None else new)


@given(path=st.lists(keys, max_size=2), value=st.none() | metadata_filters, new=bodies, old=bodies)
def test_fields(path: list[str], value: Any, new: Any, old: Any) -> None:
    handler = declare(field=("spec", *path), value=value)
    assert len(list_conditions(handler)) == 1
    assert meets(handler, new, old) == is_matching(handler, old if new is None else new)


def test_names_of_conditions_are_unique() -> None:
    handler = declare(annotations={"a": "1", "b": kopf.PRESENT}, field="spec.x")
    assert [item["name"] for item in list_conditions(handler)] == ["filter-1", "filter-2", "filter-3"]
