from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf._handlers.handlers import (
    ActivityHandler,
    ChangingHandler,
    DaemonHandler,
    IndexingHandler,
    TimerHandler,
    WatchingHandler,
)
from kopf._handlers.registry import OperatorRegistry
from kopf._values.reasons import Activity, Reason
from kopf._values.selectors import EVERYTHING, Selector

Decorator = Callable[..., Callable[[Any], Any]]

ACTIVITIES: list[tuple[Decorator, Activity]] = [
    (kopf.on.startup, Activity.STARTUP),
    (kopf.on.cleanup, Activity.CLEANUP),
    (kopf.on.login, Activity.AUTHENTICATION),
]
CHANGES: list[Decorator] = [kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume, kopf.on.field]
RESOURCES: list[Decorator] = [*CHANGES, kopf.on.event, kopf.on.daemon, kopf.on.timer, kopf.on.index]
ALL: list[Decorator] = RESOURCES + [decorator for decorator, _ in ACTIVITIES]
RETRIED: list[Decorator] = [decorator for decorator in ALL if decorator is not kopf.on.event]


def function(**_: Any) -> None: ...


class Namespace:
    def method(self, **_: Any) -> None: ...


class Callable_:
    def __call__(self, **_: Any) -> None: ...


def declare(decorator: Decorator, registry: OperatorRegistry, *args: Any, fn: Any = function, **kwargs: Any) -> Any:
    """Declare a handler with the least of the arguments that the decorator needs, and get it back."""
    resource = args or (["kopfexamples"] if decorator in RESOURCES else [])
    if decorator is kopf.on.field:
        kwargs.setdefault("field", "spec.field")
    assert decorator(*resource, registry=registry, **kwargs)(fn) is fn
    handlers: list[Any] = [*registry.activities, *registry.resources]
    assert len(handlers) == 1
    return handlers[0]


@pytest.mark.parametrize(("decorator", "activity"), ACTIVITIES)
def test_handlers_of_activities(registry: OperatorRegistry, decorator: Decorator, activity: Activity) -> None:
    handler = declare(decorator, registry)
    assert type(handler) is ActivityHandler
    assert (handler.activity, handler.id, handler.fn) == (activity, "function", function)


@pytest.mark.parametrize(
    ("decorator", "expected"),
    [
        (kopf.on.create, {"reason": Reason.CREATE}),
        (kopf.on.update, {"reason": Reason.UPDATE, "field_needs_change": True}),
        (kopf.on.delete, {"reason": Reason.DELETE, "requires_finalizer": True}),
        (kopf.on.resume, {"reason": None, "initial": True}),
        (kopf.on.field, {"reason": None, "field_needs_change": True}),
    ],
)
def test_handlers_of_changes(registry: OperatorRegistry, decorator: Decorator, expected: dict[str, Any]) -> None:
    defaults = {"initial": False, "deleted": False, "requires_finalizer": False, "field_needs_change": False}
    handler = declare(decorator, registry)
    assert type(handler) is ChangingHandler
    assert handler.fn is function
    assert handler.selector == Selector("kopfexamples")
    for name, value in {**defaults, **expected}.items():
        assert getattr(handler, name) == value


@pytest.mark.parametrize(
    ("decorator", "options", "attribute", "value"),
    [
        (kopf.on.delete, {"optional": True}, "requires_finalizer", False),
        (kopf.on.delete, {"optional": False}, "requires_finalizer", True),
        (kopf.on.delete, {"optional": None}, "requires_finalizer", True),
        (kopf.on.resume, {"deleted": True}, "deleted", True),
        (kopf.on.resume, {"deleted": None}, "deleted", False),
    ],
)
def test_specific_options(
    registry: OperatorRegistry, decorator: Decorator, options: Any, attribute: str, value: object
) -> None:
    assert getattr(declare(decorator, registry, **options), attribute) is value


@pytest.mark.parametrize("decorator", ALL)
def test_options_of_all_handlers(registry: OperatorRegistry, decorator: Decorator) -> None:
    handler = declare(decorator, registry, id="my-id", param={"any": "value"})
    assert handler.id.partition("/")[0] == "my-id"
    assert handler.param == {"any": "value"}


@pytest.mark.parametrize("decorator", RETRIED)
def test_options_of_retrying(registry: OperatorRegistry, decorator: Decorator) -> None:
    handler = declare(decorator, registry, errors=kopf.ErrorsMode.PERMANENT, timeout=1.5, retries=2, backoff=3)
    assert handler.errors is kopf.ErrorsMode.PERMANENT
    assert (handler.timeout, handler.retries, handler.backoff) == (1.5, 2, 3)


