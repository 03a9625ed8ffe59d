"""How the desired changes become the requests to the API. They are applied here as the API does it."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf._client.resources.patching import PatchRequest, compose
from kopf._values.patches import JSON_PATCH, MERGE_PATCH, FinalizerChange, JSONPatchItem, Patch, merge, thaw
from tests.values.strategies import objects, patches

OURS = "kopf.dev/finalizer"
UID = "123-456"
BODY: dict[str, Any] = {
    "metadata": {"name": "x", "resourceVersion": "5", "finalizers": ["one", "two"]},
    "spec": {"field": "value", "list": [1, 2]},
    "status": {"done": False},
}


def apply(body: dict[str, Any], requests: list[PatchRequest], *, status_subresource: bool) -> dict[str, Any]:
    """What the API server would make of the object: each endpoint ignores the changes of the other's stanza."""
    for request in requests:
        changed = thaw(body)
        payload = request.payload(body["metadata"]["resourceVersion"], UID)
        if isinstance(payload, list):
            assert request.content_type == JSON_PATCH
            changed = jsonpatch.apply_patch(changed, json.dumps(payload))
        else:
            assert request.content_type == MERGE_PATCH
            assert payload["metadata"]["uid"] == UID  # a precondition for the server, not a change
            merge(changed, {**payload, "metadata": {k: v for k, v in payload["metadata"].items() if k != "uid"}})
        if status_subresource:
            stanzas = {"status"} if request.subresource == "status" else {*body, *changed} - {"status"}
            kept = {key: value for key, value in body.items() if key not in stanzas}
            body = {**kept, **{key: value for key, value in changed.items() if key in stanzas}}
        else:
            assert request.subresource is None
            body = changed
        version = str(int(body["metadata"]["resourceVersion"]) + 1)
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
    return body


