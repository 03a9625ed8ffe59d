"""Every filter that does not let an object through is named, with its value, and with what is there instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import pytest

import kopf
from tests.insight.explaining.objects_and_facts import ask, ask_about, declare, make_object

HANDLED = {"spec": {"size": 5, "kind": "a"}}
CHANGED = {"spec": {"size": 7, "kind": "a"}}
LABELLED = {"metadata": {"labels": {"app": "api"}, "annotations": {"note": "x"}}, **CHANGED}


def is_big(value: Any, **_: Any) -> bool:
    return bool(value and value > 100)


def fail(*_: Any, **__: Any) -> bool:
    raise KeyError("nosuch")


def refuse(*_: Any, **__: Any) -> bool:
    return False


ALL_KINDS = [kopf.on.create, kopf.on.update, kopf.on.event, kopf.daemon, kopf.timer, kopf.index, kopf.on.validate]


@pytest.mark.parametrize("decorator", ALL_KINDS)
@pytest.mark.parametrize(
    ("options", "option", "key", "expected", "actual"),
    [
        ({"labels": {"app": "web"}}, "labels", "app", '"web"', '"api"'),
        ({"labels": {"nosuch": "web"}}, "labels", "nosuch", '"web"', None),
        ({"labels": {"nosuch": kopf.PRESENT}}, "labels", "nosuch", "kopf.PRESENT", None),
        ({"labels": {"app": kopf.ABSENT}}, "labels", "app", "kopf.ABSENT", '"api"'),
        ({"annotations": {"note": "y"}}, "annotations", "note", '"y"', '"x"'),
        ({"annotations": {"nosuch": kopf.PRESENT}}, "annotations", "nosuch", "kopf.PRESENT", None),
        ({"annotations": {"note": kopf.ABSENT}}, "annotations", "note", "kopf.ABSENT", '"x"'),
        ({"field": "spec.nosuch"}, "field", "spec.nosuch", "kopf.PRESENT", None),
        ({"field": "spec.size", "value": 9}, "value", "spec.size", "9", "7"),
        ({"field": "spec.size", "value": kopf.ABSENT}, "value", "spec.size", "kopf.ABSENT", "7"),
        ({"field": "spec.nosuch", "value": kopf.PRESENT}, "value", "spec.nosuch", "kopf.PRESENT", None),
    ],
)
def test_filters_of_the_object(
    decorator: Any,
    options: Mapping[str, Any],
    option: str,
    key: str,
    expected: str,
    actual: str | None,
) -> None:
    info = ask_about(make_object(LABELLED), decorator, **options)
    assert info["verdict"] == "rejected"
    [rejection] = info["rejections"]
    assert (rejection["filter"], rejection["key"]) == (option, key)
    assert (rejection["expected"], rejection["actual"], rejection["error"]) == (expected, actual, None)
    assert key in rejection["text"]
    assert actual is None or actual in rejection["text"]
    assert expected.startswith("kopf.") or expected in rejection["text"]


@pytest.mark.parametrize("decorator", [item for item in ALL_KINDS if item is not kopf.on.validate])
@pytest.mark.parametrize(
    ("options", "option", "name"),
    [
        ({"labels": {"app": refuse}}, "labels", "refuse"),
        ({"annotations": {"note": refuse}}, "annotations", "refuse"),
        ({"field": "spec.size", "value": is_big}, "value", "is_big"),
        ({"when": refuse}, "when", "refuse"),
        ({"when": kopf.all_([refuse, kopf.not_(is_big)])}, "when", "kopf.all_(refuse"),
    ],
)
def test_callbacks_are_named_with_their_places(
    decorator: Any,
    options: Mapping[str, Any],
    option: str,
    name: str,
) -> None:
    info = ask_about(make_object(LABELLED), decorator, **options)
    [rejection] = info["rejections"]
    assert rejection["filter"] == option
    assert rejection["expected"].startswith(name)
    assert f"{__file__}:" in rejection["expected"]
    assert rejection["expected"] in rejection["text"]
    assert info["verdict"] == "rejected"


@pytest.mark.parametrize("decorator", [item for item in ALL_KINDS if item is not kopf.on.validate])
@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"labels": {"app": fail}}, "labels"),
        ({"annotations": {"note": fail}}, "annotations"),
        ({"field": "spec.size", "value": fail}, "value"),
        ({"when": fail}, "when"),
    ],
)
def test_failing_callbacks(decorator: Any, options: Mapping[str, Any], option: str) -> None:
    info = ask_about(make_object(LABELLED), decorator, **options)
    assert info["verdict"] == "unknown"
    [rejection] = info["rejections"]
    assert (rejection["filter"], rejection["error"]) == (option, "KeyError: 'nosuch'")
    assert "has failed" in rejection["text"]
    assert f"fail ({__file__}:" in rejection["text"]


@pytest.mark.parametrize(
    ("options", "option", "expected", "actual"),
    [
        ({"old": 6}, "old", "6", "5"),
        ({"old": kopf.ABSENT}, "old", "kopf.ABSENT", "5"),
        ({"old": refuse}, "old", None, "5"),
        ({"new": 8}, "new", "8", "7"),
        ({"new": kopf.ABSENT}, "new", "kopf.ABSENT", "7"),
        ({"new": refuse}, "new", None, "7"),
    ],
)
def test_filters_of_the_change(options: Mapping[str, Any], option: str, expected: str | None, actual: str) -> None:
    info = ask_about(make_object(CHANGED, old=HANDLED), kopf.on.update, field="spec.size", **options)
    assert info["verdict"] == "rejected"
    [rejection] = info["rejections"]
    assert (rejection["filter"], rejection["key"], rejection["actual"]) == (option, "spec.size", actual)
    assert expected is None or rejection["expected"] == expected
    assert f"the {option} value of the field 'spec.size'" in rejection["text"] or "says no" in rejection["text"]


def test_those_who_own_are_called_for_more() -> None:
    info = ask_about(make_object(CHANGED, old=HANDLED), kopf.on.create, owns=["deployments", "pods.v1"])
    expected = "it is also called when 'deployments' or 'pods' of v1 that the object owns are changed"
    assert info["text"].endswith(expected)


def test_fields_that_have_not_changed() -> None:
    info = ask_about(make_object(CHANGED, old=HANDLED), kopf.on.update, field="spec.kind")
    assert info["verdict"] == "rejected"
    assert info["text"] == "the field 'spec.kind' has not changed, and a change is needed"


@pytest.mark.parametrize(
    ("decorator", "content", "old", "text"),
    [
        (kopf.on.delete, CHANGED, HANDLED, "is for deletions, but the object is not being deleted"),
        (kopf.on.create, CHANGED, HANDLED, "is for creations, but the object was already handled"),
        (kopf.on.update, CHANGED, CHANGED, "is for updates, but nothing has changed since the object was handled last"),
        (kopf.on.update, CHANGED, None, "is for updates, but the object is new"),
        (kopf.on.resume, CHANGED, HANDLED, "is for resuming, i.e. once after each start of an operator"),
        (
            kopf.on.delete,
            {"metadata": {"deletionTimestamp": "2026-11-23T12:00:00Z"}},
            HANDLED,
            "is for deletions, but the object is being deleted, and does not wait for the operator",
        ),
    ],
)
def test_other_reasons(decorator: Any, content: Mapping[str, Any], old: Mapping[str, Any] | None, text: str) -> None:
    info = ask_about(make_object(content, old=old), decorator)
    assert info["verdict"] == "later"
    assert info["text"].startswith(text)
    assert info["rejections"] == []


@pytest.mark.parametrize(
    ("decorator", "content", "old"),
    [
        (kopf.on.create, CHANGED, None),
        (kopf.on.update, CHANGED, HANDLED),
        (kopf.on.field, CHANGED, HANDLED),
        (
            kopf.on.delete,
            {
                "metadata": {
                    "deletionTimestamp": "2026-11-23T12:00:00Z",
                    "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"],
                }
            },
            HANDLED,
        ),
    ],
)
def test_those_that_are_called(decorator: Any, content: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
    options = {"field": "spec.size"} if decorator is kopf.on.field else {}
    assert ask_about(make_object(content, old=old), decorator, **options)["verdict"] == "called"


def test_all_rejections_are_named_and_the_last_callback_is_not_asked_then() -> None:
    info = ask_about(make_object(LABELLED), kopf.on.create, labels={"app": "web"}, annotations={"a": "b"}, when=fail)
    assert [rejection["filter"] for rejection in info["rejections"]] == ["labels", "annotations"]


def test_one_function_is_called_once() -> None:
    async def fn(**_: Any) -> None: ...

    registry = kopf.OperatorRegistry()
    for _ in range(2):
        kopf.on.create("kopfexamples", id="fn", registry=registry)(fn)
    first, second = ask(make_object(CHANGED), [*registry.resources])["handlers"]
    assert first["verdict"] == "called"
    assert second["verdict"] == "later"
    assert "another declaration" in second["text"]


def test_admission_handlers_say_what_they_are_asked_about() -> None:
    info = ask_about(make_object(CHANGED), kopf.on.validate, operations=["CREATE", "DELETE"], when=fail)
    assert info["verdict"] == "matching"
    assert info["text"].startswith("is asked about CREATE, DELETE, if fail (")
    assert info["text"].endswith(") agree")


def test_callbacks_get_what_they_get_in_operators() -> None:
    seen: dict[str, Any] = {}

    def look(**kwargs: Any) -> bool:
        seen.update(kwargs)
        return True

    ask(make_object(CHANGED, old=HANDLED), declare(kopf.on.update, when=look), memo="memo", indices={"index": 1})
    assert (seen["memo"], seen["index"], seen["reason"]) == ("memo", 1, "update")
    assert (seen["old"]["spec"]["size"], seen["new"]["spec"]["size"], seen["name"]) == (5, 7, "obj")


class Spec(TypedDict):
    size: int


class KopfExample(kopf.CustomResource[Spec, dict[str, Any]], group="kopf.dev", version="v1"):
    pass


@pytest.mark.parametrize("is_filter", [True, False], ids=["filter", "function"])
@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.event, kopf.daemon])
def test_objects_that_do_not_fit_models(decorator: Any, is_filter: bool) -> None:
    async def fn(spec: Any, **_: Any) -> None: ...

    def is_large(spec: Any, **_: Any) -> bool:
        return bool(spec["size"] > 1)

    (is_large if is_filter else fn).__annotations__["spec"] = Spec
    registry = kopf.OperatorRegistry()
    decorator(KopfExample, id="fn", registry=registry, when=is_large if is_filter else None)(fn)
    [info] = ask(make_object({"spec": {"size": "text"}}), [*registry.resources])["handlers"]
    assert info["verdict"] == "later"
    assert "spec.size: Expected `int`, got `str`; it waits until that is changed" in info["text"]