@pytest.mark.parametrize("decorator", RETRIED)
def test_by_default_handlers_are_retried_forever(registry: OperatorRegistry, decorator: Decorator) -> None:
    handler = declare(decorator, registry)
    assert (handler.errors, handler.timeout, handler.retries, handler.backoff) == (None, None, None, None)


@pytest.mark.parametrize("decorator", RESOURCES)
def test_options_of_filters(registry: OperatorRegistry, decorator: Decorator) -> None:
    def when(**_: Any) -> bool:
        return True

    handler = declare(
        decorator,
        registry,
        labels={"l": kopf.PRESENT},
        annotations={"a": kopf.ABSENT},
        when=when,
        field="spec.field",
        value="v",
    )
    assert handler.labels == {"l": kopf.PRESENT}
    assert handler.annotations == {"a": kopf.ABSENT}
    assert handler.when is when
    assert handler.field == ("spec", "field")
    assert handler.value == "v"


@pytest.mark.parametrize("decorator", [kopf.on.update, kopf.on.field])
def test_options_of_changes(registry: OperatorRegistry, decorator: Decorator) -> None:
    handler = declare(decorator, registry, field="spec.field", old=0, new=kopf.PRESENT)
    assert handler.old == 0
    assert handler.new is kopf.PRESENT


@pytest.mark.parametrize(
    ("decorator", "handler_class"),
    [
        (kopf.on.event, WatchingHandler),
        (kopf.daemon, DaemonHandler),
        (kopf.timer, TimerHandler),
        (kopf.index, IndexingHandler),
    ],
)
def test_handlers_of_raw_events_and_of_the_background(
    registry: OperatorRegistry, decorator: Decorator, handler_class: Any
) -> None:
    handler = declare(decorator, registry)
    assert type(handler) is handler_class
    assert (handler.id, handler.fn, handler.selector) == ("function", function, Selector("kopfexamples"))


@pytest.mark.parametrize(
    ("decorator", "options"),
    [
        (kopf.daemon, {"initial_delay": 1, "cancellation_backoff": 2, "cancellation_timeout": 3}),
        (kopf.daemon, {"cancellation_polling": 4}),
        (kopf.timer, {"initial_delay": 1, "interval": 2, "idle": 3, "sharp": True}),
    ],
)
def test_options_of_the_background(registry: OperatorRegistry, decorator: Decorator, options: Any) -> None:
    handler, default = declare(decorator, registry, **options), declare(decorator, OperatorRegistry())
    for name, value in options.items():
        assert getattr(handler, name) == value
        assert not getattr(default, name)


@pytest.mark.parametrize("decorator", RESOURCES)
@pytest.mark.parametrize(
    ("args", "kwargs", "selector"),
    [
        (("kopf.dev", "v1", "kex"), {}, Selector("kopf.dev", "v1", "kex")),
        (("kopf.dev/v1", "kex"), {}, Selector("kopf.dev/v1", "kex")),
        (("kex.kopf.dev",), {}, Selector("kex.kopf.dev")),
        ((EVERYTHING,), {}, Selector(EVERYTHING)),
        (("kopfexamples",), {"group": "kopf.dev", "version": "v1"}, Selector("kopf.dev/v1", "kopfexamples")),
    ],
)
def test_resources(registry: OperatorRegistry, decorator: Decorator, args: Any, kwargs: Any, selector: Any) -> None:
    assert declare(decorator, registry, *args, **kwargs).selector == selector


@pytest.mark.parametrize("name", ["kind", "plural", "singular", "shortcut", "category"])
def test_resources_by_specific_names(registry: OperatorRegistry, name: str) -> None:
    options: Any = {name: "x"}
    kopf.on.create(registry=registry, **options)(function)
    assert registry.resources[0].selector == Selector(**options)


@pytest.mark.parametrize("decorator", RESOURCES)
def test_resources_by_callbacks(registry: OperatorRegistry, decorator: Decorator) -> None:
    handler = declare(decorator, registry, lambda resource: resource.plural == "pods")
    assert handler.selector.check(kopf.Resource("", "v1", "pods"))
    assert not handler.selector.check(kopf.Resource("", "v1", "nodes"))


@pytest.mark.parametrize("decorator", RESOURCES)
@pytest.mark.parametrize(
    ("options", "id"),
    [
        ({}, "function"),
        ({"field": "spec.field"}, "function/spec.field"),
        ({"field": ("spec", "my.domain/x")}, "function/spec.my.domain/x"),
        ({"id": "x"}, "x"),
        ({"id": "x", "field": "spec.field"}, "x/spec.field"),
    ],
)
def test_ids(registry: OperatorRegistry, decorator: Decorator, options: Any, id: str) -> None:
    if decorator is kopf.index:
        id = id.partition("/")[0]  # the names of indices are kwargs of other handlers
    if decorator is kopf.on.field and "field" not in options:
        options, id = {**options, "field": "spec"}, f"{id}/spec"
    assert declare(decorator, registry, **options).id == id


