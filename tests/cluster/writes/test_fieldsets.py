from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster.kinds import topologies
from kopf_cluster.writes import comparing
from kopf_cluster.writes.fieldsets import (
    FieldSet,
    Path,
    Tree,
    field_element,
    insert,
    key_element,
    path_text,
    value_element,
)

ELEMENTS = st.sampled_from(
    ["f:a", "f:b", "f:c", 'k:{"name":"x"}', 'k:{"name":"y","port":80}', 'v:"x"', "v:1", "i:0", "i:10"]
)
PATHS = st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple)
PATH_SETS = st.sets(PATHS, max_size=8)


def make_set(paths: Iterable[Path]) -> FieldSet:
    tree: Tree = {}
    for path in paths:
        insert(tree, path, {})
    return FieldSet(tree)


@given(PATH_SETS)
def test_a_set_consists_of_its_paths(paths: set[tuple[str, ...]]) -> None:
    fields = make_set(paths)
    assert set(fields.paths()) == paths
    assert len(list(fields.paths())) == len(paths)
    assert all(path in fields for path in paths)
    assert bool(fields) == bool(paths)


@given(PATH_SETS)
def test_the_json_is_read_as_it_was_written(paths: set[tuple[str, ...]]) -> None:
    fields = make_set(paths)
    assert FieldSet.from_json(fields.to_json()) == fields


@given(PATH_SETS, PATH_SETS)
def test_operations_are_those_of_sets(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> None:
    one, two = make_set(left), make_set(right)
    assert set((one | two).paths()) == left | right
    assert set((one - two).paths()) == left - right
    assert set((one & two).paths()) == left & right
    assert (one | two) == make_set(left | right)
    assert (one - two) == make_set(left - right)
    assert (one & two) == make_set(left & right)


@given(PATH_SETS, PATH_SETS)
def test_operations_leave_the_sets_as_they_are(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> None:
    one, two = make_set(left), make_set(right)
    (one | two).to_json(), (one - two).to_json(), (one & two).to_json(), one.without(two).to_json()
    assert (one, two) == (make_set(left), make_set(right))


@given(PATH_SETS, PATH_SETS)
def test_fields_are_cut_with_everything_inside(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> None:
    expected = {path for path in left if not any(path[: len(prefix)] == prefix for prefix in right)}
    assert set(make_set(left).without(make_set(right)).paths()) == expected


def test_the_json_has_the_order_of_the_server() -> None:
    key = 'k:{"name":"x"}'
    fields = make_set([("i:10",), ("i:9",), ('v:"x"',), (key, "f:b"), (key,), ("f:b",)])
    assert list(fields.to_json()) == ["f:b", 'k:{"name":"x"}', 'v:"x"', "i:9", "i:10"]
    assert fields.to_json()['k:{"name":"x"}'] == {".": {}, "f:b": {}}


def test_keys_have_one_form() -> None:
    fields = FieldSet.from_json({'k:{"port": 80, "name": "x"}': {".": {}}})
    assert list(fields.paths()) == [('k:{"name":"x","port":80}',)]
    assert fields.to_json() == {'k:{"name":"x","port":80}': {}}


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        None,
        {"f:a": []},
        {"a": {}},
        {"x:1": {}},
        {"k:{": {}},
        {"k:[]": {}},
        {"k:{}": {}},
        {'i:"x"': {}},
        {"i:true": {}},
    ],
)
def test_other_json_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"set of fields"):
        FieldSet.from_json(wrong)


def test_paths_are_shown_as_by_the_server() -> None:
    path = ("f:spec", "f:ports", key_element({"protocol": "TCP", "containerPort": 80}), "f:name")
    assert path_text(path) == '.spec.ports[containerPort=80,protocol="TCP"].name'
    finalizer = (field_element("metadata"), field_element("finalizers"), value_element("a/b"))
    assert path_text(finalizer) == '.metadata.finalizers[="a/b"]'
    assert path_text(("f:a", "i:3")) == ".a[3]"


