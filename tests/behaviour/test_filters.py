"""Filters: what matches nothing is not touched; what begins to match, ceases to, or changes between both sides."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Objects, get_annotations, get_finalizers
from tests.behaviour.running import Calls, Decorator, Logs, Operator, do_nothing

FILTERS: dict[str, dict[str, Any]] = {
    "label": {"labels": {"match": "yes"}},
    "label-present": {"labels": {"match": kopf.PRESENT}},
    "label-absent": {"labels": {"skip": kopf.ABSENT}},
    "label-callback": {"labels": {"match": lambda value, **_: value == "yes"}},
    "annotation": {"annotations": {"match": "yes"}},
    "when": {"when": lambda spec, **_: spec.get("match") == "yes"},
    "when-all": {"when": kopf.all_([lambda spec, **_: True, lambda spec, **_: spec.get("match") == "yes"])},
    "when-not": {"when": kopf.not_(lambda spec, **_: spec.get("skip") == "yes")},
}
MATCHING: dict[str, Any] = {
    "labels": {"match": "yes"},
    "annotations": {"match": "yes"},
    "spec": {"field": "value", "match": "yes"},
}
SKIPPED: dict[str, Any] = {
    "labels": {"skip": "yes"},
    "annotations": {"skip": "yes"},
    "spec": {"field": "value", "skip": "yes"},
}


@pytest.mark.parametrize("options", FILTERS.values(), ids=FILTERS.keys())
async def test_objects_that_match_nothing_are_not_touched(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    options: dict[str, Any],
) -> None:
    for decorator in (kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume, kopf.on.event):

        @decorator("kopfexamples", id=decorator.__name__, param=decorator.__name__, **options)
        def fn(name: str, param: str, **_: Any) -> None:
            if param != "event":
                calls.append((name, param))

    await operator.start_and_create(kex, "skipped", **SKIPPED)
    await kex.create_and_wait("matching", **MATCHING)
    await kex.merge({"spec": {"field": "new"}}, "skipped")
    await kex.change_and_wait("matching", field="new")
    await kex.delete("skipped")
    await kex.delete_and_wait("matching")
    assert calls == [("matching", "create"), ("matching", "update"), ("matching", "delete")]
    for obj in kex.get_history("skipped"):
        assert get_finalizers(obj) == []
        assert get_annotations(obj) == {"skip": "yes"}
        assert "status" not in obj
    assert logs.get_messages("skipped") == []


async def test_objects_that_match_nothing_make_no_requests(operator: Operator, kex: Objects) -> None:
    kopf.on.create("kopfexamples", labels={"match": "yes"})(lambda **_: None)
    await kex.create_all(f"obj{i}" for i in range(20))
    operator.cluster.reset_counters()
    await operator.start_and_create(kex, "matching", **MATCHING)
    await kex.wait_handled("matching")
    assert operator.cluster.counters["patch", "kopfexamples", 200] == 1


async def test_objects_that_start_matching_are_taken_for_new(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", labels={"match": "yes"})
    @kopf.on.update("kopfexamples", labels={"match": "yes"})
    @kopf.on.delete("kopfexamples", labels={"match": "yes"})
    def fn(reason: kopf.Reason, **_: Any) -> None:
        calls.append(reason.value)

    await operator.start_and_create(kex)
    await kex.merge({"metadata": {"labels": {"match": "yes"}}})
    obj = await kex.wait_handled()
    assert get_finalizers(obj) == [FINALIZER]
    assert calls == ["create"]


async def test_objects_that_stop_matching_are_released(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", labels={"match": "yes"})
    @kopf.on.delete("kopfexamples", labels={"match": "yes"})
    def fn(reason: kopf.Reason, **_: Any) -> None:
        calls.append(reason.value)

    obj = await operator.start_and_handle(kex, labels={"match": "yes"}, finalizers=["example.com/theirs"])
    assert get_finalizers(obj) == ["example.com/theirs", FINALIZER]
    await kex.merge({"metadata": {"labels": {"match": None}}})
    await kex.wait(lambda obj: get_finalizers(obj) == ["example.com/theirs"])
    await kex.delete()
    await kex.release_and_wait()
    assert calls == ["create"]


async def test_objects_that_stopped_matching_while_the_operator_was_down_are_released(
    operator: Operator,
    kex: Objects,
) -> None:
    kopf.on.delete("kopfexamples", labels={"match": "yes"})(lambda **_: None)
    await operator.start_and_handle(kex, labels={"match": "yes"})
    await operator.stop()
    await kex.merge({"metadata": {"labels": {"match": None}}})
    await operator.start()
    await kex.wait(lambda obj: get_finalizers(obj) == [])


@pytest.mark.fastforward
@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.event], ids=lambda decorator: decorator.__name__)
async def test_operators_with_no_deletion_handlers_remove_the_finalizers_that_are_left_by_older_versions(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    decorator: Decorator,
) -> None:
    decorator("kopfexamples", labels={"match": "yes"})(lambda **_: None)
    await operator.start_and_create(kex, "skipped", finalizers=[FINALIZER])
    await kex.create("matching", labels={"match": "yes"}, finalizers=[FINALIZER])
    await kex.wait_all(lambda obj: get_finalizers(obj) == [], ("skipped", "matching"))
    await logs.wait("Removing the finalizer, as there are no handlers requiring it.", times=2)


async def test_filters_flip_in_the_middle_of_the_handling(operator: Operator, kex: Objects, calls: Calls) -> None:
    """The remaining handlers that do not match anymore are not called, and the handling ends."""

    @kopf.on.create("kopfexamples", id="first")
    async def first(**_: Any) -> None:
        calls.append("first")
        await kex.merge({"metadata": {"labels": {"match": None}}})

    kopf.on.create("kopfexamples", labels={"match": "yes"}, id="second")(calls.noting("second"))
    kopf.on.create("kopfexamples", id="third")(calls.noting("third"))
    await operator.start_and_handle(kex, labels={"match": "yes"})
    assert calls == ["first", "third"]


ABSENT, PRESENT = kopf.ABSENT, kopf.PRESENT
Change = tuple[Any, Any]

# What the field was, what it has become; None is for its absence.
ADDED, REMOVED, CHANGED, CHANGED_BACK = (None, "a"), ("a", None), ("a", "b"), ("b", "a")
FALSIFIED, UNTOUCHED = ("a", ""), ("a", "a")


CHANGE_FILTERS: list[tuple[dict[str, Any], list[Change]]] = [
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
    for number, (options, _expected) in enumerate(CHANGE_FILTERS):

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
    expected = [(number, change) for number, (_, changes) in enumerate(CHANGE_FILTERS) for change in changes]
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
