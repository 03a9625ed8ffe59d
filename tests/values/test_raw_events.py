from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kopf._values import codec
from kopf._values.objects import KubeObject
from kopf._values.raw_events import LazyEvent

OBJECT: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"field": [1, 2]}}
PLAIN: dict[str, Any] = {"type": "ADDED", "object": OBJECT}


@pytest.fixture
def event() -> LazyEvent:
    return LazyEvent("ADDED", KubeObject.from_json(codec.encode(OBJECT)))


def unpack(**kwargs: Any) -> dict[str, Any]:
    return kwargs


def match(event: dict[str, Any]) -> dict[str, Any]:
    match event:
        case {"type": type, "object": {"spec": _} as object, **rest} if not rest:
            return {"type": type, "object": object}
    return {}


def update(event: dict[str, Any]) -> dict[str, Any]:
    target: dict[str, Any] = {}
    target.update(event)
    return target


@pytest.mark.parametrize("read", [
    pytest.param(lambda event: dict(event), id="dict()"),
    pytest.param(lambda event: {**event}, id="{**event}"),
    pytest.param(lambda event: unpack(**event), id="fn(**event)"),
    pytest.param(update, id="update()"),
    pytest.param(match, id="match"),
    pytest.param(lambda event: event | {}, id="event|other"),
    pytest.param(lambda event: {} | event, id="other|event"),
    pytest.param(lambda event: event.copy(), id="copy()"),
    pytest.param(copy.copy, id="copy.copy()"),
    pytest.param(copy.deepcopy, id="copy.deepcopy()"),
    pytest.param(lambda event: pickle.loads(pickle.dumps(event)), id="pickle"),
    pytest.param(lambda event: json.loads(json.dumps(event)), id="json"),
    pytest.param(lambda event: json.loads(json.dumps(event, indent=2, sort_keys=True)), id="json-indented"),
    pytest.param(lambda event: eval(repr(event)), id="repr()"),
    pytest.param(lambda event: dict(event.items()), id="items()"),
    pytest.param(lambda event: dict(zip(event.keys(), event.values(), strict=True)), id="keys()&values()"),
    pytest.param(lambda event: {key: event[key] for key in event}, id="iter()"),
    pytest.param(lambda event: {key: event[key] for key in reversed(event)}, id="reversed()"),
    pytest.param(lambda event: {key: event.get(key) for key in ("type", "object")}, id="get()"),
    pytest.param(lambda event: {key: event.setdefault(key, None) for key in ("type", "object")}, id="setdefault()"),
    pytest.param(lambda event: {key: event.pop(key) for key in ("type", "object")}, id="pop()"),
    pytest.param(lambda event: dict([event.popitem(), event.popitem()]), id="popitem()"),
])
def test_it_is_read_as_a_dict_of_two_keys(event: LazyEvent, read: Callable[[Any], dict[str, Any]]) -> None:
    assert read(event) == PLAIN


def test_it_is_a_dict(event: LazyEvent) -> None:
    assert isinstance(event, dict)
    assert isinstance(event["object"], dict)
    assert len(event) == 2
    assert bool(event)
    assert list(event) == ["type", "object"]
    assert event.keys() == {"type", "object"}
    assert event.keys() & {"object"} == {"object"}
    assert ("type", "ADDED") in event.items()
    assert OBJECT in event.values()
    assert "type" in event
    assert "object" in event
    assert "absent" not in event
    assert event.get("absent") is None
    assert event.get("absent", 123) == 123
    with pytest.raises(KeyError, match="absent"):
        event["absent"]
    with pytest.raises(TypeError, match="unhashable"):
        hash(event)


@pytest.mark.parametrize(("other", "expected"), [
    (PLAIN, True),
    ({**PLAIN, "type": "DELETED"}, False),
    ({**PLAIN, "object": {}}, False),
    ({"type": "ADDED"}, False),
    (None, False),
])
def test_it_is_compared_as_a_dict_from_both_sides(event: LazyEvent, other: Any, expected: bool) -> None:
    def lazy() -> LazyEvent:
        return LazyEvent("ADDED", KubeObject.from_json(codec.encode(OBJECT)))
    assert (lazy() == other) is expected
    assert (other == lazy()) is expected
    assert (lazy() != other) is not expected
    assert (other != lazy()) is not expected
    assert lazy() == event
    assert not lazy() != event  # noqa: SIM202  # the inequality is what is tested


@pytest.mark.parametrize(("change", "expected"), [
    (lambda event: event.update(object="x"), {"type": "ADDED", "object": "x"}),
    (lambda event: event.__setitem__("object", "x"), {"type": "ADDED", "object": "x"}),
    (lambda event: event.__setitem__("more", "x"), {**PLAIN, "more": "x"}),
    (lambda event: event.__delitem__("object"), {"type": "ADDED"}),
    (lambda event: event.__delitem__("type"), {"object": OBJECT}),
    (lambda event: event.pop("object"), {"type": "ADDED"}),
    (lambda event: event.clear(), {}),
])
def test_it_can_be_modified_as_a_dict(
    event: LazyEvent, change: Callable[[LazyEvent], object], expected: dict[str, Any]
) -> None:
    change(event)
    assert event == expected
    assert dict(event) == expected
    assert ("object" in event) == ("object" in expected)
    assert event.get("object") == expected.get("object")


def test_the_object_is_not_decoded_until_it_is_looked_at(monkeypatch: pytest.MonkeyPatch, event: LazyEvent) -> None:
    monkeypatch.setattr("kopf._values.codec.decode", lambda data: pytest.fail("It is decoded too early."))
    assert event["type"] == "ADDED"
    monkeypatch.undo()
    assert event["object"] == OBJECT
    assert event["object"] is event["object"]


@pytest.mark.parametrize("type", [None, "ADDED", "MODIFIED", "DELETED"])
def test_types_of_events(type: Any) -> None:
    assert LazyEvent(type, KubeObject.from_dict({"metadata": {}})) == {"type": type, "object": {"metadata": {}}}
