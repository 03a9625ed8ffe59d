"""How the admission handlers are declared."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from kopf._admission.webhook_paths import WebhookPaths
from kopf._handlers.handlers import WebhookHandler
from kopf._values.reasons import WebhookType
from kopf._values.selectors import Selector
from tests.admission.reviewing import describe

decorators = pytest.mark.parametrize("decorator", [kopf.on.validate, kopf.on.mutate])


def declare(
    decorator: Any = kopf.on.validate,
    *args: Any,
    fn: Any = lambda **_: None,
    **options: Any,
) -> WebhookHandler:
    registry = kopf.OperatorRegistry()
    assert decorator(*(args or ("kopfexamples",)), registry=registry, **options)(fn) is fn
    (handler,) = registry.webhooks
    assert registry.resources == []
    return handler


@pytest.mark.parametrize(
    ("decorator", "type", "operations"),
    [
        (kopf.on.validate, WebhookType.VALIDATING, None),
        (kopf.on.mutate, WebhookType.MUTATING, {"CREATE", "UPDATE", "CONNECT"}),
    ],
)
def test_defaults(decorator: Any, type: WebhookType, operations: set[str] | None) -> None:
    def check(**_: Any) -> None: ...

    handler = declare(decorator, fn=check)
    assert handler.fn is check
    assert handler.id == "test_defaults.<locals>.check"
    assert handler.type is type
    assert handler.selector == Selector("kopfexamples")
    assert (handler.operations, handler.subresource) == (operations, None)
    assert (handler.persistent, handler.side_effects, handler.ignore_failures) == (False, False, False)
    assert (handler.labels, handler.annotations, handler.when) == (None, None, None)
    assert (handler.field, handler.value) == ((), None)
    assert str(handler) == "Webhook 'test_defaults.<locals>.check'"


@decorators
def test_options(decorator: Any) -> None:
    def when(**_: Any) -> bool:
        return True

    handler = declare(
        decorator,
        "kopf.dev",
        "v1",
        "kopfexamples",
        id="id",
        param=123,
        operation="CREATE",
        subresource="status",
        persistent=True,
        side_effects=True,
        ignore_failures=True,
        labels={"l": "v"},
        annotations={"a": "v"},
        when=when,
        field="spec.field",
        value=1,
    )
    assert (handler.id, handler.param) == ("id/spec.field", 123)
    assert handler.selector == Selector("kopf.dev", "v1", "kopfexamples")
    assert (handler.operations, handler.subresource) == (frozenset({"CREATE"}), "status")
    assert (handler.persistent, handler.side_effects, handler.ignore_failures) == (True, True, True)
    assert (handler.labels, handler.annotations, handler.when) == ({"l": "v"}, {"a": "v"}, when)
    assert (handler.field, handler.value) == (("spec", "field"), 1)


@decorators
@pytest.mark.parametrize("option", ["errors", "backoff", "retries", "timeout", "old", "new", "unknown"])
def test_options_of_other_handlers_are_refused(decorator: Any, option: str) -> None:
    """There are no retries: somebody waits for the answer."""
    with pytest.raises(TypeError, match=option):
        declare(decorator, **{option: 1})


@decorators
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"operation": "PATCH"}, "No such operations: PATCH. They can be: CONNECT, CREATE, DELETE, UPDATE."),
        ({"operations": ["CREATE", "create"]}, "No such operations: create."),
        ({"operations": "CREATE"}, "for one, use operation="),
        ({"operation": "CREATE", "operations": ["UPDATE"]}, "not both"),
        ({"subresource": ""}, "cannot be empty"),
        ({"value": 1}, "field="),
    ],
    ids=describe,
)
def test_mistakes_are_noticed(decorator: Any, options: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error):
        declare(decorator, **options)


@decorators
def test_arguments_are_mandatory(decorator: Any) -> None:
    with pytest.raises(TypeError, match="without arguments"):
        decorator(lambda body, **_: None)


def test_the_registry_with_webhooks_only_is_not_empty() -> None:
    registry = kopf.OperatorRegistry()
    assert not registry
    kopf.on.validate("kopfexamples", registry=registry)(lambda **_: None)
    assert registry
    assert registry.get_selectors() == [Selector("kopfexamples")]


def test_endpoints_are_the_ids() -> None:
    handlers = [declare(id="a"), declare(kopf.on.mutate, id="b"), declare(id="c", field="spec.x"), declare(id="a")]
    paths = WebhookPaths(handlers)
    assert [paths.get(handler) for handler in handlers] == ["a", "b", "c/spec.x", "a"]
    assert paths.find("a") == [handlers[0], handlers[3]]
    assert paths.find("b") == [handlers[1]]
    assert list(paths.find("x")) == []


def test_endpoints_tell_the_types_where_needed() -> None:
    handlers = [declare(id="a"), declare(kopf.on.mutate, id="a"), declare(id="b")]
    paths = WebhookPaths(handlers)
    assert [paths.get(handler) for handler in handlers] == ["a:validating", "a:mutating", "b"]
    assert paths.find("a") == handlers[:2]
    assert paths.find("a:validating") == handlers[:1]
    assert paths.find("a:mutating") == handlers[1:2]
