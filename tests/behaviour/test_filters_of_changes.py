"""Filters of changes & fields: both sides of an update, callbacks with their kwargs, and objects coming into scope."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects, get_annotations, get_essence
from tests.behaviour.running import Calls, Decorator, Operator, do_nothing

ABSENT, PRESENT = kopf.ABSENT, kopf.PRESENT
Change = tuple[Any, Any]

# What the field was, what it has become; None is for its absence.
ADDED, REMOVED, CHANGED, CHANGED_BACK = (None, "a"), ("a", None), ("a", "b"), ("b", "a")
FALSIFIED, UNTOUCHED = ("a", ""), ("a", "a")


@pytest.mark.parametrize("decorator", [kopf.on.update, kopf.on.field], ids=["update", "field"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
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
    ],
    ids=lambda item: repr(sorted(item)) if isinstance(item, dict) else "",
)
async def test_both_sides_of_updates(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    decorator: Decorator,
    options: dict[str, Any],
    expected: list[Change],
) -> None:
    """Unaffected fields never match, even if they satisfy the criteria."""

    @decorator("kopfexamples", field="spec.f", **options, id="fn")
    async def fn(name: str, old: Any, new: Any, reason: kopf.Reason, **_: Any) -> None:
        if reason is kopf.Reason.UPDATE:
            calls.append((old, new))

    kopf.on.create("kopfexamples")(do_nothing)
    await operator.start()
    changes = [ADDED, REMOVED, CHANGED, CHANGED_BACK, FALSIFIED, UNTOUCHED]
    for n, (old, _) in enumerate(changes):
        await kex.create(f"obj{n}", spec={"f": old} if old is not None else {"x": "y"})
    for n, _ in enumerate(changes):
        await kex.wait_handled(f"obj{n}")
    for n, (_, new) in enumerate(changes):
        await kex.merge({"spec": {"f": new, "other": "changed"}}, f"obj{n}")
    for n, _ in enumerate(changes):
        await kex.wait_handled(f"obj{n}", other="changed")
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


@pytest.mark.parametrize("kind", ["create", "update", "delete", "event", "daemon", "timer", "index"])
async def test_callbacks_get_the_kwargs_of_the_handler_and_the_value_as_the_only_positional_one(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    kind: str,
) -> None:
    decorator: Decorator = getattr(kopf.on, kind, None) or getattr(kopf, kind)
    seen: dict[str, Any] = {}

    def check_label(value: Any, **kwargs: Any) -> bool:
        seen["label"] = (value, kwargs)
        return True

    def check_absent(value: Any, **kwargs: Any) -> bool:
        seen["absent"] = (value, kwargs)
        return True

    def check_field(value: Any, **kwargs: Any) -> bool:
        seen["field"] = (value, kwargs)
        return True

    def check_when(*args: Any, **kwargs: Any) -> bool:
        seen["when"] = (*args, None, kwargs)
        return True

    decorator(
        "kopfexamples",
        id="fn",
        param="param",
        when=check_when,
        field="spec.field",
        labels={"label": check_label},
        annotations={"no-such": check_absent},
        value=check_field,
    )(calls.noting(lambda **kwargs: kwargs))
    await operator.start_and_create(kex, labels={"label": "x"})
    if kind == "update":
        await kex.wait(lambda obj: get_essence(obj) is not None)
        await kex.merge({"spec": {"field": "new"}})
    if kind == "delete":
        await kex.wait(lambda obj: obj["metadata"].get("finalizers"))
        await kex.delete()
    await calls.wait_length(1)
    assert seen["label"][0] == "x"
    assert seen["absent"][0] is None
    assert seen["when"][0] is None
    assert seen["field"][0] in ("value", "new")
    own = {"retry", "started", "runtime", "stopped"}
    for *_, kwargs in seen.values():
        assert calls[0].keys() - own <= kwargs.keys()
        assert kwargs["param"] == "param"
        assert kwargs["name"] == "obj"


async def test_empty_strings_are_values(operator: Operator, kex: Objects, calls: Calls) -> None:
    for stanza in ("labels", "annotations"):
        for id, criterion in {"present": PRESENT, "absent": ABSENT, "equal": ""}.items():
            options: dict[str, Any] = {stanza: {"empty": criterion}}

            kopf.on.create("kopfexamples", id=f"{stanza}-{id}", param=f"{stanza}-{id}", **options)(
                calls.noting(lambda param, **_: param)
            )

    await operator.start_and_handle(kex, labels={"empty": ""}, annotations={"empty": ""})
    assert calls == ["labels-present", "labels-equal", "annotations-present", "annotations-equal"]


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


@pytest.mark.parametrize(
    ("helper", "expected"),
    [(kopf.all_, ["kopf-value"]), (kopf.any_, ["kopf-other", "kopf-value", "x-value"]), (kopf.none_, ["x-other"])],
)
async def test_helpers_combine_callbacks(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    helper: Any,
    expected: list[str],
) -> None:
    def whole_fn1(name: str, **_: Any) -> bool:
        return name.startswith("kopf-")

    def whole_fn2(spec: kopf.Spec, **_: Any) -> bool:
        return bool(spec["field"] == "value")

    def value_fn1(value: str, **_: Any) -> bool:
        return value.startswith("kopf-")

    def value_fn2(value: str, **_: Any) -> bool:
        return value.endswith("value")

    for id, options in {
        "when": {"when": helper([whole_fn1, whole_fn2])},
        "label": {"labels": {"label": helper([value_fn1, value_fn2])}},
        "not": {"when": kopf.not_(kopf.not_(helper([whole_fn1, whole_fn2])))},
    }.items():
        kopf.on.create("kopfexamples", id=id, param=id, **options)(calls.noting(lambda name, param, **_: (param, name)))

    kopf.on.create("kopfexamples")(do_nothing)
    await operator.start()
    for name in ("kopf-value", "kopf-other", "x-value", "x-other"):
        await kex.create_and_wait(name, labels={"label": name}, spec={"field": name.partition("-")[2]})
    for id in ("when", "label", "not"):
        assert sorted(name for param, name in calls if param == id) == expected
