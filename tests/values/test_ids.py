from __future__ import annotations

import functools
from typing import Any

import pytest

from kopf._values.ids import get_callable_id


def function(**_: Any) -> None: ...


class Namespace:
    def method(self, **_: Any) -> None: ...

    @staticmethod
    def static(**_: Any) -> None: ...


class Callable:
    def __call__(self, **_: Any) -> None: ...


@functools.wraps(function)
def wrapper(**kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (function, "function"),
        (Namespace().method, "Namespace.method"),
        (Namespace.static, "Namespace.static"),
        (Callable(), "Callable"),
        (wrapper, "function"),
        (functools.partial(function), "function"),
        (functools.partial(functools.partial(wrapper, a=1), b=2), "function"),
        (functools.partial(Callable()), "Callable"),
    ],
)
def test_ids_of_callables(fn: Any, expected: str) -> None:
    assert get_callable_id(fn) == expected


def test_lambdas_are_told_apart_by_their_lines_but_not_by_their_instances() -> None:
    def make() -> Any:
        return lambda **_: None

    one, two = make(), make()
    other = lambda **_: None  # noqa: E731  # this is what is tested
    assert get_callable_id(one) == get_callable_id(two)
    assert get_callable_id(one) != get_callable_id(other)
    assert get_callable_id(other).startswith("lambda:test_ids.py:")
