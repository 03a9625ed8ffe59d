from __future__ import annotations

import types
from typing import Any

import pytest

from kopf import lifecycles
from tests.handlers.builders import make_changing_handler

ONE, TWO, THREE = HANDLERS = [make_changing_handler(id) for id in ("one", "two", "three")]


def make_state(*retries: int) -> dict[Any, Any]:
    return {handler.id: types.SimpleNamespace(retries=n) for handler, n in zip(HANDLERS, retries, strict=True)}


def call(lifecycle: Any, handlers: Any = HANDLERS, retries: tuple[int, ...] = (0, 0, 0)) -> list[Any]:
    return list(lifecycle(list(handlers), state=make_state(*retries), body={}, spec={}, reason="create"))


@pytest.mark.parametrize(
    "lifecycle",
    [lifecycles.all_at_once, lifecycles.one_by_one, lifecycles.randomized, lifecycles.shuffled, lifecycles.asap],
)
def test_nothing_is_chosen_of_nothing(lifecycle: Any) -> None:
    assert call(lifecycle, []) == []


def test_randomized() -> None:
    chosen = [call(lifecycles.randomized) for _ in range(200)]
    assert {len(handlers) for handlers in chosen} == {1}
    assert {handlers[0] for handlers in chosen} == set(HANDLERS)


def test_shuffled() -> None:
    chosen = [call(lifecycles.shuffled) for _ in range(200)]
    assert all(set(handlers) == set(HANDLERS) for handlers in chosen)
    assert len({tuple(handlers) for handlers in chosen}) > 1


@pytest.mark.parametrize(
    ("retries", "expected"),
    [
        ((0, 0, 0), ONE),
        ((1, 0, 0), TWO),
        ((1, 1, 0), THREE),
        ((1, 1, 1), ONE),
        ((5, 3, 4), TWO),
    ],
)
def test_as_soon_as_possible_is_for_the_least_retried_one(retries: tuple[int, ...], expected: Any) -> None:
    assert call(lifecycles.asap, retries=retries) == [expected]
