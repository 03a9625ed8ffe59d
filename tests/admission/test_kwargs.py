"""What the admission handlers get."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

import kopf
from kopf._handlers.signatures import get_callbacks_kwargs, get_kwargs
from tests.admission.reviewing import OBJECT, Reviewer, make_object
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Decorator, Operator

pytestmark = pytest.mark.fastforward

KWARGS = {
    "annotations",
    "body",
    "diff",
    "dryrun",
    "headers",
    "labels",
    "logger",
    "memo",
    "meta",
    "name",
    "namespace",
    "new",
    "old",
    "operation",
    "param",
    "patch",
    "resource",
    "retry",
    "runtime",
    "spec",
    "sslpeer",
    "started",
    "status",
    "subresource",
    "uid",
    "userinfo",
    "warnings",
}


def declare(calls: Calls, **options: Any) -> None:
    @kopf.on.validate("kopfexamples", **options)
    def check(**kwargs: Any) -> None:
        calls.append(kwargs)


async def ask(reviewer: Reviewer, calls: Calls, *args: Any, **kwargs: Any) -> Any:
    """Ask for a review, and get the kwargs of the only call."""
    assert (await reviewer.review(*args, **kwargs))["allowed"]
    assert len(calls) == 1
    return calls.items[0]


@pytest.mark.parametrize("decorator", [kopf.on.validate, kopf.on.mutate])
async def test_names(registry: kopf.OperatorRegistry, reviewer: Reviewer, calls: Calls, decorator: Decorator) -> None:
    @decorator("kopfexamples", registry=registry)
    def check(**kwargs: Any) -> None:
        calls.append(kwargs)

    assert (await ask(reviewer, calls)).keys() == KWARGS
    assert get_kwargs(registry.webhooks[0], []) == KWARGS


async def test_names_for_callbacks(registry: kopf.OperatorRegistry, reviewer: Reviewer, calls: Calls) -> None:
    def when(**kwargs: Any) -> bool:
        calls.append(frozenset(kwargs))
        return True

    kopf.on.validate("kopfexamples", registry=registry, when=when)(lambda **_: None)
    await ask(reviewer, calls)
    assert calls == [get_callbacks_kwargs(registry.webhooks[0], [])]


async def test_the_object(reviewer: Reviewer, calls: Calls) -> None:
    declare(calls, param=123)
    obj = make_object({"x": 1}, {"y": 2}, labels={"l": "v"}, annotations={"a": "b"})
    kwargs = await ask(reviewer, calls, "CREATE", obj)
    assert kwargs["body"] == obj
    assert kwargs["spec"] == {"x": 1}
    assert kwargs["status"] == {"y": 2}
    assert kwargs["meta"] == obj["metadata"]
    assert kwargs["labels"] == {"l": "v"}
    assert kwargs["annotations"] == {"a": "b"}
    assert (kwargs["name"], kwargs["namespace"], kwargs["uid"]) == ("obj", "default", "uid1")
    assert kwargs["param"] == 123
    assert kwargs["patch"] == {}
    assert kwargs["resource"].plural == "kopfexamples"
    assert (kwargs["retry"], kwargs["runtime"]) == (0, datetime.timedelta(0))
    assert kwargs["started"].tzinfo is not None


async def test_managed_fields_are_not_shown(reviewer: Reviewer, calls: Calls) -> None:
    declare(calls)
    kwargs = await ask(
        reviewer, calls, "UPDATE", make_object(managedFields=[{"time": "now"}]), make_object(managedFields=[])
    )
    assert kwargs["body"] == kwargs["old"] == kwargs["new"] == OBJECT
    assert kwargs["diff"] == ()


CHANGED = make_object({"field": "new"})


@pytest.mark.parametrize(
    ("operation", "old", "new", "body", "diff"),
    [
        ("CREATE", None, OBJECT, OBJECT, ("add", (), None, OBJECT)),
        ("UPDATE", OBJECT, CHANGED, CHANGED, ("change", ("spec", "field"), "value", "new")),
        ("DELETE", OBJECT, None, OBJECT, ("remove", (), OBJECT, None)),
    ],
    ids=["creation", "update", "deletion"],
)
async def test_operations(
    reviewer: Reviewer, calls: Calls, operation: str, old: Any, new: Any, body: Any, diff: tuple[Any, ...]
) -> None:
    declare(calls)
    kwargs = await ask(reviewer, calls, operation, new)
    assert (kwargs["operation"], kwargs["old"], kwargs["new"], kwargs["body"]) == (operation, old, new, body)
    assert kwargs["diff"] == (diff,)


async def test_connection(reviewer: Reviewer, calls: Calls) -> None:
    """There are options of the connection instead of the object, or there is nothing."""
    declare(calls, subresource="*")
    options = {"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]}
    for new in (options, None):
        calls.items.clear()
        kwargs = await ask(reviewer, calls, "CONNECT", new, subResource="exec")
        assert kwargs["body"] == (new or {})
        assert (kwargs["spec"], kwargs["meta"], kwargs["labels"], kwargs["uid"]) == ({}, {}, {}, "")
        assert (kwargs["name"], kwargs["namespace"], kwargs["subresource"]) == ("obj", "default", "exec")


async def test_fields(reviewer: Reviewer, calls: Calls) -> None:
    """They only select the objects: the change is that of the whole object, as in the original framework."""
    declare(calls, field="spec.field")
    kwargs = await ask(reviewer, calls, "UPDATE", make_object({"field": "new", "other": 1}))
    assert (kwargs["old"]["spec"], kwargs["new"]["spec"]) == ({"field": "value"}, {"field": "new", "other": 1})
    assert kwargs["diff"] == (("change", ("spec", "field"), "value", "new"), ("add", ("spec", "other"), None, 1))


async def test_generated_names(reviewer: Reviewer, calls: Calls) -> None:
    declare(calls)
    obj = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"generateName": "x-"}}
    kwargs = await ask(reviewer, calls, "CREATE", obj, name=...)
    assert (kwargs["name"], kwargs["namespace"], kwargs["uid"]) == (None, "default", "")


INFO = {"username": "me", "uid": "u", "groups": ["a", "b"], "extra": {"scopes": ["x"]}}
HEADERS = {"Authorization": "Bearer xyz", "Host": "localhost"}
SSLPEER = {"subject": ((("commonName", "Example Common Name"),),)}


@pytest.mark.parametrize(
    ("field", "raw", "value"),
    [
        *(("dryRun", raw, value) for raw, value in [(True, True), (False, False), (None, False), (..., False)]),
        *(("subResource", raw, value) for raw, value in [("status",) * 2, ("scale",) * 2, ("", None), (..., None)]),
        ("userInfo", INFO, INFO),
        *(("headers", raw, raw or {}) for raw in (HEADERS, None)),  # so that there is always something to .get() from
        *(("sslpeer", raw, raw or {}) for raw in (SSLPEER, None)),
    ],
    ids=str,
)
async def test_the_request(reviewer: Reviewer, calls: Calls, field: str, raw: Any, value: Any) -> None:
    declare(calls, subresource="*")
    passed = (await ask(reviewer, calls, **{field: raw}))[field.lower()]
    assert passed == value
    assert isinstance(passed, bool) is isinstance(value, bool)


async def test_warnings(reviewer: Reviewer) -> None:
    @kopf.on.validate("kopfexamples", id="first")
    def first(warnings: list[Any], **_: Any) -> None:
        warnings.append("one")
        warnings.append(2)

    @kopf.on.mutate("kopfexamples", id="second")
    def second(warnings: list[str], **_: Any) -> None:
        warnings.append("three")

    @kopf.on.validate("kopfexamples")
    def third(warnings: list[str], **_: Any) -> None:
        warnings.append("four")
        raise kopf.AdmissionError("no!")

    assert await reviewer.review(webhook="first") == {"allowed": True, "warnings": ["one", "2"]}
    assert await reviewer.review(webhook="second") == {"allowed": True, "warnings": ["three"]}
    response = await reviewer.review()
    assert not response["allowed"]
    assert sorted(response["warnings"]) == ["2", "four", "one", "three"]


async def test_warnings_are_of_one_line(reviewer: Reviewer) -> None:
    @kopf.on.validate("kopfexamples")
    def fn(warnings: list[str], **_: Any) -> None:
        warnings.append("the first line\r\n\tand the second")

    assert (await reviewer.review())["warnings"] == ["the first line and the second"]  # others, API servers drop


async def test_results_are_ignored(reviewer: Reviewer) -> None:
    @kopf.on.mutate("kopfexamples")
    def fn(**_: Any) -> object:
        return object()

    assert await reviewer.review() == {"allowed": True}


async def test_indices(operator: Operator, reviewer: Reviewer, calls: Calls, kex: Objects) -> None:
    """The indices are there, and they have precedence over all kwargs."""

    @kopf.index("kopfexamples")
    @kopf.index("kopfexamples", id="patch")
    def by_field(name: str, spec: kopf.Spec, **_: Any) -> dict[str, str]:
        return {spec["field"]: name}

    declare(calls)
    await kex.create("other")
    kwargs = await ask(reviewer, calls)
    assert {key: [*values] for key, values in kwargs["by_field"].items()} == {"value": ["other"]}
    assert {key: [*values] for key, values in kwargs["patch"].items()} == {"value": ["other"]}


async def test_memos_of_creation_are_discarded(reviewer: Reviewer, calls: Calls) -> None:
    @kopf.on.validate("kopfexamples")
    def check(memo: kopf.Memo, **_: Any) -> None:
        calls.append(dict(memo))
        memo.seen = True

    await reviewer.start(memo=kopf.Memo(common=1))
    for _ in range(2):
        await reviewer.review("CREATE")
    assert calls == [{"common": 1}, {"common": 1}]
    await reviewer.review("UPDATE")
    assert calls == [{"common": 1}] * 3


async def test_memos_of_existing_objects_are_shared_with_other_handlers(
    operator: Operator,
    reviewer: Reviewer,
    calls: Calls,
    kex: Objects,
) -> None:
    @kopf.on.create("kopfexamples")
    def create(memo: kopf.Memo, **_: Any) -> None:
        memo.created = True

    @kopf.on.update("kopfexamples", id="update")
    def update(memo: kopf.Memo, **_: Any) -> None:
        calls.append(("update", dict(memo)))

    @kopf.on.validate("kopfexamples")
    def check(memo: kopf.Memo, operation: str, **_: Any) -> None:
        calls.append((operation, dict(memo)))
        memo[operation] = True

    await operator.start()
    obj = await kex.create_and_wait()
    assert (await reviewer.review("UPDATE", obj, obj))["allowed"]
    obj = await kex.change_and_wait(field="new")
    assert (await reviewer.review("DELETE", None, obj))["allowed"]
    assert calls == [
        ("UPDATE", {"created": True}),
        ("update", {"created": True, "UPDATE": True}),
        ("DELETE", {"created": True, "UPDATE": True}),
    ]


async def test_memos_of_objects_that_are_not_handled_live_until_the_deletion(reviewer: Reviewer, calls: Calls) -> None:
    @kopf.on.validate("kopfexamples")
    def check(memo: kopf.Memo, **_: Any) -> None:
        memo.times = memo.get("times", 0) + 1
        calls.append(memo.times)

    for operation in ("UPDATE", "UPDATE", "DELETE", "UPDATE"):
        assert (await reviewer.review(operation))["allowed"]
    assert (await reviewer.review("DELETE", dryRun=True))["allowed"]
    assert (await reviewer.review("UPDATE"))["allowed"]
    assert calls == [1, 2, 3, 1, 2, 3]


async def test_memos_survive_denied_deletions(reviewer: Reviewer, calls: Calls) -> None:
    @kopf.on.validate("kopfexamples", operation="DELETE")
    def check(memo: kopf.Memo, **_: Any) -> None:
        memo.times = memo.get("times", 0) + 1
        calls.append(memo.times)
        if memo.times < 3:
            raise kopf.AdmissionError("Not yet.")

    for _ in range(4):
        await reviewer.review("DELETE")
    assert calls == [1, 2, 3, 1]
