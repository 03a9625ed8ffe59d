"""What all handlers of a resource agree on, so that the server can select the objects."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from kopf._controller.pushed_selectors import PushedSelectors, find_common
from kopf._handlers.registry import OperatorRegistry
from kopf._settings.settings import WatchingSettings
from kopf._values.objects import ObjectMeta
from kopf._values.resources import Resource

RESOURCE = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)
GLOBAL = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=False)


def find(*options: dict[str, Any], resource: Resource = RESOURCE, **settings: Any) -> dict[str, str]:
    """Declare handlers of different kinds with these filters; find what is pushed."""
    registry = OperatorRegistry()
    decorators: list[Any] = [kopf.on.event, kopf.index, kopf.on.create, kopf.on.update, kopf.on.resume]
    for number, (decorator, filters) in enumerate(zip(decorators, options, strict=False)):
        decorator("kopfexamples", registry=registry, id=f"fn{number}", **filters)(lambda **_: None)
    handlers = registry.plan([resource])[resource]
    return find_common(handlers, resource, WatchingSettings(**settings)).add_to({})


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([{"a": "x"}], "a=x"),
        ([{"a": "x"}] * 5, "a=x"),
        ([{"a": "x", "b": "y"}, {"a": "x", "b": "y"}], "a=x,b=y"),
        ([{"a": "x", "b": "y"}, {"a": "x", "c": "z"}], "a=x"),
        ([{"a": ""}], "a="),
        ([{"example.com/a": "x"}], "example.com/a=x"),
        ([{"a": kopf.PRESENT}], "a"),
        ([{"a": kopf.PRESENT}, {"a": "x"}], "a"),
        ([{"a": "x"}, {"a": "y"}], "a in (x,y)"),
        ([{"a": "x"}, {"a": "y"}, {"a": "x"}], "a in (x,y)"),
        ([{"a": ""}, {"a": "y"}], "a"),
        ([{"a": kopf.ABSENT}, {"a": kopf.ABSENT}], "!a"),
        ([{"a": "x", "b": lambda value, **_: True}], "a=x"),
    ],
)
def test_what_is_agreed_on(labels: list[dict[str, Any]], expected: str) -> None:
    assert find(*({"labels": item} for item in labels)) == {"labelSelector": expected}


@pytest.mark.parametrize(
    "labels",
    [
        [{}],
        [{"a": "x"}, {}],
        [{"a": "x"}, {"b": "x"}],
        [{"a": "x"}, {"a": kopf.ABSENT}],
        [{"a": kopf.PRESENT}, {"a": kopf.ABSENT}],
        [{"a": lambda value, **_: True}],
        [{"a": "x"}, {"a": lambda value, **_: True}],
        [{"a": "with spaces"}],
        [{"a": "x"}, {"a": "x" * 64}],
        [{"a": "a,b=c"}],
        [{"not a label": "x"}],
    ],
)
def test_what_is_not_agreed_on_or_not_possible(labels: list[dict[str, Any]]) -> None:
    assert find(*({"labels": item} for item in labels)) == {}


def test_many_values_are_not_listed() -> None:
    registry = OperatorRegistry()
    for number in range(51):
        kopf.on.event("kopfexamples", registry=registry, id=f"{number}", labels={"a": f"{number}"})(lambda **_: None)
    handlers = registry.plan([RESOURCE])[RESOURCE]
    assert find_common(handlers, RESOURCE, WatchingSettings()).add_to({}) == {"labelSelector": "a"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([{"field": "metadata.name", "value": "x"}], "metadata.name=x"),
        ([{"field": "metadata.name", "value": "system:x"}] * 3, "metadata.name=system:x"),
        ([{"field": ("metadata", "namespace"), "value": "x"}], "metadata.namespace=x"),
        ([{"field": "metadata.name", "value": "x"}, {"field": "metadata.name", "value": "y"}], None),
        ([{"field": "metadata.name", "value": "x"}, {"field": "metadata.namespace", "value": "x"}], None),
        ([{"field": "metadata.name", "value": "x"}, {}], None),
        ([{"field": "metadata.name"}], None),
        ([{"field": "metadata.name", "value": kopf.PRESENT}], None),
        ([{"field": "metadata.name", "value": lambda value, **_: True}], None),
        ([{"field": "metadata.name", "value": "x,y"}], None),
        ([{"field": "metadata.generateName", "value": "x"}], None),
        ([{"field": "spec.name", "value": "x"}], None),
    ],
)
def test_fields(options: list[dict[str, Any]], expected: str | None) -> None:
    assert find(*options) == ({} if expected is None else {"fieldSelector": expected})


def test_namespaces_of_what_has_none() -> None:
    assert find({"field": "metadata.namespace", "value": "x"}, resource=GLOBAL) == {}
    assert find({"field": "metadata.name", "value": "x"}, resource=GLOBAL) == {"fieldSelector": "metadata.name=x"}


def test_switching_it_off() -> None:
    assert find({"labels": {"a": "x"}}, push_selectors=False) == {}


@pytest.mark.parametrize(
    ("decorator", "options", "expected"),
    [
        (kopf.on.delete, {}, {}),
        (kopf.on.delete, {"optional": True}, {"labelSelector": "a=x"}),
        (kopf.daemon, {}, {}),
        (kopf.daemon, {"optional": True}, {"labelSelector": "a=x"}),
        (kopf.timer, {"interval": 1}, {}),
        (kopf.timer, {"interval": 1, "optional": True}, {"labelSelector": "a=x"}),
    ],
)
def test_handlers_that_block_deletions(decorator: Any, options: dict[str, Any], expected: dict[str, str]) -> None:
    registry = OperatorRegistry()
    kopf.on.event("kopfexamples", registry=registry, labels={"a": "x"})(lambda **_: None)
    decorator("kopfexamples", registry=registry, labels={"a": "x"}, **options)(lambda **_: None)
    assert find_common(registry.plan([RESOURCE])[RESOURCE], RESOURCE, WatchingSettings()).add_to({}) == expected


def test_combining_with_other_selectors() -> None:
    pushed = PushedSelectors({"a": frozenset({"x"})}, {"metadata.name": "y"})
    assert pushed.add_to({"labelSelector": "b", "fieldSelector": "c=d", "shardSelector": "e"}) == {
        "labelSelector": "b,a=x",
        "fieldSelector": "c=d,metadata.name=y",
        "shardSelector": "e",
    }


@pytest.mark.parametrize(
    ("labels", "actual", "expected"),
    [
        ({"a": frozenset({"x", "y"})}, {"a": "x"}, True),
        ({"a": frozenset({"x", "y"})}, {"a": "z"}, False),
        ({"a": frozenset({"x", "y"})}, None, False),
        ({"a": kopf.PRESENT}, {"a": ""}, True),
        ({"a": kopf.PRESENT}, {"b": ""}, False),
        ({"a": kopf.ABSENT}, {"b": ""}, True),
        ({"a": kopf.ABSENT}, {"a": ""}, False),
        ({"a": kopf.ABSENT, "b": frozenset({"x"})}, {"b": "x"}, True),
        ({"a": kopf.ABSENT, "b": frozenset({"x"})}, {"a": "", "b": "x"}, False),
    ],
)
def test_telling_which_objects_are_selected(
    labels: dict[str, Any],
    actual: dict[str, str] | None,
    expected: bool,
) -> None:
    assert PushedSelectors(labels).select(ObjectMeta(name="x", labels=actual)) is expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"metadata.name": "x"}, True),
        ({"metadata.name": "y"}, False),
        ({"metadata.namespace": "ns"}, True),
        ({"metadata.namespace": "x"}, False),
    ],
)
def test_telling_which_fields_are_selected(fields: dict[str, str], expected: bool) -> None:
    assert PushedSelectors({}, fields).select(ObjectMeta(name="x", namespace="ns")) is expected
