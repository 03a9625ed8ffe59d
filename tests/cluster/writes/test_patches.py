from __future__ import annotations

import copy
from typing import Any

import pytest

from kopf_cluster.patches import json_patch, merge_patch
from kopf_cluster.statuses import APIStatus
from tests.cluster.conftest import Client, make_kex


# The examples of the RFC 7386, Appendix A.
@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_does_what_the_rfc_shows(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


def test_merge_patch_shares_what_it_does_not_touch() -> None:
    target = {"spec": {"a": 1}, "status": {}}
    assert merge_patch(target, {"status": {"b": 2}})["spec"] is target["spec"]


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/c", "value": 1}], {"a": [1, 2], "b": {"x/y": 1}, "c": 1}),
        ([{"op": "add", "path": "/a/-", "value": 3}], {"a": [1, 2, 3], "b": {"x/y": 1}}),
        ([{"op": "add", "path": "/a/0", "value": 3}], {"a": [3, 1, 2], "b": {"x/y": 1}}),
        ([{"op": "remove", "path": "/b/x~1y"}], {"a": [1, 2], "b": {}}),
        ([{"op": "replace", "path": "/a", "value": None}], {"a": None, "b": {"x/y": 1}}),
        ([{"op": "move", "from": "/b/x~1y", "path": "/m"}], {"a": [1, 2], "b": {}, "m": 1}),
        ([{"op": "copy", "from": "/a", "path": "/b/c"}], {"a": [1, 2], "b": {"x/y": 1, "c": [1, 2]}}),
        ([{"op": "test", "path": "/a/0", "value": 1}], {"a": [1, 2], "b": {"x/y": 1}}),
    ],
)
def test_json_patch_operations(operations: Any, expected: Any) -> None:
    target = {"a": [1, 2], "b": {"x/y": 1}}
    before = copy.deepcopy(target)
    assert json_patch(target, operations) == expected
    assert target == before


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/a/0", "value": 2}],
        [{"op": "test", "path": "/missing", "value": 2}],
        [{"op": "remove", "path": "/missing"}],
        [{"op": "replace", "path": "/missing", "value": 1}],
        [{"op": "add", "path": "/x/y/z", "value": 1}],
        [{"op": "add", "path": "/a/7", "value": 1}],
        [{"op": "nosuch", "path": "/a", "value": 1}],
        [{"op": "add", "path": "no-slash", "value": 1}],
        [{"op": "add", "value": 1}],
        [{"op": "add", "path": 5, "value": 1}],
        [{"path": "/a"}],
    ],
)
def test_json_patch_that_does_not_fit_is_unprocessable(operations: Any) -> None:
    with pytest.raises(APIStatus) as error:
        json_patch({"a": [1, 2]}, operations)
    assert error.value.code == 422
    assert error.value.reason == "Invalid"


@pytest.mark.parametrize("operations", [{}, "x", None, [1], [[]]])
def test_json_patch_that_is_not_a_list_of_operations_is_bad(operations: Any) -> None:
    with pytest.raises(APIStatus) as error:
        json_patch({}, operations)
    assert error.value.code == 400


def test_json_patch_of_too_many_operations_is_too_large() -> None:
    with pytest.raises(APIStatus) as error:
        json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)
    assert error.value.code == 413


@pytest.mark.parametrize("levels", [1100, 5000, 9000, 100_000])
@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        ("application/merge-patch+json", '{"spec": DEEP}'),
        ("application/json-patch+json", '[{"op": "add", "path": "/spec", "value": DEEP}]'),
    ],
)
async def test_deep_patches_are_refused_or_done_but_never_fail(
    client: Client,
    kexes: str,
    levels: int,
    content_type: str,
    text: str,
) -> None:
    """How deep a document can be to be decoded, depends on the version of Python; to be compared, it has to be less."""
    await client.create(kexes, make_kex())
    data = text.replace("DEEP", '{"a":' * levels + "1" + "}" * levels)
    reply = await client.call("PATCH", f"{kexes}/one", data=data, headers={"Content-Type": content_type})
    assert reply.status in ((400,) if levels > 10_000 else (200, 400))
    assert (await client.call("GET", f"{kexes}/one")).status == 200