def get_content(body: dict[str, Any]) -> dict[str, Any]:
    """Everything except for the version, and with no regard to an empty status."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    return {key: value for key, value in {**body, "metadata": metadata}.items() if key != "status" or value}


def get_items(request: PatchRequest, version: str) -> list[JSONPatchItem]:
    payload = request.payload(version, UID)
    assert isinstance(payload, list)
    return payload


def append(raw: dict[str, Any]) -> None:
    raw["spec"]["list"].append(3)


def remove_foreign_finalizer(raw: dict[str, Any]) -> None:
    raw["metadata"]["finalizers"].remove("two")


@pytest.mark.parametrize("status_subresource", [False, True])
@pytest.mark.parametrize(
    "patch",
    [
        Patch(),
        Patch({"spec": {}, "status": {}, "metadata": {}}),
        Patch(fns=[lambda raw: None]),
        Patch({"spec": {"field": "value"}}, fns=[lambda raw: None]),
    ],
)
def test_no_changes_are_no_requests(patch: Patch, status_subresource: bool) -> None:
    assert compose(patch, BODY, status_subresource=status_subresource) == []


def test_what_was_taken_back_is_no_request() -> None:
    patch = Patch()
    patch.metadata.annotations["a"] = "v"
    del patch.metadata.annotations["a"]
    assert compose(patch, BODY, status_subresource=True) == []


def test_dicts_are_merged_in_one_unguarded_request() -> None:
    patch = Patch({"spec": {"field": None}, "status": {"done": True}, "metadata": {"labels": {"l": "v"}}})
    (request,) = compose(patch, BODY, status_subresource=False)
    assert (request.subresource, request.content_type) == (None, MERGE_PATCH)
    assert not request.guarded
    assert request.payload("5", UID) == {**patch, "metadata": {**patch.get("metadata", {}), "uid": UID}}


def test_the_status_is_separated_and_goes_first() -> None:
    patch = Patch({"spec": {"field": None}, "status": {"done": True}})
    requests = compose(patch, BODY, status_subresource=True)
    assert [(request.subresource, request.changes) for request in requests] == [
        ("status", {"status": {"done": True}}),
        (None, {"spec": {"field": None}}),
    ]


@pytest.mark.parametrize(
    ("patch", "subresource"),
    [
        (Patch({"status": {"done": True}}), "status"),
        (Patch({"status": None}), "status"),
        (Patch({"spec": {"field": 1}}), None),
        (Patch(fns=[append]), None),
        (Patch(fns=[lambda raw: raw["status"].clear()]), "status"),
        (Patch(fns=[lambda raw: raw.pop("status")]), "status"),
    ],
)
def test_one_request_is_enough_for_one_endpoint(patch: Patch, subresource: str | None) -> None:
    (request,) = compose(patch, BODY, status_subresource=True)
    assert request.subresource == subresource


def test_composing_does_not_modify_the_patch() -> None:
    patch = Patch({"spec": {"list": [1]}, "status": {"done": True}}, fns=[append])
    first = compose(patch, BODY, status_subresource=True)
    assert compose(patch, BODY, status_subresource=True) == first
    assert patch == {"spec": {"list": [1]}, "status": {"done": True}}


@pytest.mark.parametrize(
    "changes",
    [
        {"patch": Patch(fns=[append])},
        {"patch": Patch({"spec": {"field": 1}}, fns=[append])},
        {"patch": Patch(), "finalizer": OURS, "change": FinalizerChange.ADD},
        {"patch": Patch({"spec": {"field": 1}}), "finalizer": "one", "change": FinalizerChange.REMOVE},
    ],
)
def test_functions_and_finalizers_are_guarded_by_the_version(changes: Any) -> None:
    (request,) = compose(**changes, body=BODY, status_subresource=True)
    assert request.guarded
    assert request.content_type == JSON_PATCH
    payload = get_items(request, "5")
    assert payload[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "5"}
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch({**BODY, "metadata": {"resourceVersion": "6"}}, json.dumps(payload))


def test_each_guarded_request_has_its_own_version() -> None:
    patch = Patch({"status": {"done": True}}, fns=[append])
    requests = compose(patch, BODY, status_subresource=True)
    assert [request.subresource for request in requests] == ["status", None]
    versions = [get_items(request, str(index))[0]["value"] for index, request in enumerate(requests)]
    assert versions == ["0", "1"]


# --- the finalizer ---


@pytest.mark.parametrize("patch", [Patch(), Patch({"spec": {"field": 1}}), Patch(fns=[append])])
@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (None, FinalizerChange.ADD, [OURS]),
        (["one"], FinalizerChange.ADD, ["one", OURS]),
        ([OURS], FinalizerChange.ADD, [OURS]),
        (["one", OURS, "two"], FinalizerChange.REMOVE, ["one", "two"]),
        ([OURS], FinalizerChange.REMOVE, []),
    ],
)
def test_our_finalizer_is_changed_and_others_are_kept(
    patch: Patch, before: list[str] | None, change: FinalizerChange, after: list[str]
) -> None:
    metadata = {"resourceVersion": "5"} if before is None else {"resourceVersion": "5", "finalizers": before}
    body = {**BODY, "metadata": metadata}
    requests = compose(patch, body, finalizer=OURS, change=change, status_subresource=True)
    assert apply(body, requests, status_subresource=True)["metadata"]["finalizers"] == after


@pytest.mark.parametrize(
    "patch",
    [
        Patch(fns=[remove_foreign_finalizer]),
        Patch({"metadata": {"finalizers": ["one"]}}),
    ],
)
@pytest.mark.parametrize(
    ("ours", "change", "after"),
    [
        (OURS, FinalizerChange.ADD, ["one", OURS]),
        ("one", FinalizerChange.REMOVE, []),
    ],
)
def test_finalizers_can_be_changed_by_users_at_the_same_time(
    patch: Patch, ours: str, change: FinalizerChange, after: list[str]
) -> None:
    requests = compose(patch, BODY, finalizer=ours, change=change, status_subresource=True)
    assert apply(BODY, requests, status_subresource=True)["metadata"]["finalizers"] == after


# --- everything together ---


def move_to_status(raw: dict[str, Any]) -> None:
    raw["status"]["field"] = raw["spec"].pop("field")


def move_to_spec(raw: dict[str, Any]) -> None:
    raw["spec"]["done"] = raw.pop("status")


@pytest.mark.parametrize("status_subresource", [False, True])
@pytest.mark.parametrize("fn", [move_to_status, move_to_spec])
def test_values_can_be_moved_between_the_endpoints(fn: Any, status_subresource: bool) -> None:
    expected = thaw(BODY)
    fn(expected)
    requests = compose(Patch(fns=[fn]), BODY, status_subresource=status_subresource)
    actual = apply(BODY, requests, status_subresource=status_subresource)
    assert get_content(actual) == get_content(expected)


stanzas = st.dictionaries(st.sampled_from(["spec", "status", "data"]), objects, max_size=3)


@settings(deadline=None)
@given(
    body=stanzas,
    patch=st.dictionaries(st.sampled_from(["spec", "status", "data"]), st.none() | patches, max_size=3),
    target=st.none() | stanzas,
    change=st.sampled_from([None, *FinalizerChange]),
    finalizers=st.lists(st.sampled_from([OURS, "one", "two"]), unique=True),
    status_subresource=st.booleans(),
)
def test_the_object_becomes_what_was_desired(
    body: dict[str, Any],
    patch: dict[str, Any],
    target: dict[str, Any] | None,
    change: FinalizerChange | None,
    finalizers: list[str],
    status_subresource: bool,
) -> None:
    def transform(raw: dict[str, Any]) -> None:
        metadata = raw["metadata"]
        raw.clear()
        raw.update(thaw(target), metadata=metadata)

    body = {**_strip(body), "metadata": {"resourceVersion": "5", "finalizers": finalizers}}
    expected = thaw(body)
    merge(expected, patch)
    if target is not None:
        target = _strip(target)
        transform(expected)
    if change is not None:
        others = [name for name in finalizers if name != OURS]
        expected["metadata"]["finalizers"] = [*others, OURS] if change is FinalizerChange.ADD else others
    requests = compose(
        Patch(patch, fns=[transform] if target is not None else []),
        body,
        finalizer=OURS,
        change=change,
        status_subresource=status_subresource,
    )
    actual = apply(body, requests, status_subresource=status_subresource)
    assert _strip(get_content(actual)) == _strip(get_content(expected))
    assert len(requests) <= (2 if status_subresource else 1)


def _strip(value: Any) -> Any:
    """Drop the nulls, which mean absence, and the stanzas that are empty."""
    if isinstance(value, dict):
        return {key: _strip(item) for key, item in value.items() if item is not None and item != {}}
    return value
