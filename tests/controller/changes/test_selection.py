from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kopf
from kopf._controller.changes.selection import (
    Candidates,
    Selection,
    could_match,
    is_for_reason,
    list_followed,
    select_background,
)
from kopf._controller.changes.selection import select as select_for_object
from kopf._handlers.filter_criteria import ABSENT, PRESENT
from kopf._handlers.filters import matches
from kopf._handlers.handlers import ChangingHandler
from kopf._handlers.registry import HandlersOfResource, OperatorRegistry
from kopf._values.objects import ObjectMeta
from kopf._values.reasons import Reason
from kopf._values.selectors import Selector
from tests.handlers.builders import (
    RESOURCE,
    do_nothing,
    make_changing_cause,
    make_changing_handler,
    make_resource_cause,
    make_watching_handler,
)

CREATE, UPDATE, DELETE = Reason.CREATE, Reason.UPDATE, Reason.DELETE
RESUME, NOOP = Reason.RESUME, Reason.NOOP


def declare(*decorators: Any, fn: Any = do_nothing) -> list[ChangingHandler]:
    """Declare the handlers by the real decorators, the first one being the first declared."""
    return list(declare_all(*decorators, fn=fn).changing)


def declare_all(*decorators: Any, fn: Any = do_nothing) -> HandlersOfResource:
    """The same, also for daemons & timers."""
    registry = OperatorRegistry()
    for decorator, options in decorators:
        decorator("kopfexamples", registry=registry, **options)(fn)
    return registry.plan([RESOURCE])[RESOURCE]


def get_ids(handlers: Iterable[Any]) -> list[str]:
    return [handler.id for handler in handlers]


def select(handlers: list[ChangingHandler], reason: Reason, *, initial: bool = False, **states: Any) -> list[str]:
    cause = make_changing_cause({"spec": {}}, reason, initial=initial, **states)
    return get_ids(Selection(cause).select_called(handlers))


ALL = [
    (kopf.on.create, {"id": "create"}),
    (kopf.on.update, {"id": "update"}),
    (kopf.on.delete, {"id": "delete"}),
    (kopf.on.resume, {"id": "resume"}),
    (kopf.on.resume, {"id": "resume-deleted", "deleted": True}),
    (kopf.on.field, {"id": "field", "field": "spec"}),
]


@pytest.mark.parametrize(
    ("reason", "initial", "expected"),
    [
        (CREATE, False, ["create", "field/spec"]),
        (CREATE, True, ["create", "resume", "resume-deleted", "field/spec"]),
        (UPDATE, False, ["update", "field/spec"]),
        (UPDATE, True, ["update", "resume", "resume-deleted", "field/spec"]),
        (DELETE, False, ["delete"]),
        (DELETE, True, ["delete", "resume-deleted"]),
        (RESUME, True, ["resume", "resume-deleted"]),
        (NOOP, False, []),
    ],
)
def test_handlers_are_called_for_their_reasons_in_the_order_of_declaration(
    reason: Reason, initial: bool, expected: list[str]
) -> None:
    states: dict[str, Any] = {"old": {"spec": {"x": 1}}, "new": {"spec": {"x": 2}}}
    if reason is CREATE:
        states["old"] = None
    if reason in (RESUME, NOOP):
        states["old"] = states["new"]
    assert select(declare(*ALL), reason, initial=initial, **states) == expected


@pytest.mark.parametrize(
    "other",
    [
        (CREATE, kopf.on.create, {}),
        (UPDATE, kopf.on.update, {}),
        (DELETE, kopf.on.delete, {"deleted": True}),
    ],
)
@pytest.mark.parametrize("is_resuming_first", [True, False])
def test_a_function_for_resuming_and_for_something_else_is_called_once(other: Any, is_resuming_first: bool) -> None:
    reason, decorator, options = other
    declarations = [(kopf.on.resume, {"param": "resume", **options}), (decorator, {"param": "other"})]
    handlers = declare(*(declarations if is_resuming_first else declarations[::-1]))
    cause = make_changing_cause({}, reason, initial=True, old={"spec": 1}, new={"spec": 2})
    assert [handler.param for handler in Selection(cause).select_called(handlers)] == ["other"]


def test_methods_are_called_once_too() -> None:
    class Namespace:
        def method(self, **_: Any) -> None: ...

    instance, registry = Namespace(), OperatorRegistry()
    kopf.on.resume("kopfexamples", registry=registry, id="method")(instance.method)
    kopf.on.create("kopfexamples", registry=registry, id="method")(instance.method)
    handlers = list(registry.plan([RESOURCE])[RESOURCE].changing)
    assert select(handlers, CREATE, initial=True) == ["method"]


