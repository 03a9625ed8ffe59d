"""Label and field selectors against a model that is as simple as the documentation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf.testing import LocalCluster
from tests.cluster.rounds import widgets
from tests.cluster.rounds.widgets import make_widget
from tests.cluster.rounds.wire import Wire

COLORS = ("red", "green", "blue", None)
KEYS = ("app", "example.com/tier", "in", "n")
VALUES = ("", "x", "y.z", "5", "7", "not-in_x")


def make_all() -> dict[str, dict[str, Any]]:
    """Make widgets with all kinds of labels and colors."""
    objects = {}
    for index, (color, app, tier) in enumerate(itertools.product(COLORS, (None, *VALUES[:3]), (None, "x", "5", "7"))):
        labels = {
            key: value
            for key, value in (("app", app), ("example.com/tier", tier), ("n", str(index % 10)))
            if value is not None
        }
        if index % 7 == 0:
            labels["in"] = "notin"
        objects[f"w{index}"] = make_widget(f"w{index}", labels=labels, **({"color": color} if color else {}))
    return objects


OBJECTS = make_all()


@pytest.fixture(scope="module", autouse=True)
def _objects(server: LocalCluster) -> None:
    for obj in OBJECTS.values():
        server.apply(obj)


def select(wire: Wire, parameter: str, text: str) -> set[str]:
    answer = wire.send("GET", f"{widgets.PATH}?{parameter}={quote(text)}")
    assert answer.status == 200, (text, answer)
    return {item["metadata"]["name"] for item in answer.json["items"]}


Requirement = tuple[str, str, tuple[str, ...]]


def fits(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """As in the documentation: a key that is absent is not in any set, and is unequal to everything."""
    key, operator, values = requirement
    match operator:
        case "=" | "==" | "in":
            return key in labels and labels[key] in values
        case "!=" | "notin":
            return key not in labels or labels[key] not in values
        case "exists":
            return key in labels
        case "!":
            return key not in labels
    number = labels.get(key, "")
    if not number.isdigit():
        return False
    return int(number) > int(values[0]) if operator == ">" else int(number) < int(values[0])


@st.composite
def requirements(draw: st.DrawFn) -> tuple[Requirement, str]:
    """Draw a requirement and its text, with spaces wherever they are allowed."""
    key = draw(st.sampled_from(KEYS))
    operator = draw(st.sampled_from(["=", "==", "!=", "in", "notin", "exists", "!", ">", "<"]))
    space = draw(st.sampled_from(["", " "]))
    if operator in ("in", "notin"):
        values = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=3))
        text = f"{key} {operator}{space}({space}{(',' + space).join(values)}{space})"
    elif operator == "exists":
        values, text = [], key
    elif operator == "!":
        values, text = [], f"!{key}"
    else:
        values = [draw(st.sampled_from(VALUES if operator not in (">", "<") else ("5", "0", "10")))]
        text = f"{key}{space}{operator}{space}{values[0]}"
    return (key, operator, tuple(values)), text


def test_label_selectors(wire: Wire) -> None:
    @given(st.lists(requirements(), min_size=1, max_size=3), st.sampled_from([",", ", "]))
    def attempt(drawn: list[tuple[Requirement, str]], comma: str) -> None:
        text = comma.join(text for _, text in drawn)
        expected = {
            name
            for name, obj in OBJECTS.items()
            if all(fits(requirement, obj["metadata"].get("labels", {})) for requirement, _ in drawn)
        }
        assert select(wire, "labelSelector", text) == expected

    attempt()


def test_label_selectors_divide_everything_in_two(wire: Wire) -> None:
    opposites = [("app=x", "app!=x"), ("app", "!app"), ("app in (x,y.z)", "app notin (x,y.z)")]
    for one, other in opposites:
        assert select(wire, "labelSelector", one) ^ select(wire, "labelSelector", other) == set(OBJECTS)
        assert select(wire, "labelSelector", f"{one},{other}") == set()


FIELDS = {
    "metadata.name": ["w0", "w5", "w63", "nosuch"],
    "metadata.namespace": ["default", "other"],
    "spec.color": ["red", "blue", "pink", ""],
}


def test_field_selectors(wire: Wire) -> None:
    terms = st.sampled_from(sorted(FIELDS)).flatmap(
        lambda field: st.tuples(st.just(field), st.sampled_from(["=", "==", "!="]), st.sampled_from(FIELDS[field]))
    )

    def value_of(name: str, field: str) -> str:
        return {
            "metadata.name": name,
            "metadata.namespace": "default",
            "spec.color": str(OBJECTS[name]["spec"].get("color", "")),
        }[field]

    @given(st.lists(terms, min_size=1, max_size=3))
    def attempt(drawn: list[tuple[str, str, str]]) -> None:
        expected = {
            name
            for name in OBJECTS
            if all((value_of(name, field) == value) is (operator != "!=") for field, operator, value in drawn)
        }
        assert select(wire, "fieldSelector", ",".join("".join(term) for term in drawn)) == expected

    attempt()


def test_both_selectors_together_select_what_each_of_them_does(wire: Wire) -> None:
    answer = wire.send("GET", f"{widgets.PATH}?labelSelector=app%3Dx&fieldSelector=spec.color%3Dred")
    both = {item["metadata"]["name"] for item in answer.json["items"]}
    assert both == select(wire, "labelSelector", "app=x") & select(wire, "fieldSelector", "spec.color=red")
    assert both


def test_collections_are_deleted_by_the_same_selectors(wire: Wire) -> None:
    for text in ("app=x,n>4", "!app", "example.com/tier in (5,7)"):
        expected = select(wire, "labelSelector", text)
        answer = wire.send("DELETE", f"{widgets.PATH}?dryRun=All&labelSelector={quote(text)}")
        assert {item["metadata"]["name"] for item in answer.json["items"]} == expected
    assert select(wire, "labelSelector", "") == set(OBJECTS)
