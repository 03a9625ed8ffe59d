"""Filters of changes & fields: both sides of an update, callbacks with their kwargs, and objects coming into scope."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_annotations
from tests.behaviour.running import Calls, Decorator, Operator, do_nothing

ABSENT, PRESENT = kopf.ABSENT, kopf.PRESENT
Change = tuple[Any, Any]

# What the field was, what it has become; None is for its absence.
ADDED, REMOVED, CHANGED, CHANGED_BACK = (None, "a"), ("a", None), ("a", "b"), ("b", "a")
FALSIFIED, UNTOUCHED = ("a", ""), ("a", "a")


FILTERS: list[tuple[dict[str, Any], list[Change]]] = [
    ({}, [ADDED, REMOVED, CHANGED, CHANGED_BACK, FALSIFIED]),
    ({"value": "a"}, [ADDED, REMOVED, CHANGED, CHANGED_BACK, FALSIFIED]),
    ({"value": "b"}, [CHANGED, CHANGED_BACK]),
    ({"value": ""}, [FALSIFIED]),
    ({"value": PRESENT}, [ADDED, REMOVED, CHANGED, CHANGED_BACK, FALSIFIED]),
    ({"value": ABSENT}, [ADDED, REMOVED]),
    ({"value": lambda value, **_: value == "b"}, [CHANGED, CHANGED_BACK]),
    ({"value": lambda value, **_: value is None}, [ADDED, REMOVED]),
    ({"old": "a"}, [REMOVED, CHANGED, FALSIFIED]),
    ({"new": "a"}, [ADDED, CHANGED_BACK]),
    ({"old": "a", "new": "b"}, [CHANGED]),
    ({"old": ABSENT, "new": PRESENT}, [ADDED]),
    ({"old": PRESENT, "new": ABSENT}, [REMOVED]),
    ({"old": PRESENT, "new": PRESENT}, [CHANGED, CHANGED_BACK, FALSIFIED]),
    ({"old": lambda value, **_: value is not None, "new": lambda value, **_: not value}, [REMOVED, FALSIFIED]),
]


@pytest.mark.parametrize("decorator", [kopf.on.update, kopf.on.field], ids=["update", "field"])
async def test_both_sides_of_updates(operator: Operator, kex: Objects, calls: Calls, decorator: Decorator) -> None:
    """Unaffected fields never match, even if they satisfy the criteria."""
    for number, (options, _expected) in enumerate(FILTERS):

        @decorator("kopfexamples", field="spec.f", **options, id=f"fn{number}", param=number)
        async def fn(param: int, old: Any, new: Any, reason: kopf.Reason, **_: Any) -> None:
            if reason is kopf.Reason.UPDATE:
                calls.append((param, (old, new)))

    kopf.on.create("kopfexamples")(do_nothing)
    await operator.start(lifecycle=kopf.lifecycles.all_at_once)
    changes = [ADDED, REMOVED, CHANGED, CHANGED_BACK, FALSIFIED, UNTOUCHED]
    for n, (old, _) in enumerate(changes):
        await kex.create(f"obj{n}", spec={"f": old} if old is not None else {"x": "y"})
    for n, _ in enumerate(changes):
        await kex.wait_handled(f"obj{n}")
    for n, (_, new) in enumerate(changes):
        await kex.merge({"spec": {"f": new, "other": "changed"}}, f"obj{n}")
    for n, _ in enumerate(changes):
        await kex.wait_handled(f"obj{n}", other="changed")
    expected = [(number, change) for number, (_, changes) in enumerate(FILTERS) for change in changes]
    assert sorted(calls, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("kind", ["create", "event", "resume", "delete", "daemon", "timer"])
async def test_other_handlers_look_at_the_current_state_only(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    kind: str,
) -> None:
    decorator: Decorator = getattr(kopf.on, kind, None) or getattr(kopf, kind)
    filters: dict[str, dict[str, Any]] = {
        "any": {},
        "a": {"value": "a"},
        "absent": {"value": ABSENT},
        "callback": {"value": lambda value, **_: value in (None, "b")},
    }
    for id, options in filters.items():

        @decorator("kopfexamples", field="spec.f", id=id, param=id, **options)
        async def fn(name: str, param: str, type: str | None = None, **_: Any) -> None:
            if (name, param) not in calls and type != "DELETED":
                calls.append((name, param))

    if kind == "resume":  # they must have been handled before
        kopf.on.create("kopfexamples", id="dummy")(lambda **_: None)
        await operator.start()
    objects: dict[str, dict[str, Any]] = {"a": {"f": "a"}, "b": {"f": "b"}, "none": {"x": "y"}}
    for name, spec in objects.items():
        await kex.create(name, spec=spec)
        if kind == "resume":
            await kex.wait_handled(name)
    await operator.restart() if kind == "resume" else await operator.start()
    if kind == "delete":
        for name in objects:
            await kex.wait(lambda obj: obj["metadata"].get("finalizers"), name)
            await kex.delete_and_wait(name)
    await calls.wait_length(6)
    assert sorted(calls) == [
        ("a", "a"),
        ("a", "any"),
        ("b", "any"),
        ("b", "callback"),
        ("none", "absent"),
        ("none", "callback"),
    ]


@pytest.mark.parametrize("with_dummy", [True, False])
async def test_a_dummy_handler_brings_all_objects_into_scope(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    with_dummy: bool,
) -> None:
    """So the objects that match later are updated; without it, they are created."""
    for reason, decorator in {"create": kopf.on.create, "update": kopf.on.update}.items():
        decorator("kopfexamples", id=reason, param=reason, labels={"match": "yes"})(
            calls.noting(lambda param, **_: param)
        )

    if with_dummy:
        kopf.on.update("kopfexamples")(calls.noting("dummy"))

    await operator.start_and_create(kex)
    if with_dummy:
        await kex.wait_handled()
    else:
        assert get_annotations(await kex.get()) == {}
    await kex.merge({"metadata": {"labels": {"match": "yes"}}, "spec": {"field": "new"}})
    await kex.wait_handled(field="new")
    assert calls == (["update", "dummy"] if with_dummy else ["create"])