def test_a_function_with_overlapping_declarations_is_called_once_for_each_id() -> None:
    handlers = declare(
        (kopf.on.update, {}),
        (kopf.on.update, {}),
        (kopf.on.update, {"field": "spec"}),
        (kopf.on.update, {"field": "spec.field"}),
        (kopf.on.field, {"field": "spec.field"}),
        (kopf.on.update, {"id": "other"}),
    )
    old, new = {"spec": {"field": 1}}, {"spec": {"field": 2}}
    assert select(handlers, UPDATE, old=old, new=new) == [
        "do_nothing",
        "do_nothing/spec",
        "do_nothing/spec.field",
        "other",
    ]


# --- fields ---


@pytest.mark.parametrize(
    ("reason", "old", "new", "expected"),
    [
        (UPDATE, {"field": 1}, {"field": 2}, ["update/spec.field", "field/spec.field"]),
        (UPDATE, {"field": 1}, {}, ["update/spec.field", "field/spec.field"]),
        (UPDATE, {}, {"field": 2}, ["update/spec.field", "field/spec.field"]),
        (UPDATE, {"field": 1, "other": 1}, {"field": 1, "other": 2}, []),
        (CREATE, None, {"field": 1}, ["create/spec.field", "field/spec.field"]),
        (CREATE, None, {}, []),
        (RESUME, {"field": 1}, {"field": 1}, ["resume/spec.field"]),
        (RESUME, {}, {}, []),
        (DELETE, {"field": 1}, {"field": 1}, ["delete/spec.field"]),
        (DELETE, {"field": 1}, {"field": 2}, ["delete/spec.field"]),
        (DELETE, {"field": 1}, {}, []),
    ],
)
def test_updates_look_at_the_change_and_all_else_at_the_state(
    reason: Reason, old: Any, new: dict[str, Any], expected: list[str]
) -> None:
    decorators = [kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume, kopf.on.field]
    handlers = declare(*((decorator, {"id": decorator.__name__, "field": "spec.field"}) for decorator in decorators))
    cause = make_changing_cause(
        {"spec": new},
        reason,
        initial=reason is RESUME,
        old=None if old is None else {"spec": old},
        new={"spec": new},
    )
    assert get_ids(Selection(cause).select_called(handlers)) == expected


def test_fields_of_the_status_are_looked_for_in_the_object() -> None:
    handlers = declare((kopf.on.create, {"field": "status.phase", "value": "done"}))
    assert get_ids(Selection(make_changing_cause({"status": {"phase": "done"}}, CREATE)).select_called(handlers))
    assert not get_ids(Selection(make_changing_cause({"status": {"phase": "other"}}, CREATE)).select_called(handlers))


# --- the objects in the scope ---


def test_handlers_accompany_the_objects_they_can_be_called_for() -> None:
    handlers = declare(
        (kopf.on.create, {"id": "any"}),
        (kopf.on.delete, {"id": "field", "field": "spec.field", "value": "x"}),
        (kopf.on.delete, {"id": "value", "field": "spec.field", "value": "y"}),
        (kopf.on.field, {"id": "absent", "field": "spec.absent"}),
        (kopf.on.field, {"id": "was", "field": "spec.was"}),
        (kopf.on.update, {"id": "matching-label", "labels": {"l": "v"}}),
        (kopf.on.update, {"id": "other-label", "labels": {"l": "other"}}),
        (kopf.on.update, {"id": "annotation", "annotations": {"a": PRESENT}}),
        (kopf.on.update, {"id": "when", "when": lambda name, **_: name == "x"}),
        (kopf.on.update, {"id": "when-not", "when": lambda name, **_: name != "x"}),
    )
    body = {"metadata": {"name": "x", "labels": {"l": "v"}}, "spec": {"field": "x"}}
    cause = make_changing_cause(body, NOOP, old={"spec": {"was": 1}})
    assert get_ids(Selection(cause).select_accompanying(handlers)) == [
        "any",
        "field/spec.field",
        "was/spec.was",
        "matching-label",
        "when",
    ]


def test_only_the_state_of_now_demands_to_block_the_deletion() -> None:
    handlers = declare(
        (kopf.on.create, {"id": "create"}),
        (kopf.on.delete, {"id": "delete"}),
        (kopf.on.delete, {"id": "optional", "optional": True}),
        (kopf.on.delete, {"id": "is", "field": "spec.is"}),
        (kopf.on.delete, {"id": "was", "field": "spec.was"}),
    )
    selection = Selection(make_changing_cause({"spec": {"is": 1}}, UPDATE, old={"spec": {"was": 1}}))
    accompanying = selection.select_accompanying(handlers)
    assert get_ids(accompanying) == ["create", "delete", "optional", "is/spec.is", "was/spec.was"]
    assert get_ids(selection.select_demanding(accompanying)) == ["delete", "is/spec.is"]


