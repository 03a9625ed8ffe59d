from __future__ import annotations

from typing import Any

import pytest

from kopf._handlers.causes import ActivityCause, Deferred
from kopf._settings.settings import OperatorSettings
from kopf._values.bodies import Body
from kopf._values.patches import Patch
from kopf._values.reasons import Activity, Reason
from tests.handlers.builders import (
    RESOURCE,
    logger,
    make_changing_cause,
    make_changing_handler,
    make_handler,
    make_resource_cause,
    make_watching_cause,
    make_watching_handler,
)

BODY: dict[str, Any] = {
    "metadata": {"name": "x", "namespace": "ns", "uid": "u", "labels": {"l": "v"}, "annotations": {"a": "v"}},
    "spec": {"field": "new"},
    "status": {"done": True},
}


def test_kwargs_of_all_objects() -> None:
    memo, patch, body = object(), Patch(), Body(BODY)
    kwargs = make_resource_cause(body, memo=memo, patch=patch).kwargs_for(make_handler(param=123))
    assert kwargs.pop("logger") is logger
    assert kwargs.pop("memo") is memo
    assert kwargs.pop("patch") is patch
    assert kwargs.pop("body") is body
    assert kwargs == {
        "resource": RESOURCE,
        "spec": {"field": "new"},
        "meta": BODY["metadata"],
        "status": {"done": True},
        "uid": "u",
        "name": "x",
        "namespace": "ns",
        "labels": {"l": "v"},
        "annotations": {"a": "v"},
        "param": 123,
    }


def test_kwargs_of_objects_with_nothing() -> None:
    kwargs = make_resource_cause({}).kwargs
    assert kwargs["namespace"] is None
    assert kwargs["spec"] == kwargs["status"] == kwargs["labels"] == kwargs["annotations"] == {}


def test_kwargs_of_raw_events() -> None:
    handler = make_watching_handler(fn=lambda event, **_: None)
    kwargs = make_watching_cause(BODY, "MODIFIED").kwargs_for(handler)
    assert kwargs["type"] == "MODIFIED"
    assert kwargs["event"] == {"type": "MODIFIED", "object": BODY}
    assert type(kwargs["event"]) is type(kwargs["event"]["object"]) is dict  # encoders written in C look past others


def read_event(event: Any, **_: Any) -> bool:
    return bool(event)


def read_others(type: Any, **_: Any) -> bool:
    return bool(type)


def pass_all_on(**kwargs: Any) -> bool:
    return read_event(**kwargs)


READERS: list[tuple[dict[str, Any], bool]] = [
    ({"fn": read_event}, True),
    ({"fn": pass_all_on}, True),
    ({"fn": read_others}, False),
    ({"fn": read_others, "when": read_event}, True),
    ({"fn": read_others, "when": read_others}, False),
    ({"fn": read_others, "labels": {"x": read_event}}, True),
    ({"fn": read_others, "annotations": {"x": "y", "z": pass_all_on}}, True),
    ({"fn": read_others, "field": ("spec",), "value": read_event}, True),
]


@pytest.mark.parametrize(("options", "is_made"), READERS)
def test_raw_events_are_made_for_those_who_look_at_them(options: Any, is_made: bool) -> None:
    cause, handler = make_watching_cause(BODY), make_watching_handler(**options)
    assert ("event" in cause.kwargs_for(handler)) is is_made
    assert ("event" in cause.kwargs_for_filters(handler)) is is_made


def test_raw_events_of_different_handlers_do_not_mix() -> None:
    cause, handler = make_watching_cause(BODY), make_watching_handler(fn=read_event)
    cause.kwargs_for(handler)["event"].clear()
    assert cause.kwargs_for(handler)["event"] == {"type": "ADDED", "object": BODY}


def test_indices_have_precedence_over_raw_events() -> None:
    cause = make_watching_cause(BODY, indices={"event": 123})
    assert cause.kwargs_for(make_watching_handler(fn=read_event))["event"] == 123