SCHEMA = topologies.of_schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "keyed": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["port", "protocol"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "port": {"type": "integer"},
                                "protocol": {"type": "string", "default": "TCP"},
                                "name": {"type": "string"},
                            },
                        },
                    },
                    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                    "map": {
                        "type": "object",
                        "additionalProperties": {"type": "object", "properties": {"x": {"type": "integer"}}},
                    },
                    "atom": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "properties": {"x": {"type": "integer"}},
                    },
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "struct": {"type": "object", "properties": {"x": {"type": "integer"}}},
                },
            }
        },
    },
    root=True,
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"keyed": [{"port": 80, "name": "a"}]},
            {"f:keyed": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}, "f:port": {}}}},
        ),
        ({"set": ["a", "b"]}, {"f:set": {'v:"a"': {}, 'v:"b"': {}}}),
        ({"set": []}, {}),
        ({"list": [{"x": 1}]}, {"f:list": {}}),
        ({"list": []}, {"f:list": {}}),
        ({"map": {"k": {"x": 1}}}, {"f:map": {"f:k": {".": {}, "f:x": {}}}}),
        ({"map": {}}, {"f:map": {}}),
        ({"atom": {"x": 1}}, {"f:atom": {}}),
        ({"free": {"a": {"b": [1]}}}, {"f:free": {"f:a": {".": {}, "f:b": {}}}}),
        ({"struct": {"x": 1}}, {"f:struct": {"f:x": {}}}),
    ],
)
def test_fields_of_a_configuration(spec: Any, expected: Any) -> None:
    assert comparing.fields_of({"spec": spec}, SCHEMA).to_json() == ({"f:spec": expected} if expected else {})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"unknown": 1}, ".spec.unknown: field not declared in schema"),
        ({"struct": {"y": 1}}, ".spec.struct.y: field not declared in schema"),
        (
            {"keyed": [{"name": "x"}]},
            (
                '.spec.keyed: element 0: associative list with keys has an element that omits key field "port" '
                "(and doesn't have default value)"
            ),
        ),
        ({"keyed": ["x"]}, ".spec.keyed: element 0: associative list with keys may not have non-map elements"),
        (
            {"keyed": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
            '.spec.keyed[port=1,protocol="TCP"]: duplicate entries for key',
        ),
        ({"set": ["x", "x"]}, '.spec.set[="x"]: duplicate entries for key'),
        ({"set": [{}]}, ".spec.set: element 0: associative list without keys has an element that is not a scalar"),
    ],
)
def test_misfits_are_refused(spec: Any, message: str) -> None:
    with pytest.raises(comparing.SchemaMismatch) as error:
        comparing.fields_of({"spec": spec}, SCHEMA)
    assert str(error.value) == message


def test_the_structure_of_built_in_kinds() -> None:
    from kopf_cluster.kinds import structures

    pod = topologies.of_structure(structures.of_definition("io.k8s.api.core.v1.Pod"))
    fields = comparing.fields_of(
        {
            "metadata": {"finalizers": ["a/b"], "labels": {"a": "b"}, "ownerReferences": [{"uid": "u", "name": "n"}]},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "args": ["x"],
                        "ports": [{"containerPort": 80}],
                        "resources": {"limits": {"cpu": "1"}},
                    }
                ],
                "nodeSelector": {"a": "b"},
                "tolerations": [{"key": "x"}],
            },
        },
        pod,
    )
    assert fields.to_json() == {
        "f:metadata": {
            "f:finalizers": {'v:"a/b"': {}},
            "f:labels": {"f:a": {}},
            "f:ownerReferences": {'k:{"uid":"u"}': {}},
        },
        "f:spec": {
            "f:containers": {
                'k:{"name":"main"}': {
                    ".": {},
                    "f:args": {},
                    "f:name": {},
                    "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                    "f:resources": {"f:limits": {"f:cpu": {}}},
                }
            },
            "f:nodeSelector": {},
            "f:tolerations": {},
        },
    }
    with pytest.raises(comparing.SchemaMismatch, match=r"^\.spec\.nope: field not declared in schema$"):
        comparing.fields_of({"spec": {"nope": 1}}, pod)