# --- the handlers of a resource ---


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"labels": {"l": "v"}}, True),
        ({"annotations": {"a": "v"}}, True),
        ({"field": "spec"}, True),
        ({"when": lambda **_: True}, True),
    ],
)
@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.daemon])
def test_candidates_are_filtered_if_any_of_them_has_a_filter(decorator: Any, options: Any, expected: bool) -> None:
    handlers = declare_all((kopf.on.create, {"id": "other"}), (decorator, options))
    assert Candidates(handlers).is_filtered is expected


def test_candidates_with_no_filters_are_selected_once_for_every_reason() -> None:
    candidates = Candidates(declare_all(*ALL[:5], (kopf.daemon, {"id": "daemon"})))
    known = {}
    for reason in (CREATE, UPDATE, DELETE, RESUME, NOOP):
        for initial in (False, True):
            choice = known[reason, initial] = candidates.select_all(reason, initial=initial)
            other = select_for_object(candidates, make_changing_cause({}, reason, initial=initial))
            for name in ("accompanying", "called", "spawning", "demanding"):
                assert get_ids(getattr(choice, name)) == get_ids(getattr(other, name))
    for (reason, initial), choice in known.items():
        assert candidates.select_all(reason, initial=initial) is choice


def test_a_function_with_no_filters_is_called_for_the_actual_reason() -> None:
    handlers = declare_all((kopf.on.resume, {"param": "resume"}), (kopf.on.create, {"param": "create"}))
    called = Candidates(handlers).select_all(CREATE, initial=True).called
    assert [handler.param for handler in called] == ["create"]


def test_everything_is_chosen_that_is_for_the_object() -> None:
    candidates = Candidates(
        declare_all(
            (kopf.on.create, {"id": "create"}),
            (kopf.on.create, {"id": "other-label", "labels": {"l": "other"}}),
            (kopf.on.update, {"id": "update"}),
            (kopf.on.delete, {"id": "delete"}),
            (kopf.on.delete, {"id": "was", "field": "spec.was"}),
            (kopf.on.delete, {"id": "optional", "optional": True}),
            (kopf.daemon, {"id": "daemon", "labels": {"l": "v"}}),
            (kopf.daemon, {"id": "other-daemon", "labels": {"l": "other"}}),
            (kopf.timer, {"id": "timer", "interval": 1}),
        )
    )
    body = {"metadata": {"labels": {"l": "v"}}, "spec": {}}
    choice = select_for_object(candidates, make_changing_cause(body, UPDATE, old={"spec": {"was": 1}}))
    assert get_ids(choice.accompanying) == ["create", "update", "delete", "was/spec.was", "optional"]
    assert get_ids(choice.called) == ["update"]
    assert get_ids(choice.spawning) == ["daemon", "timer"]
    assert get_ids(choice.demanding) == ["delete", "daemon", "timer"]
    assert (choice.failures, choice.relevant_failures) == ({}, [])


def test_daemons_and_timers_are_chosen_alone() -> None:
    candidates = Candidates(
        declare_all(
            (kopf.on.delete, {"id": "delete"}),
            (kopf.daemon, {"id": "daemon", "labels": {"l": "v"}}),
            (kopf.daemon, {"id": "other-daemon", "labels": {"l": "other"}}),
            (kopf.timer, {"id": "timer", "interval": 1}),
            (kopf.timer, {"id": "timer", "interval": 2}),
        )
    )
    choice = select_background(candidates, make_resource_cause({"metadata": {"labels": {"l": "v"}}}), NOOP)
    assert (choice.accompanying, choice.called) == ((), ())
    assert get_ids(choice.spawning) == ["daemon", "timer"]
    assert get_ids(choice.demanding) == ["daemon", "timer"]
    assert (choice.failures, choice.relevant_failures) == ({}, [])


# --- failing filters ---


def fail(**_: Any) -> bool:
    raise ValueError("boom")


FAILING = declare_all(
    (kopf.on.create, {"id": "create", "when": fail}),
    (kopf.on.update, {"id": "update", "when": fail}),
    (kopf.on.delete, {"id": "delete", "when": fail}),
    (kopf.on.resume, {"id": "resume", "when": fail}),
    (kopf.on.create, {"id": "good"}),
    (kopf.daemon, {"id": "daemon", "when": fail}),
    (kopf.daemon, {"id": "good-daemon"}),
)