def test_kwargs_of_changes() -> None:
    old, new = {"spec": {"field": "old"}}, {"spec": {"field": "new"}}
    kwargs = make_changing_cause(BODY, Reason.UPDATE, old=old, new=new).kwargs
    assert kwargs["reason"] is Reason.UPDATE
    assert (kwargs["old"], kwargs["new"]) == (old, new)
    assert kwargs["diff"] == (("change", ("spec", "field"), "old", "new"),)


@pytest.mark.parametrize(
    ("field", "old", "new", "diff"),
    [
        (
            (),
            {"spec": {"a": 1, "b": {"c": 2}}},
            {"spec": {"b": {"c": 3}}},
            [("remove", ("spec", "a"), 1, None), ("change", ("spec", "b", "c"), 2, 3)],
        ),
        (
            ("spec",),
            {"a": 1, "b": {"c": 2}},
            {"b": {"c": 3}},
            [("remove", ("a",), 1, None), ("change", ("b", "c"), 2, 3)],
        ),
        (("spec", "a"), 1, None, [("remove", (), 1, None)]),
        (("spec", "b"), {"c": 2}, {"c": 3}, [("change", ("c",), 2, 3)]),
        (("spec", "b", "c"), 2, 3, [("change", (), 2, 3)]),
        (("spec", "absent"), None, None, []),
    ],
)
def test_changes_are_relative_to_the_field_of_the_handler(field: Any, old: Any, new: Any, diff: list[Any]) -> None:
    cause = make_changing_cause({}, Reason.UPDATE, old={"spec": {"a": 1, "b": {"c": 2}}}, new={"spec": {"b": {"c": 3}}})
    kwargs = cause.kwargs_for(make_changing_handler(field=field))
    assert (kwargs["old"], kwargs["new"], list(kwargs["diff"])) == (old, new, diff)


def test_kwargs_of_different_handlers_do_not_mix() -> None:
    cause = make_changing_cause({"spec": {"x": 1}}, old={})
    first = cause.kwargs_for(make_changing_handler(field=("spec", "x"), param=1))
    second = cause.kwargs_for(make_changing_handler(param=2))
    assert (first["param"], first["new"]) == (1, 1)
    assert (second["param"], second["new"]) == (2, {"spec": {"x": 1}})


def test_kwargs_of_activities() -> None:
    settings = OperatorSettings()
    cause = ActivityCause(logger=logger, memo="memo", indices={"idx": 1}, activity=Activity.STARTUP, settings=settings)
    assert cause.kwargs_for(make_handler(param=123)) == {
        "logger": logger,
        "memo": "memo",
        "activity": Activity.STARTUP,
        "settings": settings,
        "idx": 1,
        "param": 123,
    }


@pytest.mark.parametrize("name", ["body", "old", "type", "param"])
def test_indices_have_precedence_over_all_other_kwargs(name: str) -> None:
    indices = {name: "index", "more": "index"}
    for cause in [make_changing_cause(BODY, indices=indices), make_watching_cause(BODY, indices=indices)]:
        for handler in [make_changing_handler(), make_changing_handler(field=("spec",))]:
            kwargs = cause.kwargs_for(handler)
            assert (kwargs[name], kwargs["more"]) == ("index", "index")


def test_live_views_are_passed_instead_of_copies() -> None:
    body = Body(BODY)
    kwargs = make_resource_cause(body).kwargs
    body._replace_with({"metadata": {"labels": {"l": "2"}}, "spec": {"field": "newer"}})
    assert kwargs["spec"] == {"field": "newer"}
    assert kwargs["labels"] == {"l": "2"}


def test_deferred_memos_are_made_once_for_those_who_look_at_them() -> None:
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    cause = make_resource_cause(Body(BODY), memo=Deferred(make))
    handler = make_handler()
    assert made == []
    assert cause.kwargs_for(handler)["memo"] is cause.kwargs_for(handler)["memo"] is made[0]
    assert len(made) == 1
