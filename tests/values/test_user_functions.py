"""What a function cannot see of its arguments, it does not get; in all doubts, it gets everything."""

from __future__ import annotations

import datetime
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from kopf._handlers.attempts import Attempt
from kopf._handlers.causes import ChangingCause
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.handlers import Handler
from kopf._settings.settings import OperatorSettings
from kopf._values.reasons import Reason
from kopf._values.user_functions import list_read_arguments
from tests.handlers.builders import make_changing_cause, make_changing_handler


class Instance:
    def __call__(self, spec: Any, **_: Any) -> None: ...

    def method(self, spec: Any, **_: Any) -> None: ...

    @classmethod
    def of_class(cls, spec: Any, **_: Any) -> None: ...


def sync(spec: Any, name: str = "", *args: Any, diff: Any, **_: Any) -> None: ...
async def coroutine(spec: Any, **unused: Any) -> None: ...
def nothing(**_: Any) -> None: ...
def nested(spec: Any, **_: Any) -> Any:
    return [_ + 1 for _ in spec]


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (sync, {"spec", "name", "diff"}),
        (coroutine, {"spec"}),
        (nothing, set()),
        (lambda spec, **_: spec, {"spec"}),
        (functools.partial(sync, name="x"), {"spec", "name", "diff"}),
        (Instance(), {"self", "spec"}),
        (Instance().method, {"self", "spec"}),
        (Instance.of_class, {"cls", "spec"}),
    ],
)
def test_only_the_named_ones_are_read(fn: Callable[..., Any], names: set[str]) -> None:
    assert list_read_arguments(fn) == frozenset(names)


def read_all(**kwargs: Any) -> Any:
    return kwargs


def pass_all_on(spec: Any, **kwargs: Any) -> None:
    sync(spec, **kwargs)


def take_no_others(spec: Any) -> None: ...
def catch_by_lambda(**kwargs: Any) -> Any:
    return lambda: kwargs


def catch_by_function(**kwargs: Any) -> Any:
    def inner() -> Any:
        return kwargs["spec"]

    return inner


def read_two_at_once(spec: Any, **kwargs: Any) -> Any:
    return (spec, kwargs)


def list_locals(**_: Any) -> Any:
    return locals()


def list_vars(**_: Any) -> Any:
    return vars()


def evaluate(**_: Any) -> Any:
    return eval("_")


def look_at_the_frame(**_: Any) -> Any:
    return sys._getframe().f_locals


def inspect_the_frame(**_: Any) -> Any:
    return inspect.currentframe()


def debug(**_: Any) -> None:
    breakpoint()


def loop(**_: Any) -> Any:
    return {item.upper() for item in _}


@functools.wraps(sync)
def wrap(*args: Any, **kwargs: Any) -> None:
    sync(*args, **kwargs)


def claim(**_: Any) -> None: ...


claim.__signature__ = inspect.signature(sync)  # type: ignore[attr-defined]  # as decorators do


@pytest.mark.parametrize(
    "fn",
    [
        read_all,
        pass_all_on,
        take_no_others,
        catch_by_lambda,
        catch_by_function,
        read_two_at_once,
        list_locals,
        list_vars,
        evaluate,
        look_at_the_frame,
        inspect_the_frame,
        debug,
        loop,
        wrap,
        claim,
        dict,
        MagicMock(),
        functools.partial(read_all, x=1),
    ],
)
def test_in_doubt_all_are_read(fn: Callable[..., Any]) -> None:
    assert list_read_arguments(fn) is None


def test_what_is_shadowed_is_not_what_is_read() -> None:
    assert list_read_arguments(nested) in (None, {"spec"})  # it depends on how comprehensions are compiled


async def execute(handler: Handler, cause: ChangingCause) -> Any:
    attempt = Attempt.first(datetime.datetime.now(datetime.UTC))
    return (await HandlerExecutor(OperatorSettings().execution).execute(handler, cause, attempt)).result


@pytest.fixture
def cause() -> ChangingCause:
    body = {"metadata": {"name": "x", "namespace": "ns", "uid": "u", "labels": {"l": "v"}}, "spec": {"field": "new"}}
    return make_changing_cause(body, Reason.UPDATE, old={"spec": {"field": "old"}}, indices={"idx": 1, "status": 2})


async def test_everything_that_is_read_is_passed(cause: ChangingCause) -> None:
    seen: dict[str, Any] = {}

    async def everything(**kwargs: Any) -> None:
        seen.update(kwargs)

    async def named(
        *,
        body: Any,
        spec: Any,
        meta: Any,
        status: Any,
        uid: Any,
        name: Any,
        namespace: Any,
        labels: Any,
        annotations: Any,
        logger: Any,
        memo: Any,
        resource: Any,
        patch: Any,
        reason: Any,
        old: Any,
        new: Any,
        diff: Any,
        param: Any,
        retry: Any,
        started: Any,
        runtime: Any,
        idx: Any,
        **_: Any,
    ) -> Any:
        values = {
            "body": body,
            "spec": spec,
            "meta": meta,
            "status": status,
            "uid": uid,
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
            "logger": logger,
            "memo": memo,
            "resource": resource,
            "patch": patch,
            "reason": reason,
            "old": old,
            "new": new,
            "diff": diff,
            "param": param,
            "retry": retry,
            "started": started,
            "runtime": runtime,
            "idx": idx,
        }
        return {name: (value, type(value)) for name, value in values.items()}

    await execute(make_changing_handler(fn=everything, param=123), cause)
    expected = {name: (value, type(value)) for name, value in seen.items() if name not in ("started", "runtime")}
    named_ones = await execute(make_changing_handler(fn=named, param=123), cause)
    assert {name: named_ones[name] for name in expected} == expected
    assert named_ones.keys() == seen.keys()


async def test_fields_are_narrowed_for_those_who_read_them(cause: ChangingCause) -> None:
    async def fn(old: Any, new: Any, diff: Any, **_: Any) -> Any:
        return old, new, diff

    handler = make_changing_handler(fn=fn, field=("spec", "field"))
    assert await execute(handler, cause) == ("old", "new", (("change", (), "old", "new"),))


async def test_nothing_is_decoded_for_those_who_do_not_look() -> None:
    def fail() -> Any:
        raise AssertionError("It is decoded.")

    async def fn(name: str, **_: Any) -> Any:
        return name

    cause = make_changing_cause({"metadata": {"name": "x"}})
    cause.get_change = fail
    assert await execute(make_changing_handler(fn=fn), cause) == "x"
