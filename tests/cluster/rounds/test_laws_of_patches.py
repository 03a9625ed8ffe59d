"""Patches of all types, through the API, against independent libraries and the laws of each type."""

from __future__ import annotations

import copy
from typing import Any

import json_merge_patch
import jsonpatch
import jsonpointer
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.conftest import JSON, MERGE, STRATEGIC
from tests.cluster.rounds.widgets import FREE_PATH, make_thing
from tests.cluster.rounds.wire import Wire

TEMPLATES = "/api/v1/namespaces/default/podtemplates"

KEYS = st.sampled_from(["a", "b", "c/d", "e~f", "0", ""])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, "", "x", "\u00e4"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=10
)
SPECS = st.dictionaries(KEYS, VALUES, max_size=4)


def test_merge_patches_against_a_library(wire: Wire) -> None:
    @given(SPECS, SPECS)
    def attempt(spec: Any, patch: Any) -> None:
        wire.put(FREE_PATH, make_thing("merged", spec))
        answer = wire.send("PATCH", f"{FREE_PATH}/merged", {"spec": patch}, MERGE)
        assert answer.status == 200
        assert answer.json["spec"] == json_merge_patch.merge(copy.deepcopy(spec), copy.deepcopy(patch))
        again = wire.send("PATCH", f"{FREE_PATH}/merged", {"spec": patch}, MERGE)
        assert again.json == answer.json  # with the same version

    attempt()


def test_json_patches_are_done_as_a_whole_or_not_at_all(wire: Wire) -> None:
    pointers = st.sampled_from(["/a", "/b", "/a/0", "/a/-", "/a/b", "/c~1d", "/e~0f", "/0", "/", "/nosuch/x", "/b/1"])
    operations = st.one_of(
        st.builds(lambda path, value: {"op": "add", "path": path, "value": value}, pointers, VALUES),
        st.builds(lambda path, value: {"op": "replace", "path": path, "value": value}, pointers, VALUES),
        st.builds(lambda path, value: {"op": "test", "path": path, "value": value}, pointers, SCALARS),
        st.builds(lambda path: {"op": "remove", "path": path}, pointers),
        st.builds(
            lambda op, path, source: {"op": op, "path": path, "from": source},
            st.sampled_from(["move", "copy"]),
            pointers,
            pointers,
        ),
    )

    @given(SPECS, st.lists(operations, min_size=1, max_size=4))
    def attempt(spec: Any, patch: list[Any]) -> None:
        made = wire.put(FREE_PATH, make_thing("atomic", spec))
        rooted = [
            {**one, "path": "/spec" + one["path"], **({"from": "/spec" + one["from"]} if "from" in one else {})}
            for one in patch
        ]
        answer = wire.send("PATCH", f"{FREE_PATH}/atomic", rooted, JSON)
        try:
            expected = jsonpatch.apply_patch(spec, patch)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError):
            assert (answer.status, answer.json["reason"]) == (422, "Invalid")
            assert wire.send("GET", f"{FREE_PATH}/atomic").json == made
        else:
            assert (answer.status, answer.json["spec"]) == (200, expected)

    attempt()


# ---------------------------------------------------------------------------------------------
# Strategic merge-patches: as a client makes them from two states of an object with keyed lists.

NAMES = st.sampled_from(["a", "b", "c", "d"])
ENV = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"value": st.sampled_from(["1", "2"])}),
    max_size=3,
    unique_by=lambda one: one["name"],
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "image": st.sampled_from(["x:1", "y:2"])},
        optional={"env": ENV, "args": st.lists(NAMES, max_size=2), "workingDir": st.sampled_from(["/a", "/b"])},
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one["name"],
)
LABELS = st.dictionaries(NAMES, NAMES, max_size=3)
TEMPLATE_SPECS = st.builds(
    lambda containers, selector, labels: {
        "metadata": {"labels": labels},
        "spec": {"containers": containers, "nodeSelector": selector},
    },
    CONTAINERS,
    LABELS,
    LABELS,
)
MERGE_KEYS = {"containers": "name", "env": "name", "tolerations": None}


def make_template(name: str, template: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": template}


def differ(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Make a strategic merge-patch that makes the new state of the old one, as ``kubectl apply`` does."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if old.get(key) == value:
            continue
        merge_key = MERGE_KEYS.get(key)
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            patch[key] = differ(old[key], value)
        elif isinstance(value, list) and merge_key is not None and old.get(key):
            known = {item[merge_key]: item for item in old[key]}
            wanted = {item[merge_key] for item in value}
            patch[f"$setElementOrder/{key}"] = [{merge_key: item[merge_key]} for item in value]
            patch[key] = [
                {merge_key: item[merge_key], **differ(known.get(item[merge_key], {}), item)}
                for item in value
                if known.get(item[merge_key]) != item
            ]
            patch[key] += [{merge_key: name, "$patch": "delete"} for name in known if name not in wanted]
        else:
            patch[key] = value
    return patch


def test_strategic_patches_make_one_state_of_another(wire: Wire) -> None:
    @given(TEMPLATE_SPECS, TEMPLATE_SPECS)
    def attempt(one: Any, two: Any) -> None:
        old = wire.put(TEMPLATES, make_template("one", one))["template"]
        new = wire.put(TEMPLATES, make_template("two", two))["template"]  # with all the defaults
        patch = {"template": differ(old, new)}
        answer = wire.send("PATCH", f"{TEMPLATES}/one", patch, STRATEGIC)
        assert answer.status == 200, answer
        assert answer.json["template"] == new
        again = wire.send("PATCH", f"{TEMPLATES}/one", patch, STRATEGIC)
        assert again.json == answer.json

    attempt()


def test_strategic_patches_leave_alone_what_others_have_added(wire: Wire) -> None:
    """The three-way merge: what is in neither of the configurations survives."""

    @given(TEMPLATE_SPECS, TEMPLATE_SPECS)
    def attempt(last: Any, now: Any) -> None:
        wire.put(TEMPLATES, make_template("live", last))
        injected = {
            "template": {
                "metadata": {"labels": {"injected": "yes"}},
                "spec": {"containers": [{"name": "injected", "image": "z"}]},
            }
        }
        assert wire.send("PATCH", f"{TEMPLATES}/live", injected, STRATEGIC).status == 200
        answer = wire.send("PATCH", f"{TEMPLATES}/live", {"template": differ(last, now)}, STRATEGIC)
        assert answer.status == 200, answer
        template = answer.json["template"]
        assert template["metadata"]["labels"] == {**now["metadata"]["labels"], "injected": "yes"}
        names = [one["name"] for one in template["spec"]["containers"]]
        assert set(names) == {"injected", *(one["name"] for one in now["spec"]["containers"])}
        for wanted in now["spec"]["containers"]:
            actual = template["spec"]["containers"][names.index(wanted["name"])]
            filled = {key: value for key, value in wanted.items() if value}  # what is empty is left out
            assert {key: value for key, value in actual.items() if key in wanted} == filled

    attempt()
