from __future__ import annotations

from typing import Any

import pytest

from kopf._events.correlation import EventBudgets, TokenBucket
from kopf._settings.settings import PostingSettings

UNLIMITED = {"object_burst": 10_000, "total_burst": 10_000}


def make_budgets(**settings: Any) -> EventBudgets:
    return EventBudgets(PostingSettings(**{**UNLIMITED, **settings}))


def count(budgets: EventBudgets, now: float, *, obj: str = "obj", is_explicit: bool = True) -> int:
    """Count how many calls out of many are possible at once."""
    return sum(budgets.spend(obj, now, is_explicit=is_explicit) for _ in range(50))


@pytest.mark.parametrize(
    ("burst", "is_explicit", "expected"),
    [
        (1, True, 1),
        (1, False, 1),
        (10, True, 10),
        (10, False, 5),
        (11, False, 6),
        (50, True, 50),
        (50, False, 25),
    ],
)
@pytest.mark.parametrize("scope", ["object", "total"])
def test_bursts(scope: str, burst: int, is_explicit: bool, expected: int) -> None:
    assert count(make_budgets(**{f"{scope}_burst": burst}), 0, is_explicit=is_explicit) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0, 0), (9.9, 0), (10, 1), (25, 2), (1000, 3), (-1000, 0)])
@pytest.mark.parametrize("scope", ["object", "total"])
def test_refilling(scope: str, seconds: float, expected: int) -> None:
    budgets = make_budgets(**{f"{scope}_burst": 3, f"{scope}_rate": 0.1})
    assert count(budgets, 1000) == 3
    assert count(budgets, 1000 + seconds) == expected


def test_objects_have_budgets_of_their_own() -> None:
    budgets = make_budgets(object_burst=3)
    assert [count(budgets, 0, obj=obj) for obj in ("a", "b", "a")] == [3, 3, 0]


def test_the_operator_has_one_for_all() -> None:
    budgets = make_budgets(total_burst=3)
    assert [count(budgets, 0, obj=obj) for obj in ("a", "b")] == [3, 0]


def test_what_is_not_possible_takes_nothing_from_the_others() -> None:
    budgets = make_budgets(object_burst=1, total_burst=4)
    assert count(budgets, 0, obj="a") == 1  # and 49 times not
    assert [count(budgets, 0, obj=obj) for obj in ("b", "c", "d", "e")] == [1, 1, 1, 0]


def test_buckets_are_never_fuller_than_the_burst() -> None:
    bucket = TokenBucket(2, now=0)
    bucket.refill(rate=1, burst=5, now=2)
    assert bucket.tokens == 4
    bucket.refill(rate=1, burst=5, now=100)
    assert bucket.tokens == 5
