from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import kopf
from kopf._handlers.causes import ChangingCause
from kopf._handlers.current_handler import SubhandlingContext
from kopf._handlers.handlers import ChangingHandler
from kopf._handlers.lifecycles import LifeCycleFn
from kopf._values.bodies import Body
from tests.handlers.builders import (
    do_nothing,
    executing,
    make_changing_cause,
    make_changing_handler,
    make_watching_cause,
)

executed: list[Sequence[ChangingHandler]] = []
rules: list[tuple[ChangingCause | None, LifeCycleFn | None]] = []


async def execute(
    context: SubhandlingContext,
    handlers: Sequence[ChangingHandler],
    *,
    cause: ChangingCause | None = None,
    lifecycle: LifeCycleFn | None = None,
) -> None:
    executed.append(handlers)
    rules.append((cause, lifecycle))


def make_context(**options: Any) -> SubhandlingContext:
    return SubhandlingContext(
        parent=make_changing_handler("parent", **options), cause=make_changing_cause({}), execute=execute
    )


@pytest.fixture
def context() -> Iterator[SubhandlingContext]:
    executed.clear()
    rules.clear()
    context = make_context()
    with executing(Body({}), context):
        yield context


def always(**_: Any) -> bool:
    return True


def get_ids(handlers: Sequence[ChangingHandler]) -> list[str]:
    return [handler.id for handler in handlers]


def test_options_of_subhandlers(context: SubhandlingContext) -> None:
    kopf.subhandler(
        param=1,
        errors=kopf.ErrorsMode.IGNORED,
        timeout=2,
        retries=3,
        backoff=4,
        labels={"l": "v"},
        annotations={"a": "v"},
        when=always,
        field="spec",
        old="x",
        new="y",
    )(do_nothing)
    assert kopf.register(do_nothing, field="spec", value="z") is do_nothing
    kopf.register(do_nothing, field="spec", old="x", new="y")
    first, second, third = context.declared
    assert (first.param, first.errors, first.timeout) == (1, kopf.ErrorsMode.IGNORED, 2)
    assert (first.retries, first.backoff) == (3, 4)
    assert (first.labels, first.annotations) == ({"l": "v"}, {"a": "v"})
    assert first.when is always
    assert (first.field, first.old, first.new) == (("spec",), "x", "y")
    assert (second.field, second.value) == (("spec",), "z")
    assert (third.old, third.new) == ("x", "y")


def test_functions_of_subhandlers_can_be_named(context: SubhandlingContext) -> None:
    assert kopf.register(fn=do_nothing, id="other") is do_nothing
    assert [handler.id for handler in context.declared] == ["parent/other"]


@pytest.mark.parametrize("needs_change", [True, False])
def test_subhandlers_look_at_fields_as_their_parents_do(needs_change: bool) -> None:
    context = make_context(field_needs_change=needs_change)
    with executing(Body({}), context):
        kopf.register(do_nothing, field="spec")
    assert context.declared[0].field_needs_change is needs_change


@pytest.mark.parametrize(
    "options",
    [
        {"value": "x", "old": "y", "field": "spec"},
        {"value": "x"},
        {"old": "x"},
        {"new": "x"},
        {"unknown": "x"},
    ],
)
def test_contradictory_options_are_refused(context: SubhandlingContext, options: Any) -> None:
    with pytest.raises(TypeError):
        kopf.subhandler(**options)(do_nothing)
    with pytest.raises(TypeError):
        kopf.register(do_nothing, **options)
    assert context.declared == []


@pytest.mark.parametrize("error", [LookupError, TypeError, RuntimeError])
def test_outside_of_handlers_there_are_no_subhandlers(error: type[Exception]) -> None:
    with pytest.raises(error, match="while a handler"):
        kopf.subhandler()(do_nothing)
    with pytest.raises(error, match="while a handler"):
        kopf.register(do_nothing)


@pytest.mark.parametrize("error", [LookupError, TypeError, RuntimeError])
async def test_outside_of_handlers_nothing_can_be_executed(error: type[Exception]) -> None:
    with pytest.raises(error, match="only inside of a handler"):
        await kopf.execute(fns=[do_nothing])


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("fns", [5, [5], "abc", {"a": 5}], ids=str)
async def test_subhandlers_must_be_functions(fns: Any, is_inside: bool) -> None:
    context = make_context()
    with executing(Body({}), context) if is_inside else contextlib.nullcontext():
        with pytest.raises(ValueError, match="function"):
            await kopf.execute(fns=fns)
        with pytest.raises(ValueError, match="function"):
            kopf.register(fns)
    assert context.declared == []


@pytest.mark.parametrize(
    ("fns", "ids"),
    [
        ([], []),
        ([do_nothing, functools.partial(make_context)], ["parent/do_nothing", "parent/make_context"]),
        (iter([do_nothing]), ["parent/do_nothing"]),
        ({"a": do_nothing, "b": do_nothing}, ["parent/a", "parent/b"]),
    ],
)
async def test_executing_functions(context: SubhandlingContext, fns: Any, ids: list[str]) -> None:
    await kopf.execute(fns=fns)
    assert [get_ids(handlers) for handlers in executed] == [ids]


async def test_executing_handlers(context: SubhandlingContext) -> None:
    handlers = [make_changing_handler("x"), make_changing_handler("y")]
    await kopf.execute(handlers=iter(handlers))
    assert executed == [handlers]


async def test_executing_with_other_rules(context: SubhandlingContext) -> None:
    cause = make_changing_cause({}, reason=kopf.Reason.UPDATE)
    registry = kopf.OperatorRegistry()
    kopf.on.update("kopfexamples", registry=registry, id="update")(do_nothing)
    await kopf.execute(registry=registry, cause=cause, lifecycle=kopf.lifecycles.shuffled)
    assert [get_ids(handlers) for handlers in executed] == [["parent/update"]]
    assert rules == [(cause, kopf.lifecycles.shuffled)]


async def test_causes_that_are_not_changes_are_refused(context: SubhandlingContext) -> None:
    with pytest.raises(TypeError, match="not a change"):
        await kopf.execute(fns=[do_nothing], cause=make_watching_cause({}))  # type: ignore[arg-type]
    assert executed == []


@pytest.mark.parametrize(
    "sources",
    [
        *itertools.combinations(
            {"fns": [do_nothing], "handlers": [make_changing_handler()], "registry": kopf.OperatorRegistry()}.items(), 2
        )
    ],
)
async def test_executing_two_things_at_once_is_refused(context: SubhandlingContext, sources: Any) -> None:
    with pytest.raises(TypeError, match="Only one source"):
        await kopf.execute(**dict(sources))
    assert executed == []
