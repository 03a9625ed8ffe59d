"""Handlers that work by themselves, but with which a reconciler cannot work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf._handlers.signatures import check_registry


@dataclasses.dataclass
class Status:
    conditions: kopf.ConditionList = dataclasses.field(default_factory=list)


class Widget(kopf.CustomResource[dict[str, Any], Status], group="kopf.dev", version="v1"):
    """Its objects have conditions."""


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return kopf.OperatorRegistry()


def list_problems(registry: kopf.OperatorRegistry) -> list[str]:
    try:
        check_registry(registry)
    except kopf.DeclarationError as e:
        return [*e.problems]
    return []


async def reconcile_fn(**_: Any) -> None: ...


async def handler_fn(**_: Any) -> None: ...


@pytest.mark.parametrize(
    ("decorator", "options", "count"),
    [
        (kopf.on.create, {"id": "one"}, 1),
        (kopf.on.update, {"id": "one"}, 1),
        (kopf.on.resume, {"id": "one"}, 1),
        (kopf.on.field, {"id": "one", "field": "spec"}, 0),  # the field is a part of the id
        (kopf.on.delete, {"id": "one"}, 0),
        (kopf.on.create, {"id": "two"}, 0),
        (kopf.on.event, {"id": "one"}, 0),
        (kopf.daemon, {"id": "one"}, 0),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_ids_of_reconcilers_are_of_nobody_else(
    registry: kopf.OperatorRegistry,
    decorator: Callable[..., Any],
    options: dict[str, Any],
    count: int,
    is_first: bool,
) -> None:
    if is_first:
        kopf.reconcile("widgets", id="one", registry=registry)(reconcile_fn)
    decorator("widgets", registry=registry, **options)(handler_fn)
    if not is_first:
        kopf.reconcile("widgets", id="one", registry=registry)(reconcile_fn)
    kopf.on.create("others", id="one", registry=registry)(handler_fn)
    problems = list_problems(registry)
    assert len(problems) == count
    place = f"test_reconciler_conflicts.py:{handler_fn.__code__.co_firstlineno}"
    for problem in problems:
        assert f"{place}: The reconciler reconcile_fn (" in problem
        assert "has the same id 'one', and would never be called. Use another id here" in problem


def test_a_function_that_reconciles_is_nothing_else(registry: kopf.OperatorRegistry) -> None:
    kopf.on.create("widgets", registry=registry)(kopf.reconcile("widgets", registry=registry)(reconcile_fn))
    assert len(list_problems(registry)) == 1


@pytest.mark.parametrize(
    ("conditions", "is_refused"),
    [
        ((None,), False),
        ((None, None), True),
        ((None, True), True),
        ((True, True), False),
        ((None, False), False),
        ((True, False), False),
        ((None, None, False), True),
    ],
)
def test_several_reconcilers_do_not_set_the_same_conditions_unless_told_so(
    registry: kopf.OperatorRegistry, conditions: tuple[bool | None, ...], is_refused: bool
) -> None:
    for number, value in enumerate(conditions):
        kopf.reconcile(Widget, id=f"fn{number}", conditions=value, registry=registry)(reconcile_fn)
    problems = [problem.rpartition(". ")[2] for problem in list_problems(registry)]
    assert problems == ["Use conditions=True for one of them, False for the others."] * is_refused


def test_reconcilers_of_what_has_no_model_say_nothing(registry: kopf.OperatorRegistry) -> None:
    for number in range(2):
        kopf.reconcile("widgets", id=f"fn{number}", registry=registry)(reconcile_fn)
    assert list_problems(registry) == []


async def async_fn(**_: Any) -> str:
    return "name"


async def generator_fn(**_: Any) -> Any:
    yield "name"


@pytest.mark.parametrize("fn", [async_fn, generator_fn])
def test_references_are_not_asynchronous(fn: Any) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"test_reconciler_conflicts\.py:\d+: .*: remove its 'async'\."):
        kopf.ref("configmaps", fn)
