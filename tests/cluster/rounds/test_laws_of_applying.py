"""The laws of server-side apply, through the API, with several managers of the same object."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.rounds import widgets
from tests.cluster.rounds.widgets import make_widget
from tests.cluster.rounds.wire import Answer, Wire

APPLY = "application/apply-patch+yaml"
laws = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

COLORS = st.sampled_from(["red", "green"])
OPTIONS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2"]), min_size=1, max_size=4)
TAGS = st.lists(st.sampled_from(["p", "q", "r", "s"]), min_size=1, max_size=3, unique=True)
SPECS = st.fixed_dictionaries(
    {}, optional={"size": st.integers(2, 9), "color": COLORS, "options": OPTIONS, "tags": TAGS}
)


def apply(wire: Wire, name: str, spec: dict[str, Any], manager: str, *, force: bool = False) -> Answer:
    target = f"{widgets.PATH}/{name}?fieldManager={manager}{'&force=true' if force else ''}"
    return wire.send("PATCH", target, make_widget(name, **spec), APPLY)


def expect(answer: Answer) -> dict[str, Any]:
    assert answer.status in (200, 201), answer
    obj: dict[str, Any] = answer.json
    return obj


def remove(wire: Wire, name: str) -> None:
    assert wire.send("DELETE", f"{widgets.PATH}/{name}").status in (200, 404)


def owners(obj: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]}


def normalize(spec: dict[str, Any]) -> dict[str, Any]:
    """Sets have no order, and an absent size has a default."""
    return {"size": 1, **spec, **({"tags": sorted(spec["tags"])} if "tags" in spec else {})}


def split(spec: dict[str, Any], mine: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide a spec in two, with no field in both: by the letters of options and tags, by the names otherwise."""
    parts: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for name, value in spec.items():
        if name == "options":
            for key, item in value.items():
                parts[key not in mine].setdefault(name, {})[key] = item
        elif name == "tags":
            for item in value:
                parts[item not in mine].setdefault(name, []).append(item)
        else:
            parts[name not in mine][name] = value
    return parts


PARTS = st.sets(st.sampled_from(["size", "color", *"abcdpqrs"]))


def test_applying_twice_changes_nothing(wire: Wire) -> None:
    @laws
    @given(SPECS, SPECS)
    def attempt(first: Any, second: Any) -> None:
        remove(wire, "twice")
        expect(apply(wire, "twice", first, "other"))
        made = expect(apply(wire, "twice", second, "me", force=True))
        assert expect(apply(wire, "twice", second, "me")) == made  # with the same version, and in no conflict
        for name, value in second.items():
            match value:
                case dict():
                    assert made["spec"][name] | value == made["spec"][name]
                case list():
                    assert set(value) <= set(made["spec"][name])
                case _:
                    assert made["spec"][name] == value

    attempt()


def test_managers_of_different_fields_commute(wire: Wire) -> None:
    @laws
    @given(SPECS, PARTS)
    def attempt(spec: Any, mine: set[str]) -> None:
        one, two = split(spec, mine)
        remove(wire, "commuting")
        expect(apply(wire, "commuting", one, "one"))
        forth = expect(apply(wire, "commuting", two, "two"))
        remove(wire, "commuting")
        expect(apply(wire, "commuting", two, "two"))
        back = expect(apply(wire, "commuting", one, "one"))
        assert normalize(forth["spec"]) == normalize(back["spec"]) == normalize(spec)
        assert owners(forth) == owners(back)

    attempt()


def test_what_is_applied_no_more_is_removed(wire: Wire) -> None:
    @laws
    @given(SPECS, PARTS)
    def attempt(spec: Any, kept: set[str]) -> None:
        remove(wire, "shrinking")
        expect(apply(wire, "shrinking", spec, "me"))
        rest, _ = split(spec, kept)
        made = expect(apply(wire, "shrinking", rest, "me"))
        assert normalize(made["spec"]) == normalize(rest)

    attempt()


def test_what_others_own_survives(wire: Wire) -> None:
    @laws
    @given(SPECS, SPECS)
    def attempt(mine: Any, theirs: Any) -> None:
        remove(wire, "shared")
        expect(apply(wire, "shared", theirs, "them"))
        before = owners(expect(apply(wire, "shared", theirs, "them")))
        expect(apply(wire, "shared", mine, "me", force=True))
        expect(apply(wire, "shared", theirs, "them", force=True))  # everything is theirs again, and a part is shared
        made = expect(apply(wire, "shared", {}, "me"))
        assert normalize(made["spec"]) == normalize(theirs)
        assert owners(made)["them"] == before["them"]

    attempt()


def test_conflicts_are_exactly_about_the_fields_with_other_values(wire: Wire) -> None:
    @laws
    @given(SPECS, SPECS)
    def attempt(theirs: Any, mine: Any) -> None:
        remove(wire, "disputed")
        made = expect(apply(wire, "disputed", theirs, "them"))
        disputed = {
            f".spec.{name}"
            for name in ("size", "color")
            if name in theirs.keys() & mine.keys() and theirs[name] != mine[name]
        }
        disputed |= {
            f".spec.options.{key}"
            for key, value in mine.get("options", {}).items()
            if theirs.get("options", {}).get(key, value) != value
        }
        answer = apply(wire, "disputed", mine, "me")
        if disputed:
            assert (answer.status, answer.json["reason"]) == (409, "Conflict")
            assert {cause["field"] for cause in answer.json["details"]["causes"]} == disputed
            assert {cause["reason"] for cause in answer.json["details"]["causes"]} == {"FieldManagerConflict"}
            assert wire.send("GET", f"{widgets.PATH}/disputed").json == made
        else:
            expect(answer)

    attempt()
