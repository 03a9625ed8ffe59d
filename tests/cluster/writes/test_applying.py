from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster.kinds.topologies import of_schema
from kopf_cluster.statuses import APIStatus
from kopf_cluster.writes import owners
from kopf_cluster.writes.applying import apply, update
from kopf_cluster.writes.comparing import fields_of
from kopf_cluster.writes.fieldsets import FieldSet, path_text

T1, T2, T3 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"

WITHOUT_SCHEMA = of_schema({"x-kubernetes-preserve-unknown-fields": True}, root=True)
SCHEMA = of_schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer"},
                    "paused": {"type": "boolean"},
                    "struct": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
                    "map": {"type": "object", "additionalProperties": {"type": "string"}},
                    "atom": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "additionalProperties": {"type": "string"},
                    },
                    "list": {"type": "array", "items": {"type": "integer"}},
                    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "keyed": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": {"type": "string"},
                                "x": {"type": "integer"},
                                "y": {"type": "integer"},
                            },
                        },
                    },
                },
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    },
    root=True,
)


def make(spec: Any = None, **metadata: Any) -> dict[str, Any]:
    obj = {"apiVersion": "obs.dev/v1", "kind": "Kex", "metadata": {"name": "x", "namespace": "ns", **metadata}}
    return obj if spec is None else {**obj, "spec": spec}


def do_apply(live: Any, spec: Any, manager: str = "me", now: str = T1, *, force: bool = False, **kwargs: Any) -> Any:
    config = spec if isinstance(spec, dict) and "kind" in spec else make(spec)
    result = apply(live, config, manager, force=force, topology=SCHEMA, now=now, **kwargs)
    return live if result is None else result


def do_update(live: Any, new: Any, manager: str = "writer", now: str = T1, **kwargs: Any) -> Any:
    new = new if "kind" in new else {**live, "spec": new}
    entries = update(live, new, manager, topology=SCHEMA, now=now, **kwargs)
    return {**new, "metadata": {**new["metadata"], "managedFields": entries}}


def owned(obj: Any, manager: str) -> Any:
    return next((entry["fieldsV1"] for entry in obj["metadata"]["managedFields"] if entry["manager"] == manager), None)


def refusal(live: Any, spec: Any, manager: str = "me", **kwargs: Any) -> APIStatus:
    with pytest.raises(APIStatus) as error:
        do_apply(live, spec, manager, **kwargs)
    return error.value


# ------------------------------------------------------------------------------------------ applying


def test_creation_by_applying() -> None:
    obj = do_apply(None, make({"replicas": 1, "map": {"a": "b"}}, labels={"l": "v"}))
    assert obj["spec"] == {"replicas": 1, "map": {"a": "b"}}
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Apply",
            "apiVersion": "obs.dev/v1",
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:l": {}}}, "f:spec": {"f:map": {"f:a": {}}, "f:replicas": {}}},
        }
    ]


def test_the_same_value_is_shared_by_those_who_apply_it() -> None:
    obj = do_apply(do_apply(None, {"replicas": 1}), {"replicas": 1}, "other", T2)
    assert owned(obj, "me") == owned(obj, "other") == {"f:spec": {"f:replicas": {}}}
    assert [entry["time"] for entry in obj["metadata"]["managedFields"]] == [T1, T2]


def test_conflicts_with_several() -> None:
    live = do_update(None, make({"replicas": 1, "struct": {"x": 1}}), "b")
    live = do_apply(live, {"keyed": [{"name": "n", "x": 1}]}, "a")
    live = do_update(live, {**live["spec"], "paused": True}, "b", subresource="scale")
    error = refusal(live, {"replicas": 2, "paused": False, "struct": {"x": 2}, "keyed": [{"name": "n", "x": 2}]})
    assert error.message == "\n".join(
        [
            'Apply failed with 4 conflicts: conflicts with "a":',
            '- .spec.keyed[name="n"].x',
            'conflicts with "b" using obs.dev/v1:',
            "- .spec.replicas",
            "- .spec.struct.x",
            'conflicts with "b" with subresource "scale" using obs.dev/v1:',
            "- .spec.paused",
        ]
    )
    assert error.details is not None
    assert len(error.details["causes"]) == 4


