from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest

from kopf._values.user_functions import describe_function


def fn(*_: Any, **__: Any) -> None: ...


def decorate(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    return wrapper


class Callback:
    def __call__(self, **_: Any) -> None: ...

    def method(self, **_: Any) -> None: ...


FN = fn.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("described", "name", "line"),
    [
        (fn, "fn", FN),
        (functools.partial(fn, 1), "fn", FN),
        (functools.partial(functools.partial(fn, 1), 2), "fn", FN),
        (decorate(fn), "fn", FN),
        (functools.partial(decorate(decorate(fn)), 1), "fn", FN),
        (Callback(), "Callback.__call__", Callback.__call__.__code__.co_firstlineno),
        (Callback().method, "Callback.method", Callback.method.__code__.co_firstlineno),
    ],
)
def test_functions_are_described_with_their_places(described: Any, name: str, line: int) -> None:
    assert describe_function(described) == f"{name} ({__file__}:{line})"


def test_lambdas_are_described_with_their_places() -> None:
    description = describe_function(lambda **_: None)
    assert re.fullmatch(rf".*\.<locals>\.<lambda> \({re.escape(__file__)}:\d+\)", description)


@pytest.mark.parametrize(
    ("described", "name"),
    [
        (print, "print"),
        (dict, "dict"),
        (functools.partial(int, base=2), "int"),
    ],
)
def test_functions_that_are_not_written_in_python_have_no_places(described: Any, name: str) -> None:
    assert describe_function(described) == name