@pytest.mark.parametrize(
    ("reason", "initial", "expected"),
    [
        (CREATE, False, ["create", "daemon"]),
        (CREATE, True, ["create", "resume", "daemon"]),
        (UPDATE, False, ["update", "daemon"]),
        (RESUME, True, ["resume", "daemon"]),
        (NOOP, False, ["daemon"]),
        (DELETE, False, ["delete"]),
        (DELETE, True, ["delete"]),
    ],
)
def test_failures_matter_for_what_could_be_called_or_started_now(
    reason: Reason, initial: bool, expected: list[str]
) -> None:
    choice = select_for_object(Candidates(FAILING), make_changing_cause({}, reason, initial=initial))
    assert get_ids(choice.failures) == ["create", "update", "delete", "resume", "daemon"]
    assert get_ids(item for item, error in choice.failures.items() if error in choice.relevant_failures) == expected
    assert all("boom" in str(error) for error in choice.failures.values())
    assert get_ids(choice.accompanying) == ["good"]
    assert get_ids(choice.spawning) == ["good-daemon"]
    assert get_ids(choice.demanding) == ["good-daemon"]


@pytest.mark.parametrize(("reason", "is_relevant"), [(NOOP, True), (DELETE, False)])
def test_failures_of_daemons_do_not_matter_for_deletions(reason: Reason, is_relevant: bool) -> None:
    choice = select_background(Candidates(FAILING), make_resource_cause({}), reason)
    assert get_ids(choice.failures) == ["daemon"]
    assert list(choice.relevant_failures) == (list(choice.failures.values()) if is_relevant else [])
    assert get_ids(choice.spawning) == get_ids(choice.demanding) == ["good-daemon"]


META = st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["", "x", "y"]))
CRITERIA = st.none() | st.dictionaries(
    st.sampled_from(["a", "b"]), st.sampled_from(["", "x", "y", PRESENT, ABSENT, lambda value, **_: value == "x"])
)


@settings(deadline=None)
@given(labels=META, annotations=META, label_filters=CRITERIA, annotation_filters=CRITERIA)
def test_the_quick_check_never_misses_an_object(
    labels: Any, annotations: Any, label_filters: Any, annotation_filters: Any
) -> None:
    handler = make_watching_handler(labels=label_filters, annotations=annotation_filters)
    cause = make_resource_cause({"metadata": {"labels": labels, "annotations": annotations}})
    if matches(handler, cause):
        assert could_match([make_watching_handler(labels={"absent": "x"}), handler], cause.body.object.head)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, True),
        ({"labels": {"l": "v"}}, True),
        ({"labels": {"l": "other"}}, False),
        ({"labels": {"absent": "v"}}, False),
        ({"annotations": {"l": "v"}}, False),
        ({"when": lambda **_: False}, True),
        ({"labels": {"l": lambda value, **_: False}}, True),
    ],
)
def test_the_quick_check_is_by_exact_values(filters: Any, expected: bool) -> None:
    assert could_match([make_changing_handler(**filters)], ObjectMeta(labels={"l": "v"})) is expected
    assert not could_match([], ObjectMeta())


@pytest.mark.parametrize("option", ["labels", "annotations"])
def test_the_quick_check_looks_at_all_handlers(option: str) -> None:
    filters: dict[str, Any] = {option: {"l": "other"}}
    assert could_match([make_changing_handler(**filters), make_changing_handler()], ObjectMeta())


# --- sub-handlers ---


@pytest.mark.parametrize("reason", [CREATE, UPDATE, DELETE, RESUME])
def test_subhandlers_are_selected_whatever_the_reason(reason: Reason) -> None:
    handlers = [
        make_changing_handler("any"),
        make_changing_handler("any"),
        make_changing_handler("other", fn=lambda **_: None),
        make_changing_handler("label", labels={"l": "v"}),
        make_changing_handler("absent-label", labels={"l": ABSENT}),
        make_changing_handler("field", field=("spec", "field"), value="x"),
        make_changing_handler("other-field", field=("spec", "field"), value="y"),
    ]
    cause = make_changing_cause({"spec": {"field": "x"}}, reason)
    assert get_ids(Selection(cause).select_subhandlers(handlers)) == ["any", "other", "absent-label", "field"]


def test_subhandlers_of_updates_look_at_the_change() -> None:
    handlers = [
        make_changing_handler("a", field=("spec", "a"), field_needs_change=True),
        make_changing_handler("b", field=("spec", "b"), field_needs_change=True),
        make_changing_handler("c", field=("spec", "b"), field_needs_change=True, old="y"),
    ]
    cause = make_changing_cause({}, UPDATE, old={"spec": {"a": 1, "b": "x"}}, new={"spec": {"a": 1, "b": "z"}})
    assert get_ids(Selection(cause).select_subhandlers(handlers)) == ["b"]