def test_force_takes_the_ownership() -> None:
    obj = do_apply(do_apply(None, {"replicas": 1, "paused": True}), {"replicas": 2}, "other", force=True)
    assert obj["spec"] == {"replicas": 2, "paused": True}
    assert owned(obj, "me") == {"f:spec": {"f:paused": {}}}
    assert owned(obj, "other") == {"f:spec": {"f:replicas": {}}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"replicas": 1, "paused": True}, {"paused": True}, {"paused": True}),
        ({"map": {"a": "1", "b": "2"}}, {"map": {"a": "1"}}, {"map": {"a": "1"}}),
        ({"struct": {"x": 1}, "paused": True}, {"paused": True}, {"paused": True}),
        ({"set": ["a", "b", "c"]}, {"set": ["a", "c"]}, {"set": ["a", "c"]}),
        ({"list": [1, 2]}, {"list": [2]}, {"list": [2]}),
        ({"atom": {"a": "1", "b": "2"}}, {"atom": {"b": "2"}}, {"atom": {"b": "2"}}),
        ({"keyed": [{"name": "a", "x": 1}, {"name": "b"}]}, {"keyed": [{"name": "b"}]}, {"keyed": [{"name": "b"}]}),
        (
            {"keyed": [{"name": "a", "x": 1, "y": 2}]},
            {"keyed": [{"name": "a", "y": 2}]},
            {"keyed": [{"name": "a", "y": 2}]},
        ),
    ],
)
def test_what_is_not_applied_anymore_is_removed(before: Any, after: Any, expected: Any) -> None:
    obj = do_apply(do_apply(None, before), after, now=T2)
    assert obj["spec"] == expected
    assert obj["metadata"]["managedFields"][0]["time"] == T2


def test_what_others_own_is_not_removed() -> None:
    live = do_apply(None, {"replicas": 1, "set": ["a", "b"], "keyed": [{"name": "n", "x": 1}, {"name": "m"}]})
    live = do_apply(live, {"replicas": 1, "set": ["b"], "keyed": [{"name": "n", "y": 1}]}, "other")
    obj = do_apply(live, {})
    assert obj["spec"] == {"replicas": 1, "set": ["b"], "keyed": [{"name": "n", "y": 1}]}
    assert owned(obj, "me") == {"f:spec": {}}
    assert do_apply(obj, make())["spec"] == obj["spec"]


def test_values_nobody_owns_are_left_in_place() -> None:
    live = do_apply(None, {"struct": {"x": 1}, "replicas": 1})
    live = {**live, "spec": {**live["spec"], "struct": {"x": 1, "y": 5}}}
    assert do_apply(live, {"struct": {"x": 1}})["spec"] == {"struct": {"x": 1, "y": 5}}


def test_the_identity_survives_a_configuration_with_nothing_else() -> None:
    live = do_apply(None, make({"replicas": 1}, labels={"l": "v"}, finalizers=["a/b"]))
    obj = do_apply(live, make())
    assert obj["metadata"] == {"name": "x", "namespace": "ns"}
    assert "spec" not in obj


@pytest.mark.parametrize(
    ("live", "applied", "expected"),
    [
        (["a", "b"], ["c"], ["a", "b", "c"]),
        (["a", "b", "c"], ["c", "a"], ["c", "a", "b"]),
        (["a", "b", "c"], ["a", "x", "c"], ["a", "b", "x", "c"]),
        ([], ["a"], ["a"]),
    ],
)
def test_items_of_sets_are_merged_in_order(live: list[str], applied: list[str], expected: list[str]) -> None:
    obj = do_apply(do_update(None, make({"set": live}), "w"), {"set": applied})
    assert obj["spec"]["set"] == expected


def test_items_of_keyed_lists_are_merged_by_their_keys() -> None:
    live = do_update(None, make({"keyed": [{"name": "a", "x": 1}, {"name": "b", "x": 2}]}), "w")
    obj = do_apply(live, {"keyed": [{"name": "b", "y": 3}, {"name": "c"}]})
    assert obj["spec"]["keyed"] == [{"name": "a", "x": 1}, {"name": "b", "x": 2, "y": 3}, {"name": "c"}]


def test_the_live_object_is_not_modified() -> None:
    live = do_apply(None, {"replicas": 1, "map": {"a": "b"}, "keyed": [{"name": "a", "x": 1}]})
    before = copy.deepcopy(live)
    do_apply(live, {"map": {"c": "d"}, "keyed": [{"name": "b", "x": 1}]}, "other")
    do_apply(live, {}, force=True)
    assert live == before


def test_managed_fields_cannot_be_applied() -> None:
    error = refusal(None, make({}, managedFields=[{"manager": "x"}]))
    assert (error.code, error.message) == (400, "metadata.managedFields must be nil")


def test_unknown_fields_cannot_be_applied() -> None:
    error = refusal(None, {"nope": 1})
    assert (error.code, error.message) == (
        500,
        ("failed to create typed patch object (ns/x; obs.dev/v1, Kind=Kex): .spec.nope: field not declared in schema"),
    )


def test_system_metadata_is_not_applied() -> None:
    live = do_apply(None, {"replicas": 1})
    live["metadata"] |= {"uid": "u", "creationTimestamp": T1, "resourceVersion": "5", "generation": 3}
    config = make({"replicas": 1}, creationTimestamp=None, uid="u", resourceVersion="4")
    assert apply(live, config, "me", force=False, topology=SCHEMA, now=T2) is None
    assert (
        do_apply(live, {**config, "spec": {"replicas": 2}})["metadata"].items()
        >= {"uid": "u", "creationTimestamp": T1, "resourceVersion": "5", "generation": 3}.items()
    )


