"""Indices: what of the objects gets there, how it is arranged, and how it leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Operator
from tests.patience import wait_until

Content = dict[Any, list[Any]]


class Peek:
    """Lets the test look into an index: it is taken from the kwargs of the startup handler."""

    index: kopf.Index[Any, Any]

    @property
    def content(self) -> Content:
        return {key: sorted(self.index[key], key=repr) for key in self.index}


@pytest.fixture
def peek() -> Peek:
    """The index named ``idx``."""

    @kopf.on.startup(id="peek")
    async def startup_fn(idx: kopf.Index[Any, Any], **_: Any) -> None:
        taken.index = idx

    taken = Peek()
    return taken


async def sync(kex: Objects, calls: Calls) -> None:
    """Wait until everything that was done to the objects before, has reached the operator."""
    name = f"sync{len(calls)}"
    await kex.create(name, spec={})
    await calls.wait(lambda items: name in items)
    await kex.delete_and_wait(name)
    await calls.wait(lambda items: f"-{name}" in items)


@pytest.fixture(autouse=True)
def _follow(calls: Calls) -> None:
    kopf.on.event("kopfexamples", id="follow", when=lambda name, **_: name.startswith("sync"))(
        calls.noting(lambda name, type, **_: f"-{name}" if type == "DELETED" else name)
    )


def declare(fn: Callable[..., Any], **options: Any) -> None:
    """Declare the index ``idx`` of the objects of the test, not of the synchronisation."""
    kopf.index("kopfexamples", id="idx", **{"when": _is_of_test, **options})(fn)


def _is_of_test(name: str, **_: Any) -> bool:
    return not name.startswith("sync")


class Dictish(dict[Any, Any]):
    """A descendant of dict."""


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([{"k1": "A"}, {"k1": "B"}, {"k2": "C"}], {"k1": ["A", "B"], "k2": ["C"]}),
        ([{"k1": "A"}, {"k1": "B"}, {"k2": {"k3": "C"}}], {"k1": ["A", "B"], "k2": [{"k3": "C"}]}),
        ([{("a", 1): "A"}, {("a", 2): "B"}], {("a", 1): ["A"], ("a", 2): ["B"]}),
        ([{"k1": "A", "k2": "B"}, {"k2": "C", "k3": "D"}], {"k1": ["A"], "k2": ["B", "C"], "k3": ["D"]}),
        (["A", "B"], {None: ["A", "B"]}),
        (["A", "A"], {None: ["A", "A"]}),
        ([1, ("t", 2), [3], {4}], {None: [("t", 2), 1, [3], {4}]}),
        ([0, False, ""], {None: ["", 0, False]}),
        ([Dictish(a=1), kopf.Memo(b=2)], {None: [{"a": 1}, {"b": 2}]}),
        ([None, None], {}),
        ([{}, {}], {}),
        ([{"k": None}, {"k": None}], {"k": [None, None]}),
        ([{None: "A"}, "B"], {None: ["A", "B"]}),
    ],
    ids=[
        "keys",
        "not-nested",
        "tuples",
        "several-keys",
        "non-dicts",
        "duplicates",
        "any-types",
        "falsy-values",
        "descendants-of-dict",
        "none",
        "empty-dicts",
        "dicts-of-nones",
        "mixed",
    ],
)
async def test_the_structure(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    peek: Peek,
    results: list[Any],
    expected: Content,
) -> None:
    declare(lambda spec, **_: results[spec["v"]])
    for n in range(len(results)):
        await kex.create(f"obj{n}", spec={"v": n})
    await operator.start()
    await sync(kex, calls)
    assert peek.content == {key: sorted(values, key=repr) for key, values in expected.items()}


async def test_types_are_documented_and_read_only(operator: Operator, kex: Objects, calls: Calls, peek: Peek) -> None:
    declare(lambda spec, **_: {"key": spec["v"]})
    await kex.create(spec={"v": "value"})
    await operator.start()
    await sync(kex, calls)
    index, store = peek.index, peek.index["key"]
    assert isinstance(index, kopf.Index)
    assert isinstance(index, Mapping)
    assert isinstance(store, kopf.Store)
    assert isinstance(store, Collection)
    assert not isinstance(store, Mapping)
    assert (len(index), list(index), "key" in index, "other" in index) == (1, ["key"], True, False)
    assert (len(store), list(store), "value" in store, "other" in store) == (1, ["value"], True, False)
    assert [*index.keys()] == ["key"]
    assert [[*values] for values in index.values()] == [["value"]]
    assert [(key, [*values]) for key, values in index.items()] == [("key", ["value"])]
    assert index.get("other") is None
    assert list(index.get("other", [])) == []
    assert bool(index)
    assert bool(store)
    with pytest.raises(KeyError):
        index["other"]
    assert not hasattr(index, "__setitem__")
    assert not hasattr(index, "__delitem__")
    assert not hasattr(store, "append")


async def test_whole_objects_can_be_mirrored(operator: Operator, kex: Objects, calls: Calls, peek: Peek) -> None:
    declare(lambda namespace, name, body, **_: {(namespace, name): body})
    await kex.create(spec={"v": 1}, status={"x": "y"})
    await operator.start()
    await kex.merge({"spec": {"v": 2}})
    await sync(kex, calls)
    (body,) = peek.index["default", "obj"]
    assert (body.spec["v"], body.status["x"], body.meta.name) == (2, "y", "obj")


async def test_changes_of_objects_change_the_index(operator: Operator, kex: Objects, calls: Calls, peek: Peek) -> None:
    """The new values replace the previous ones of that object only; keys that are gone, are removed."""
    declare(lambda spec, name, **_: {key: f"{name}{value}" for key, value in spec["v"].items()})
    await operator.start_and_create(kex, "a", spec={"v": {"k1": 1, "k2": 1}})
    await kex.create("b", spec={"v": {"k2": 1, "k3": 1}})
    await sync(kex, calls)
    assert peek.content == {"k1": ["a1"], "k2": ["a1", "b1"], "k3": ["b1"]}
    await kex.merge({"spec": {"v": {"k1": None, "k2": 2, "k4": 2}}}, "a")
    await sync(kex, calls)
    assert peek.content == {"k2": ["a2", "b1"], "k3": ["b1"], "k4": ["a2"]}
    await kex.merge({"spec": {"v": {"k2": None, "k4": None}}}, "a")
    await sync(kex, calls)
    assert peek.content == {"k2": ["b1"], "k3": ["b1"]}


async def test_deleted_objects_leave_and_empty_collections_are_removed(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    peek: Peek,
) -> None:
    declare(lambda spec, name, **_: {"common": name, spec["v"]: name})
    await operator.start_and_create(kex, "a", spec={"v": "own-a"})
    await kex.create("b", spec={"v": "own-b"})
    await sync(kex, calls)
    assert peek.content == {"common": ["a", "b"], "own-a": ["a"], "own-b": ["b"]}
    await kex.delete("a")
    await sync(kex, calls)
    assert peek.content == {"common": ["b"], "own-b": ["b"]}
    await kex.delete("b")
    await sync(kex, calls)
    assert peek.content == {}
    assert not peek.index


@pytest.mark.fastforward
async def test_objects_gone_while_the_stream_was_broken_leave_too(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    peek: Peek,
) -> None:
    declare(lambda name, **_: name)
    await operator.start_and_create(kex, "a", spec={"v": 1})
    await kex.create("b", spec={"v": 1})
    await sync(kex, calls)
    rule = operator.cluster.faults.inject(503, verb="watch", resource="kopfexamples")
    operator.cluster.faults.cut_watches()
    await kex.delete("a")
    operator.cluster.faults.compact()
    operator.cluster.faults.remove(rule)
    await sync(kex, calls)
    assert peek.content == {None: ["b"]}


async def test_recreated_objects_are_new_objects(operator: Operator, kex: Objects, calls: Calls, peek: Peek) -> None:
    declare(lambda uid, **_: uid)
    await operator.start()
    for _ in range(3):
        obj = await kex.create(spec={"v": 1})
        await sync(kex, calls)
        assert peek.content == {None: [obj["metadata"]["uid"]]}
        await kex.delete()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"labels": {"match": "yes"}}, {"metadata": {"labels": {"match": "yes"}}}),
        ({"annotations": {"match": kopf.PRESENT}}, {"metadata": {"annotations": {"match": "yes"}}}),
        ({"when": lambda spec, **_: spec.get("match") == "yes"}, {"spec": {"match": "yes"}}),
        ({"field": "spec.match"}, {"spec": {"match": "yes"}}),
        ({"field": "spec.match", "value": lambda value, **_: value == "yes"}, {"spec": {"match": "yes"}}),
    ],
    ids=["labels", "annotations", "when", "field", "value"],
)
async def test_filters(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    peek: Peek,
    options: dict[str, Any],
    match: dict[str, Any],
) -> None:
    """Objects that stop matching are removed; when they match again, they are back."""
    mismatch: dict[str, Any] = {
        "metadata": {"labels": {"match": None}, "annotations": {"match": None}},
        "spec": {"match": None},
    }
    declare(lambda name, **_: {"key": name}, **options)
    await operator.start_and_create(kex, spec={"v": 1})
    await sync(kex, calls)
    assert peek.content == {}
    for _ in range(2):
        await kex.merge(match)
        await sync(kex, calls)
        assert peek.content == {"key": ["obj"]}
        await kex.merge(mismatch)
        await sync(kex, calls)
        assert peek.content == {}


async def test_returning_nothing_keeps_what_is_there(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    peek: Peek,
) -> None:
    declare(lambda spec, **_: spec["v"] if spec["v"] != "skip" else None)
    await operator.start_and_create(kex, spec={"v": "first"})
    await sync(kex, calls)
    await kex.merge({"spec": {"v": "skip"}})
    await sync(kex, calls)
    assert peek.content == {None: ["first"]}
    await kex.merge({"spec": {"v": "second"}})
    await sync(kex, calls)
    assert peek.content == {None: ["second"]}


async def test_overlapping_declarations_call_the_function_once(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    peek: Peek,
) -> None:
    """An object is in the index if any of the declarations is for it."""

    @kopf.index("kopfexamples", labels={"a": "yes"})
    @kopf.index("kopf.dev/v1", "kopfexamples", labels={"b": "yes"})
    async def idx(name: str, **_: Any) -> str:
        calls.append(f"indexing {name}")
        return name

    await operator.start()
    for name, labels in {"a": {"a": "yes"}, "b": {"b": "yes"}, "ab": {"a": "yes", "b": "yes"}, "none": {}}.items():
        await kex.create(name, labels=labels)
    await sync(kex, calls)
    assert peek.content == {None: ["a", "ab", "b"]}
    assert [call for call in calls if call.startswith("indexing")] == ["indexing a", "indexing b", "indexing ab"]
    await kex.merge({"metadata": {"labels": {"a": None}}}, "a")
    await kex.merge({"metadata": {"labels": {"a": None}}}, "ab")
    await sync(kex, calls)
    assert peek.content == {None: ["ab", "b"]}


async def test_one_index_of_several_functions_and_resources(
    operator: Operator,
    kex: Objects,
    sub: Objects,
    calls: Calls,
    peek: Peek,
) -> None:
    """Their values are put together by the name of the index; each object has those of its own function only."""

    @kopf.index("kopfexamples", id="idx", labels={"kind": "a"})
    async def index_a(name: str, **_: Any) -> dict[str, str]:
        return {"all": f"a:{name}"}

    @kopf.index("kopfexamples", id="idx", labels={"kind": "b"})
    async def index_b(name: str, **_: Any) -> dict[str, str]:
        return {"all": f"b:{name}"}

    @kopf.index("kopfstatusexamples", id="idx")
    async def index_other(name: str, **_: Any) -> dict[str, str]:
        return {"all": f"other:{name}"}

    await operator.start(watching=("kopfexamples", "kopfstatusexamples"))
    await sub.create("x")
    await kex.create("x", labels={"kind": "a"})
    await kex.create("y", labels={"kind": "b"})
    await sync(kex, calls)
    await wait_until(lambda: len(peek.content["all"]) >= 3)  # the other stream
    assert peek.content == {"all": ["a:x", "b:y", "other:x"]}
    await kex.merge({"metadata": {"labels": {"kind": "b"}}}, "x")
    await kex.delete("y")
    await sync(kex, calls)
    assert peek.content == {"all": ["b:x", "other:x"]}


async def test_the_documented_recipes(operator: Operator, kex: Objects, sub: Objects, calls: Calls) -> None:
    """Enumerations, and indices of indices: all are read in a handler of another resource."""

    @kopf.index("kopfexamples")
    async def listed(namespace: str, name: str, **_: Any) -> Any:
        return namespace, name

    @kopf.index("kopfexamples")
    async def known(namespace: str, name: str, **_: Any) -> Any:
        return {(namespace, name): None}

    @kopf.index("kopfexamples")
    async def by_label(labels: kopf.Labels, name: str, **_: Any) -> Any:
        return dict.fromkeys(labels.items(), name)

    @kopf.index("kopfexamples")
    async def primary(namespace: str, name: str, spec: kopf.Spec, **_: Any) -> Any:
        return {(namespace, name): {container["name"] for container in spec["containers"]}}

    @kopf.index("kopfexamples", id="secondary")
    async def names_by_namespaces(namespace: str, name: str, **_: Any) -> Any:
        return {namespace: name}

    @kopf.on.create("kopfstatusexamples")
    def create_fn(
        listed: kopf.Index[None, tuple[str, str]],
        known: kopf.Index[tuple[str, str], None],
        by_label: kopf.Index[tuple[str, str], str],
        primary: kopf.Index[tuple[str, str], set[str]],
        secondary: kopf.Index[str, str],
        namespace: str,
        **_: Any,
    ) -> None:
        containers: set[str] = set()
        for name in secondary.get(namespace, []):
            names, *_others = primary[namespace, name]
            containers |= names
        calls.append(sorted(listed.get(None, [])))
        calls.append(sorted(name for ns, name in known if ns == namespace))
        calls.append({label: sorted(names) for label, names in by_label.items()})
        calls.append(containers)

    await kex.create("a", labels={"l1": "x", "l2": "y"}, spec={"containers": [{"name": "main"}]})
    await kex.create("b", labels={"l1": "x"}, spec={"containers": [{"name": "main"}, {"name": "sidecar"}]})
    await sub.create()
    await operator.start()
    await calls.wait_length(4)
    assert calls == [
        [("default", "a"), ("default", "b")],
        ["a", "b"],
        {("l1", "x"): ["a", "b"], ("l2", "y"): ["a"]},
        {"main", "sidecar"},
    ]
