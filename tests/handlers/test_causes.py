from __future__ import annotations

from typing import Any

import pytest

from kopf._handlers.causes import Deferred
from kopf._values.bodies import Body
from kopf._values.reasons import Reason
from tests.handlers.builders import (
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


def test_kwargs_of_objects_with_nothing() -> None:
    kwargs = make_resource_cause({}).kwargs
    assert kwargs["namespace"] is None
    assert kwargs["spec"] == kwargs["status"] == kwargs["labels"] == kwargs["annotations"] == {}


def read_event(event: Any, **_: Any) -> bool:
    return bool(event)


def test_raw_events_of_different_handlers_do_not_mix() -> None:
    cause, handler = make_watching_cause(BODY), make_watching_handler(fn=read_event)
    cause.kwargs_for(handler)["event"].clear()
    assert cause.kwargs_for(handler)["event"] == {"type": "ADDED", "object": BODY}


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


def test_deferred_memos_are_made_once_for_those_who_look_at_them() -> None:
    made: list[object] = []

    def make(key: str) -> object:
        made.append(object())
        return made[-1]

    cause = make_resource_cause(Body(BODY), memo=Deferred(make, "uid1"))
    handler = make_handler()
    assert made == []
    assert cause.kwargs_for(handler)["memo"] is cause.kwargs_for(handler)["memo"] is made[0]
    assert len(made) == 1