# ------------------------------------------------------------------------------------------ updating


def test_creation_owns_all_fields_with_their_containers() -> None:
    obj = do_update(None, make({"replicas": 1, "set": ["a"], "keyed": [{"name": "n"}]}, labels={"l": "v"}))
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "writer",
            "operation": "Update",
            "apiVersion": "obs.dev/v1",
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
                "f:spec": {
                    ".": {},
                    "f:keyed": {".": {}, 'k:{"name":"n"}': {".": {}, "f:name": {}}},
                    "f:replicas": {},
                    "f:set": {".": {}, 'v:"a"': {}},
                },
            },
        }
    ]


def test_updates_take_only_what_they_change() -> None:
    live = do_update(None, make({"replicas": 1, "paused": True}), "a")
    obj = do_update(live, {"replicas": 2, "paused": True}, "b", T2)
    assert owned(obj, "a") == {"f:spec": {".": {}, "f:paused": {}}}
    assert owned(obj, "b") == {"f:spec": {"f:replicas": {}}}
    assert [entry["time"] for entry in obj["metadata"]["managedFields"]] == [T1, T2]


def test_nobody_owns_what_is_removed() -> None:
    live = do_apply(do_update(None, make({"replicas": 1, "paused": True}), "a"), {"paused": True}, "b")
    obj = do_update(live, {"replicas": 1}, "c")
    assert [entry["manager"] for entry in obj["metadata"]["managedFields"]] == ["a"]
    assert owned(obj, "a") == {"f:spec": {".": {}, "f:replicas": {}}}


def test_an_update_of_nothing_keeps_the_very_entries() -> None:
    live = do_update(None, make({"replicas": 1}))
    metadata = {**live["metadata"], "resourceVersion": "2", "generation": 5}
    entries = update(live, {**live, "metadata": metadata}, "other", topology=SCHEMA, now=T2)
    assert entries is live["metadata"]["managedFields"]


def test_truth_is_not_a_number() -> None:
    live = {**do_update(None, make({})), "status": {"a": 1, "l": [0]}}
    obj = do_update(live, {**live, "status": {"a": True, "l": [False]}}, "b")
    assert owned(obj, "b") == {"f:status": {"f:a": {}, "f:l": {}}}


def test_a_value_of_another_form() -> None:
    live = {**make(), "status": {"a": {"b": 1}}}
    live = do_update(None, live, "a")
    obj = do_update(live, {**live, "status": {"a": 1}}, "b")
    assert owned(obj, "a") == {"f:status": {}}
    assert owned(obj, "b") == {"f:status": {"f:a": {}}}


@pytest.mark.parametrize("ignored", [[], None, [{"manager": "x"}], [1], "x"])
def test_wrong_ownership_is_ignored(ignored: Any) -> None:
    live = do_update(None, make({"replicas": 1}))
    new = {**live, "metadata": {**live["metadata"], "managedFields": ignored}}
    assert update(live, new, "writer", topology=SCHEMA, now=T2) == live["metadata"]["managedFields"]


def test_ownership_can_be_migrated() -> None:
    live = do_update(None, make({"replicas": 1}), "kubectl-client-side-apply")
    entries = [{**live["metadata"]["managedFields"][0], "manager": "kubectl", "operation": "Apply"}]
    obj = do_update(live, {**live, "metadata": {**live["metadata"], "managedFields": entries}}, "kubectl")
    assert obj["metadata"]["managedFields"] == entries
    assert "spec" in do_apply(obj, {"replicas": 2}, "kubectl")


def test_there_are_not_too_many_updaters() -> None:
    obj = do_update(None, make({"map": {}}), "w")
    for number in range(15):
        spec = {"map": {**obj["spec"]["map"], f"k{number:02}": "v"}}
        obj = do_update(obj, spec, f"w{number:02}", f"2026-01-01T00:01:{number:02}Z")
    entries = obj["metadata"]["managedFields"]
    assert [entry["manager"] for entry in entries] == ["ancient-changes", *(f"w{number:02}" for number in range(6, 15))]
    fields = FieldSet()
    for entry in entries:
        fields |= FieldSet.from_json(entry["fieldsV1"])
    assert all(("f:spec", "f:map", f"f:k{number:02}") in fields for number in range(15))


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("kubectl/v1.36.0 (linux/amd64) kubernetes/abc", "kubectl"),
        ("Mozilla", "Mozilla"),
        ("", ""),
        ("/x", ""),
        ("a\x07b/1", "ab"),
        ("x" * 200, "x" * 128),
    ],
)
def test_managers_without_a_name(agent: str, name: str) -> None:
    assert owners.default_name(agent) == name