@pytest.mark.parametrize(
    ("fn", "id"),
    [
        (Namespace().method, "Namespace.method"),
        (Callable_(), "Callable_"),
        (functools.partial(function), "function"),
    ],
)
@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.startup])
def test_anything_callable_can_be_a_handler(registry: OperatorRegistry, decorator: Decorator, fn: Any, id: str) -> None:
    handler = declare(decorator, registry, fn=fn)
    assert (handler.fn, handler.id) == (fn, id)


def test_decorators_can_be_stacked(registry: OperatorRegistry) -> None:
    @kopf.on.resume("kopfexamples", registry=registry, id="fn")
    @kopf.on.create("kopfexamples", registry=registry, id="fn")
    @kopf.on.update("kopfexamples", field="spec.field", registry=registry, id="fn")
    def fn(**_: Any) -> None: ...

    assert [handler.fn for handler in registry.resources] == [fn, fn, fn]
    assert [handler.id for handler in registry.resources] == ["fn/spec.field", "fn", "fn"]


# --- errors ---


UNCHANGED: list[Decorator] = [decorator for decorator in RESOURCES if decorator not in (kopf.on.update, kopf.on.field)]
UPDATES: list[Decorator] = [kopf.on.update, kopf.on.field]
NAME = ("kopfexamples",)
REFUSED: list[tuple[list[Decorator], tuple[Any, ...], list[dict[str, Any]], str]] = [
    (RESOURCES, (), [{"field": "spec"}], "resource is not specified"),
    (RESOURCES, ("pods",), [{"kind": "Pod", "field": "spec"}], "only one name"),
    (RESOURCES, ("kopf.dev", "v1", "kopfexamples", "extra"), [{"field": "spec"}], ""),
    (RESOURCES, NAME, [{"field": 123}], "must be a dotted string"),
    ([kopf.on.field], NAME, [{}, {"field": None}, {"field": ""}, {"field": ()}], "field is not specified"),
    ([*UNCHANGED, kopf.on.update], NAME, [{"value": "v"}], "value= needs field="),
    ([kopf.on.update], NAME, [{"old": "x"}, {"new": "x"}, {"old": 0, "new": False}], "need field="),
    (
        UPDATES,
        NAME,
        [
            {"field": "spec", "value": "v", **options}
            for options in ({"old": "x"}, {"new": "x"}, {"old": "x", "new": "y"}, {"old": kopf.ABSENT})
        ],
        "Either value= or old=/new=",
    ),
    (ALL, NAME, [{"unknown": "x"}], "unknown"),
    (UNCHANGED, NAME, [{"field": "spec", "old": "x"}, {"field": "spec", "new": "x"}], ""),
    ([kopf.on.event], NAME, [{"errors": 1}], "errors"),
    ([kopf.on.event], NAME, [{"timeout": 1}], "timeout"),
    ([kopf.on.event], NAME, [{"retries": 1}], "retries"),
    ([kopf.on.event], NAME, [{"backoff": 1}], "backoff"),
]


@pytest.mark.parametrize(
    ("decorator", "names", "options", "text"),
    [
        (decorator, names, options, text)
        for decorators, names, variants, text in REFUSED
        for decorator in decorators
        for options in variants
    ],
)
def test_what_makes_no_sense_is_refused(
    registry: OperatorRegistry, decorator: Decorator, names: Any, options: dict[str, Any], text: str
) -> None:
    args = names if decorator in RESOURCES else ()
    with pytest.raises(TypeError, match=text or None):
        decorator(*args, registry=registry, **options)


@pytest.mark.parametrize("decorator", [decorator for decorator in RESOURCES if decorator is not kopf.on.field])
def test_decorators_cannot_be_used_without_arguments(decorator: Any) -> None:
    async def coroutine(**_: Any) -> None: ...

    for fn in [function, coroutine]:
        with pytest.raises(TypeError, match="without arguments"):
            decorator(fn)(fn)


@pytest.mark.parametrize("decorator", [decorator for decorator, _ in ACTIVITIES])
def test_decorators_of_activities_cannot_be_used_without_parentheses(decorator: Any) -> None:
    with pytest.raises(TypeError):
        decorator(function)


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.startup])
@pytest.mark.parametrize("fn", [None, "fn", 123])
def test_handlers_must_be_callable(registry: OperatorRegistry, decorator: Decorator, fn: Any) -> None:
    with pytest.raises(TypeError, match="must be a function"):
        declare(decorator, registry, fn=fn)
    assert not registry