# --- what affects the matching of a handler, besides the essence ---


class WithConditions(TypedDict, total=False):
    """The status of a model."""

    conditions: kopf.ConditionList


@pytest.mark.parametrize(
    ("options", "stanzas"),
    [
        ({}, set()),
        ({"labels": {"l": "v"}}, set()),
        ({"annotations": {"a": "v"}}, {"metadata"}),
        ({"field": ("spec", "x")}, set()),
        ({"field": ("status", "x")}, {"status"}),
        ({"field": ("spec", "status")}, set()),
        ({"field": ("metadata", "name"), "value": "v"}, {"metadata"}),
        ({"when": lambda spec, labels, name, **_: True}, set()),
        ({"when": lambda status, **_: True}, {"status"}),
        ({"when": lambda meta, **_: True}, {"metadata"}),
        ({"labels": {"l": lambda value, status, **_: True}}, {"status"}),
        ({"annotations": {"a": lambda value, status, **_: True}}, {"metadata", "status"}),
        ({"field": ("spec",), "value": lambda value, annotations, **_: True}, {"metadata"}),
        ({"when": lambda body, **_: True}, {"metadata", "status"}),
        ({"when": lambda **kwargs: bool(kwargs)}, {"metadata", "status"}),
    ],
)
def test_stanzas_that_filters_look_at(options: dict[str, Any], stanzas: set[str]) -> None:
    assert list_followed(make_watching_handler(**options)) == stanzas


def test_stanzas_that_daemons_and_finalizers_depend_on() -> None:
    def declare_for(decorator: Any, **options: Any) -> frozenset[str]:
        return Candidates(declare_all((decorator, options))).follows

    assert declare_for(kopf.daemon, when=lambda status, **_: True) == {"status"}
    assert declare_for(kopf.on.delete, when=lambda meta, **_: True) == {"metadata"}
    assert declare_for(kopf.on.create, when=lambda status, **_: True) == set()


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.daemon])
@pytest.mark.parametrize("status", [dict[str, Any], WithConditions])
def test_mismatches_are_reported_in_the_conditions_of_models_that_have_them(decorator: Any, status: Any) -> None:
    class Widget(kopf.CustomResource[dict[str, Any], status], group="kopf.dev", version="v1", kind="KopfExample"):
        pass

    registry = OperatorRegistry()
    decorator("kopfexamples", id="plain", registry=registry)(do_nothing)
    decorator(Widget, registry=registry)(do_nothing)
    candidates = Candidates(registry.plan([RESOURCE])[RESOURCE])
    assert candidates.model is (Widget if status is WithConditions else None)


# --- handlers with owned objects ---

OWNING = make_changing_handler("fn", reason=UPDATE, owns=(Selector("pods"),))


@pytest.mark.parametrize(
    ("reason", "initial", "woken", "expected"),
    [
        (NOOP, False, [], False),
        (NOOP, False, ["other"], False),
        (NOOP, False, ["fn"], True),
        (NOOP, True, [], True),
        (CREATE, False, ["fn"], True),
        (UPDATE, False, [], True),
        (DELETE, False, ["fn"], False),
        (DELETE, True, ["fn"], False),
    ],
)
def test_handlers_with_owned_objects(reason: Reason, initial: bool, woken: Any, expected: bool) -> None:
    assert is_for_reason(OWNING, reason, initial, woken) is expected
    handlers = HandlersOfResource.build([OWNING])
    candidates = Candidates(handlers)
    for _ in range(2):  # they are remembered for each of the circumstances
        assert get_ids(candidates.select_all(reason, initial=initial, woken=woken).called) == ["fn"] * expected
        assert get_ids(candidates.select_all(NOOP, initial=False).called) == []
    cause = make_changing_cause({}, reason, initial=initial, woken=woken)
    assert get_ids(select_for_object(candidates, cause).called) == ["fn"] * expected


@pytest.mark.parametrize("woken", [[], ["fn"]])
def test_failures_of_handlers_matter_when_they_are_woken(woken: Any) -> None:
    owning = make_changing_handler("fn", reason=UPDATE, owns=(Selector("pods"),), when=fail)
    candidates = Candidates(HandlersOfResource.build([owning]))
    choice = select_for_object(candidates, make_changing_cause({}, NOOP, woken=woken))
    assert len(choice.relevant_failures) == len(woken)