@pytest.mark.parametrize(
    ("name", "applying", "complaints"),
    [
        ("ok", True, []),
        ("", False, []),
        ("", True, ["fieldManager: Required value: is required for apply patch"]),
        ("x" * 129, True, ["fieldManager: Too long: may not be more than 128 bytes"]),
        (
            "a\n",
            False,
            ['fieldManager: Invalid value: "a\\n": should only contain printable characters (at position 1)'],
        ),
    ],
)
def test_names_of_managers(name: str, applying: bool, complaints: list[str]) -> None:
    assert [str(error) for error in owners.validate_name(name, applying=applying)] == complaints


# ------------------------------------------------------------------------------------------ laws

NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(0, 2)


@st.composite
def keyed_items(draw: st.DrawFn) -> list[Any]:
    names = draw(st.lists(NAMES, unique=True))
    return [{"name": name, **draw(st.fixed_dictionaries({}, optional={"x": NUMBERS, "y": NUMBERS}))} for name in names]


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": NUMBERS,
        "paused": st.booleans(),
        "struct": st.fixed_dictionaries({}, optional={"x": NUMBERS, "y": NUMBERS}),
        "map": st.dictionaries(NAMES, NAMES),
        "atom": st.dictionaries(NAMES, NAMES),
        "list": st.lists(NUMBERS, max_size=2),
        "set": st.lists(NAMES, unique=True),
        "keyed": keyed_items(),
    },
)
STEPS = st.lists(st.tuples(st.sampled_from(["apply", "update"]), st.sampled_from(["p", "q", "r"]), SPECS), max_size=5)


def play(steps: list[tuple[str, str, Any]]) -> Any:
    obj: Any = do_update(None, make({}), "init")
    for what, manager, spec in steps:
        obj = do_apply(obj, spec, manager, force=True) if what == "apply" else do_update(obj, spec, manager)
    return obj


def all_owned(obj: Any) -> dict[str, FieldSet]:
    return {
        f"{entry['manager']}/{entry['operation']}": FieldSet.from_json(entry["fieldsV1"])
        for entry in obj["metadata"].get("managedFields", [])
    }


def has(value: Any, path: tuple[str, ...]) -> bool:
    """Look for a field as its path says, independently of how the sets are made."""
    if not path:
        return True
    kind, text = path[0][:2], path[0][2:]
    if kind == "f:":
        return isinstance(value, dict) and text in value and has(value[text], path[1:])
    wanted = json.loads(text)
    if kind == "v:":
        return wanted in value
    return any(wanted.items() <= item.items() and has(item, path[1:]) for item in value)


@given(STEPS, SPECS, SPECS)
def test_laws(steps: Any, first: Any, second: Any) -> None:
    live = play(steps)
    entries = live["metadata"]["managedFields"]
    assert owners.write(owners.read(entries)) == entries
    assert owners.read(entries) == owners.read_stored(entries)

    # What is applied is there, and is owned; to apply it again changes nothing.
    forced = do_apply(live, first, force=True)
    expected = owners.ownable(fields_of(make(first), SCHEMA))
    before, after = all_owned(live), all_owned(forced)
    assert after.get("me/Apply", FieldSet()) == expected
    assert all(has(forced, path) for path in expected.paths())
    assert apply(forced, make(first), "me", force=False, topology=SCHEMA, now=T3) is None

    # Force is needed only to take what others own.
    taken = [
        path
        for name, fields in before.items()
        for path in (fields & expected).paths()
        if path not in after.get(name, FieldSet())
    ]
    if taken:
        error = refusal(live, first)
        assert error.details is not None
        assert {path_text(path) for path in taken} <= {cause["field"] for cause in error.details["causes"]}
    else:
        assert do_apply(live, first) == forced

    # A field goes with its last owner.
    final = do_apply(forced, second, force=True)
    wanted = fields_of(make(second), SCHEMA)
    others = (fields.paths() for name, fields in all_owned(final).items() if name != "me/Apply")
    kept = [*itertools.chain.from_iterable(others), *wanted.paths()]
    for path in (fields_of(make(first), SCHEMA) - wanted).paths():
        assert has(final, path) == any(other[: len(path)] == path for other in kept)


@given(SPECS)
def test_law_objects_without_a_schema_follow_the_same_laws(spec: Any) -> None:
    obj = apply(None, make(spec), "me", force=False, topology=WITHOUT_SCHEMA, now=T1)
    assert obj is not None
    assert apply(obj, make(spec), "me", force=False, topology=WITHOUT_SCHEMA, now=T2) is None
    bare = apply(obj, make(), "me", force=False, topology=WITHOUT_SCHEMA, now=T2)
    assert bare is not None
    assert "spec" not in bare
