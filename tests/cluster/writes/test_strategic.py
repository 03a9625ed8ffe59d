from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster.kinds import structures
from kopf_cluster.patches import merge_patch
from kopf_cluster.statuses import APIStatus
from kopf_cluster.writes.strategic import strategic_patch

CORE = "io.k8s.api.core.v1."

documents = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from("abc"), documents, max_size=3)


def patched(definition: str, target: Any, patch: Any) -> Any:
    return strategic_patch(target, patch, structures.of_definition(definition))


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        # By merge keys; new items go where the patch has them, the others stay before what they were before:
        (
            {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
            {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]},
            {"containers": [{"name": "a", "image": "2"}, {"name": "c"}, {"name": "b"}]},
        ),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"name": "b", "image": "1"}]},
            {"containers": [{"name": "a"}, {"name": "b", "image": "1"}]},
        ),
        (
            {"containers": [{"name": "a", "ports": [{"containerPort": 81}, {"containerPort": 82}]}]},
            {"containers": [{"name": "a", "ports": [{"containerPort": 83}]}]},
            {
                "containers": [
                    {"name": "a", "ports": [{"containerPort": 83}, {"containerPort": 81}, {"containerPort": 82}]}
                ]
            },
        ),
        # Lists with no merge keys are replaced:
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"c": "d"}}, {"nodeSelector": {"a": "b", "c": "d"}}),
        # Directives:
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [{"name": "b"}]},
        ),
        (
            {"containers": [{"name": "a"}]},
            {"containers": [{"name": "b"}, {"$patch": "replace"}]},
            {"containers": [{"name": "b"}]},
        ),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "a", "image": "1"}],
            },
            {"containers": [{"name": "b"}, {"name": "a", "image": "1"}]},
        ),
        (
            {"containers": [{"name": "a"}, {"name": "x"}, {"name": "b"}]},
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
            {"containers": [{"name": "x"}, {"name": "b"}, {"name": "a"}]},
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]},
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        ),
        (
            {"securityContext": {"runAsUser": 1}},
            {"securityContext": {"$patch": "replace", "runAsGroup": 3}},
            {"securityContext": {"runAsGroup": 3}},
        ),
        ({"securityContext": {"runAsUser": 1}}, {"securityContext": {"$patch": "delete"}}, {"securityContext": {}}),
        # As in merge-patches:
        (
            {"hostname": "a", "securityContext": {"runAsUser": 1, "runAsGroup": 2}},
            {"hostname": None, "securityContext": {"runAsUser": None}},
            {"securityContext": {"runAsGroup": 2}},
        ),
    ],
)
def test_pods_are_patched_by_their_structure(target: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy((target, patch))
    assert patched(f"{CORE}PodSpec", target, patch) == expected
    assert (target, patch) == before


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["b", "a"]}),
        ({"finalizers": ["a", "c"]}, {"finalizers": ["b"]}, {"finalizers": ["b", "a", "c"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        (
            {"ownerReferences": [{"uid": "1"}]},
            {"ownerReferences": [{"uid": "2"}]},
            {"ownerReferences": [{"uid": "2"}, {"uid": "1"}]},
        ),
    ],
)
def test_metadata_are_patched_by_their_structure(target: Any, patch: Any, expected: Any) -> None:
    assert patched(f"{CORE}Pod", {"metadata": target}, {"metadata": patch}) == {"metadata": expected}


def test_keys_depend_on_the_kind() -> None:
    spec = {"ports": [{"port": 80, "name": "a"}]}
    assert patched(f"{CORE}ServiceSpec", spec, {"ports": [{"port": 80, "name": "b"}]}) == {
        "ports": [{"port": 80, "name": "b"}]
    }


@pytest.mark.parametrize(
    "patch",
    [
        [],
        {"$patch": "nosuch"},
        {"containers": [{"image": "no name"}, {"name": "x"}]},
        {"containers": ["x"]},
    ],
)
def test_what_makes_no_sense_is_bad(patch: Any) -> None:
    with pytest.raises(APIStatus) as error:
        patched(f"{CORE}PodSpec", {"containers": [{"name": "a"}]}, patch)
    assert error.value.code == 400


@given(objects, objects)
def test_of_unknown_fields_it_is_a_merge_patch(target: Any, patch: Any) -> None:
    assert patched(f"{CORE}Pod", target, patch) == merge_patch(target, patch)


names = st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)


@given(names, names)
def test_merged_lists_keep_the_orders_of_both(old: list[str], new: list[str]) -> None:
    merged = patched(f"{CORE}Pod", {"metadata": {"finalizers": old}}, {"metadata": {"finalizers": new}})
    result = merged["metadata"]["finalizers"]
    assert sorted(result) == sorted({*old, *new})
    assert [name for name in result if name in new] == new
    assert [name for name in result if name not in new] == [name for name in old if name not in new]
