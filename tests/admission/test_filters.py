"""Which handlers are called for which reviews, as decided by the operator."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.admission.reviewing import Reviewer, describe, make_object
from tests.behaviour.running import Calls, Decorator

pytestmark = pytest.mark.fastforward


def declare(calls: Calls, id: str = "check", decorator: Decorator = kopf.on.validate, **options: Any) -> None:
    @decorator("kopfexamples", id=id, **options)
    def check(**_: Any) -> None:
        calls.append(id)


async def is_called(reviewer: Reviewer, calls: Calls, *args: Any, **kwargs: Any) -> bool:
    """Tell if the handler is called for the review; it is admitted anyway."""
    calls.items.clear()
    assert await reviewer.review(*args, **kwargs) == {"allowed": True}
    assert len(calls) <= 1
    return len(calls) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"CREATE", "UPDATE", "DELETE", "CONNECT"}),
        ({"operation": None}, {"CREATE", "UPDATE", "DELETE", "CONNECT"}),
        ({"operation": "*"}, {"CREATE", "UPDATE", "DELETE", "CONNECT"}),
        ({"operation": "CREATE"}, {"CREATE"}),
        ({"operation": "UPDATE"}, {"UPDATE"}),
        ({"operation": "DELETE"}, {"DELETE"}),
        ({"operation": "CONNECT"}, {"CONNECT"}),
        ({"operations": ["CREATE", "DELETE"]}, {"CREATE", "DELETE"}),
        ({"operations": {"CREATE"}}, {"CREATE"}),
        ({"operations": []}, {"CREATE", "UPDATE", "DELETE", "CONNECT"}),
    ],
    ids=describe,
)
@pytest.mark.parametrize("webhook", ["check", None])
async def test_operations(
    reviewer: Reviewer,
    calls: Calls,
    options: Any,
    expected: set[str],
    webhook: str | None,
) -> None:
    declare(calls, **options)
    called = {
        operation
        for operation in ("CREATE", "UPDATE", "DELETE", "CONNECT")
        if await is_called(reviewer, calls, operation, webhook=webhook)
    }
    assert called == expected


@pytest.mark.parametrize(
    ("subresource", "expected"),
    [
        (None, {None}),
        ("status", {"status"}),
        ("scale", {"scale"}),
        ("*", {None, "status", "scale"}),
    ],
)
async def test_subresources(
    reviewer: Reviewer,
    calls: Calls,
    subresource: str | None,
    expected: set[str | None],
) -> None:
    declare(calls, subresource=subresource)
    called = {
        name
        for name in (None, "status", "scale")
        if await is_called(reviewer, calls, "UPDATE", subResource=name, webhook="check")
    }
    assert called == expected


@pytest.mark.parametrize("stanza", ["labels", "annotations"])
@pytest.mark.parametrize(
    ("expected", "values"),
    [
        ("value", ["value"]),
        (kopf.PRESENT, ["", "value", "other"]),
        (kopf.ABSENT, [None]),
        (lambda value, **_: value != "value", [None, "", "other"]),
    ],
    ids=["value", "PRESENT", "ABSENT", "callback"],
)
async def test_metadata(reviewer: Reviewer, calls: Calls, stanza: Any, expected: Any, values: list[str | None]) -> None:
    filters: dict[str, Any] = {stanza: {"key": expected}}
    declare(calls, **filters)
    called = []
    for value in (None, "", "value", "other"):
        obj = make_object(**{stanza: {} if value is None else {"key": value}})
        if await is_called(reviewer, calls, "CREATE", obj):
            called.append(value)
    assert called == values


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({}, ["value", "other", 1]),
        ({"value": "value"}, ["value"]),
        ({"value": kopf.PRESENT}, ["value", "other", 1]),
        ({"value": kopf.ABSENT}, [None]),
        ({"value": 1}, [1]),
        ({"value": lambda value, **_: value != "value"}, [None, "other", 1]),
    ],
    ids=["no value", "value", "PRESENT", "ABSENT", "number", "callback"],
)
async def test_fields(reviewer: Reviewer, calls: Calls, options: Any, values: list[Any]) -> None:
    declare(calls, field="spec.field", **options)
    called = []
    for value in (None, "value", "other", 1):
        obj = make_object({} if value is None else {"field": value})
        if await is_called(reviewer, calls, "CREATE", obj):
            called.append(value)
    assert called == values


async def test_callbacks(reviewer: Reviewer, calls: Calls) -> None:
    """They get the same kwargs as the handlers."""

    def when(userinfo: kopf.UserInfo, operation: str, warnings: list[str], **_: Any) -> bool:
        return userinfo["username"] == "me" and operation == "CREATE" and not warnings

    declare(calls, when=when)
    assert not await is_called(reviewer, calls)
    assert await is_called(reviewer, calls, userInfo={"username": "me"})
    assert not await is_called(reviewer, calls, "UPDATE", userInfo={"username": "me"})


@pytest.mark.parametrize(("operation", "is_new"), [("CREATE", True), ("UPDATE", True), ("DELETE", False)])
async def test_filters_look_at_the_new_object_if_there_is_one(
    reviewer: Reviewer,
    calls: Calls,
    operation: str,
    *,
    is_new: bool,
) -> None:
    declare(calls, labels={"l": "v"})
    labelled, other = make_object(labels={"l": "v"}), make_object()
    new, old = (None if operation == "DELETE" else labelled), (None if operation == "CREATE" else other)
    assert await is_called(reviewer, calls, operation, new, old) is is_new
    new, old = (None if operation == "DELETE" else other), (None if operation == "CREATE" else labelled)
    assert await is_called(reviewer, calls, operation, new, old) is not is_new


async def test_only_the_requested_handler_is_called(reviewer: Reviewer, calls: Calls) -> None:
    for id in ("a", "b", "c/d"):
        declare(calls, id)
    declare(calls, "fields", field="spec.field")
    for webhook in ("a", "b", "c/d"):
        calls.items.clear()
        assert await reviewer.review(webhook=webhook) == {"allowed": True}
        assert calls == [webhook]
    calls.items.clear()
    assert await reviewer.review(webhook="fields/spec.field") == {"allowed": True}
    assert calls == ["fields"]


async def test_all_handlers_are_called_if_none_is_requested(reviewer: Reviewer, calls: Calls) -> None:
    declare(calls, "a")
    declare(calls, "b", kopf.on.mutate)
    declare(calls, "c", operation="DELETE")
    assert await reviewer.review() == {"allowed": True}
    assert sorted(calls) == ["a", "b"]


async def test_several_decorators_on_one_function(reviewer: Reviewer, calls: Calls) -> None:
    @kopf.on.validate("kopfexamples", operation="CREATE", param="create", id="check")
    @kopf.on.validate("kopfexamples", operation="DELETE", param="delete", id="check")
    @kopf.on.validate("kopfexamples", labels={"l": "v"}, param="labelled", id="check")
    def check(param: str, **_: Any) -> None:
        calls.append(param)

    assert await reviewer.review("CREATE", webhook="check") == {"allowed": True}
    assert await reviewer.review("UPDATE", webhook="check") == {"allowed": True}
    assert await reviewer.review("DELETE", webhook="check") == {"allowed": True}
    assert await reviewer.review("UPDATE", make_object(labels={"l": "v"}), webhook="check") == {"allowed": True}
    assert calls == ["create", "delete", "labelled"]
    calls.items.clear()
    assert await reviewer.review("CREATE", make_object(labels={"l": "v"}), webhook="check") == {"allowed": True}
    assert len(calls) == 1


async def test_both_types_on_one_function(reviewer: Reviewer, calls: Calls) -> None:
    @kopf.on.validate("kopfexamples", param="validate", id="fn")
    @kopf.on.mutate("kopfexamples", param="mutate", id="fn")
    def fn(param: str, **_: Any) -> None:
        calls.append(param)

    assert await reviewer.review(webhook="fn:validating") == {"allowed": True}
    assert await reviewer.review(webhook="fn:mutating") == {"allowed": True}
    assert calls == ["validate", "mutate"]


async def test_the_default_registry(reviewer: Reviewer, calls: Calls, as_users_run_it: None) -> None:
    @kopf.on.validate("kopf.dev", "v1", "kopfexamples", id="check")
    def check(**_: Any) -> None:
        calls.append("called")

    assert await reviewer.review(webhook="check") == {"allowed": True}
    assert calls == ["called"]
