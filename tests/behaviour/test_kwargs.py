"""What handlers get: all documented keyword arguments, and what is in the context variables."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import datetime
import logging
from collections.abc import Mapping
from typing import Any

import pytest

import kopf
from kopf._handlers.handlers import Handler, ResourceHandler
from kopf._handlers.signatures import get_callbacks_kwargs, get_kwargs
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Decorator, Operator

OBJECT_KWARGS = {
    "logger",
    "memo",
    "param",
    "resource",
    "patch",
    "body",
    "spec",
    "meta",
    "status",
    "uid",
    "name",
    "namespace",
    "labels",
    "annotations",
}
RETRY_KWARGS = {"retry", "started", "runtime"}
CHANGE_KWARGS = {"reason", "old", "new", "diff"}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    "decorator",
    [kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume, kopf.on.field],
    ids=lambda decorator: decorator.__name__,
)
async def test_handlers_of_changes(
    operator: Operator,
    kex: Objects,
    calls: Calls,
    decorator: Decorator,
    is_async: bool,
) -> None:
    options = {"field": "spec.field"} if decorator is kopf.on.field else {}
    note = calls.noting(lambda **kwargs: kwargs) if is_async else lambda **kwargs: calls.append(kwargs)
    decorator("kopfexamples", param={"any": "thing"}, **options)(note)
    await kex.create(labels={"l": "v"}, annotations={"a": "w"}, status={"s": "t"})
    await operator.start()
    if decorator is kopf.on.resume:
        await calls.wait_length(1)
    elif decorator is kopf.on.update or decorator is kopf.on.field:
        await kex.wait_handled()
        calls.items.clear()
        await kex.merge({"spec": {"field": "new"}})
    elif decorator is kopf.on.delete:
        await kex.wait_handled()
        await kex.delete()
    await calls.wait_length(1)

    kwargs = calls[0]
    assert kwargs.keys() >= OBJECT_KWARGS | RETRY_KWARGS | CHANGE_KWARGS
    assert kwargs["param"] == {"any": "thing"}
    assert kwargs["retry"] == 0
    assert kwargs["started"].tzinfo is not None
    assert abs(datetime.datetime.now(datetime.UTC) - kwargs["started"]) < datetime.timedelta(seconds=30)
    assert datetime.timedelta(0) <= kwargs["runtime"] < datetime.timedelta(seconds=30)
    assert isinstance(kwargs["logger"], logging.Logger | logging.LoggerAdapter)
    assert isinstance(kwargs["memo"], kopf.Memo)
    assert isinstance(kwargs["patch"], kopf.Patch)
    assert isinstance(kwargs["reason"], kopf.Reason)
    assert isinstance(kwargs["diff"], kopf.Diff)
    _check_object(kwargs)


def _check_object(kwargs: Mapping[str, Any]) -> None:
    body = kwargs["body"]
    assert isinstance(body, Mapping)
    assert isinstance(body, kopf.Body)
    assert body["apiVersion"] == "kopf.dev/v1"
    assert body["kind"] == "KopfExample"
    assert kwargs["name"] == body["metadata"]["name"] == kwargs["meta"]["name"] == kwargs["meta"].name == "obj"
    assert kwargs["namespace"] == body.metadata.namespace == kwargs["meta"]["namespace"] == "default"
    assert kwargs["uid"] == body["metadata"]["uid"] == kwargs["meta"].uid != ""
    assert kwargs["meta"].creation_timestamp == body["metadata"]["creationTimestamp"]
    assert kwargs["labels"] == {"l": "v"} == kwargs["meta"].labels
    assert kwargs["annotations"]["a"] == "w" == kwargs["meta"].annotations["a"]
    assert kwargs["spec"] == body["spec"]
    assert kwargs["spec"]["field"] in ("value", "new")
    assert kwargs["status"] == body["status"] == {"s": "t"}
    resource = kwargs["resource"]
    assert isinstance(resource, kopf.Resource)
    assert (resource.group, resource.version, resource.plural) == ("kopf.dev", "v1", "kopfexamples")


async def test_diffs_of_the_whole_object(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    def fn(old: Any, new: Any, diff: kopf.Diff, reason: kopf.Reason, **_: Any) -> None:
        calls.append((reason.value, copy.deepcopy(old), copy.deepcopy(new), diff))

    await operator.start_and_handle(kex, spec={"a": 1, "b": {"c": [1]}}, labels={"l": "v"})
    await kex.merge({"spec": {"a": None, "b": {"c": [1, 2], "d": 3}}})
    await kex.wait_handled(b={"c": [1, 2], "d": 3})
    await kex.delete_and_wait()

    v1 = {"spec": {"a": 1, "b": {"c": [1]}}, "metadata": {"labels": {"l": "v"}}}
    v2 = {"spec": {"b": {"c": [1, 2], "d": 3}}, "metadata": {"labels": {"l": "v"}}}
    (reason1, old1, new1, diff1), (reason2, old2, new2, diff2), (reason3, old3, new3, diff3) = calls
    assert (reason1, old1, new1) == ("create", None, v1)
    assert diff1 == (("add", (), None, v1),)
    assert (reason2, old2, new2) == ("update", v1, v2)
    assert set(map(repr, diff2)) == set(
        map(
            repr,
            kopf.Diff(
                (
                    kopf.DiffItem(kopf.DiffOperation.REMOVE, ("spec", "a"), 1, None),
                    kopf.DiffItem(kopf.DiffOperation.CHANGE, ("spec", "b", "c"), [1], [1, 2]),
                    kopf.DiffItem(kopf.DiffOperation.ADD, ("spec", "b", "d"), None, 3),
                )
            ),
        )
    )
    assert (reason3, old3, new3, diff3) == ("delete", v2, v2, ())


async def test_raw_events(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.event("kopfexamples", param=123)(lambda **kwargs: calls.append(kwargs))
    await kex.create("existing", labels={"l": "v"}, annotations={"a": "w"}, status={"s": "t"})
    await operator.start()
    await calls.wait_length(1)
    await kex.create(labels={"l": "v"}, annotations={"a": "w"}, status={"s": "t"})
    await kex.merge({"spec": {"field": "new"}})
    await kex.delete()
    await calls.wait_length(4)

    assert all(kwargs.keys() >= OBJECT_KWARGS | {"event"} for kwargs in calls)
    assert all(kwargs["param"] == 123 for kwargs in calls)
    assert [kwargs["type"] for kwargs in calls] == [kwargs["event"]["type"] for kwargs in calls]
    assert [kwargs["type"] for kwargs in calls] == [None, "ADDED", "MODIFIED", "DELETED"]
    for kwargs in calls.items[1:]:
        assert kwargs["event"]["object"]["metadata"]["name"] == "obj"
        assert kwargs["event"]["object"]["spec"] == kwargs["spec"]
        assert kwargs["event"].keys() == {"type", "object"}
        _check_object(kwargs)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_activities(operator: Operator, calls: Calls, is_async: bool) -> None:
    note = calls.noting(lambda **kwargs: kwargs) if is_async else lambda **kwargs: calls.append(kwargs)
    for decorator in (kopf.on.startup, kopf.on.cleanup):
        decorator(param=decorator.__name__)(note)
    settings = kopf.OperatorSettings()
    memo = kopf.Memo(some="value")
    await operator.launch(settings=settings, memo=memo)
    await operator.stop()
    assert [kwargs["param"] for kwargs in calls] == ["startup", "cleanup"]
    for kwargs in calls:
        assert kwargs.keys() >= {"settings", "memo", "logger", "param", "activity", "retry", "started", "runtime"}
        assert kwargs["settings"] is settings
        assert kwargs["memo"] is memo
        assert kwargs["retry"] == 0
        assert not kwargs.keys() & {"body", "patch", "spec", "reason"}


async def test_login_handlers(operator: Operator, calls: Calls) -> None:
    registry = operator.registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login_fn(**kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append(kwargs)
        return kopf.login_with_kubeconfig(**kwargs)

    await operator.launch()
    await operator.stop()
    assert calls[0].keys() >= {"settings", "memo", "logger", "param", "activity", "retry", "started", "runtime"}
    assert isinstance(calls[0]["settings"], kopf.OperatorSettings)


async def test_functions_are_judged_by_what_they_actually_get(
    operator: Operator,
    registry: kopf.OperatorRegistry,
    kex: Objects,
    calls: Calls,
) -> None:
    """See the signatures: what they expect is what comes, for all kinds of handlers and of their callbacks."""

    def make(whose: str, result: Any = None) -> Any:
        async def fn(*_: Any, **kwargs: Any) -> None:
            calls.append((whose, frozenset(kwargs)))

        def callback(*_: Any, **kwargs: Any) -> Any:
            calls.append((whose, frozenset(kwargs)))
            return result

        return callback if result is not None else fn

    decorators: list[Decorator] = [
        kopf.on.create,
        kopf.on.update,
        kopf.on.delete,
        kopf.on.resume,
        kopf.on.field,
        kopf.on.event,
        kopf.index,
        kopf.daemon,
        kopf.timer,
    ]
    for decorator in decorators:
        name = decorator.__name__
        options = {"initial_delay": make(f"{name} callback", 0)} if decorator in (kopf.daemon, kopf.timer) else {}
        decorator(
            "kopfexamples",
            registry=registry,
            id=name,
            field="spec",
            value=make(f"{name} callback", True),
            when=make(f"{name} callback", True),
            labels={"l": make(f"{name} callback", True)},
            **options,
        )(make(name))
    for activity in (kopf.on.startup, kopf.on.cleanup):
        activity(registry=registry, id=activity.__name__)(make(activity.__name__))
    await kex.create("existing", labels={"l": "v"})
    await operator.start_and_handle(kex, labels={"l": "v"})
    await kex.change_and_wait(field="new")
    await kex.delete_and_wait()
    await operator.stop()

    seen = {whose: {kwargs for other, kwargs in calls if other == whose} for whose, _ in calls}
    handlers: list[Handler] = [*registry.activities, *registry.resources]
    for handler in handlers:
        if handler.id in seen or isinstance(handler, ResourceHandler):
            expected = get_kwargs(handler, ["index"])
            assert seen[handler.id.partition("/")[0]] == {expected}
        if isinstance(handler, ResourceHandler):
            expected = get_callbacks_kwargs(handler, ["index"])
            assert seen[handler.id.partition("/")[0] + " callback"] == {expected}


variable: contextvars.ContextVar[str | None] = contextvars.ContextVar("variable", default=None)


@pytest.mark.fastforward
async def test_runs_of_a_timer(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.timer("kopfexamples", interval=1)
    async def timer_fn(**_: Any) -> None:
        calls.append(variable.get())
        variable.set("of a previous run")

    await operator.start_and_call(kex, calls, times=3)
    assert set(calls) == {None}


@pytest.mark.fastforward
async def test_handlers_of_objects_that_wait_for_each_other(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(name: str, **_: Any) -> None:
        calls.append(variable.get())
        variable.set(name)
        await asyncio.sleep(1)

    operator.set("queueing.worker_limit", 1)
    await operator.start()
    await kex.create_all(("one", "two", "three"))
    await calls.wait_length(3)
    assert set(calls) == {None}


@pytest.mark.fastforward
async def test_daemons_and_handlers_of_the_object(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.event("kopfexamples")
    async def event_fn(**_: Any) -> None:
        variable.set("of the event")

    kopf.daemon("kopfexamples")(calls.noting(lambda **_: variable.get()))
    await operator.start_and_call(kex, calls)
    assert calls == [None]


@pytest.mark.fastforward
async def test_those_of_whoever_runs_the_operator_are_seen(operator: Operator, kex: Objects, calls: Calls) -> None:
    kopf.on.create("kopfexamples")(calls.noting(lambda **_: variable.get()))
    token = variable.set("of the embedding application")
    await operator.start()
    variable.reset(token)
    await kex.create()
    await calls.wait_length(1)
    assert calls == ["of the embedding application"]
