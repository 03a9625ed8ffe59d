"""Callbacks: functions that are given to the decorators & settings, beside the handlers; what is said if they fail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from kopf._values.functions import describe_function


class CallbackError(Exception):
    """A callback has failed; the text says which one, of whom, and where it is; the cause says why."""


class FilterError(CallbackError):
    """A callback of a filter has failed, so it is unknown whether the handler is for the object."""


def explain(callback: Callable[..., Any], place: str, error: Exception) -> str:
    """Say which callback has failed, with the ``place`` where it was given, in words."""
    return f"The callback {describe_function(callback)} in {place} has failed: {type(error).__name__}: {error}"


@contextlib.contextmanager
def explaining(callback: Callable[..., Any], place: str) -> Iterator[None]:
    """Turn any error into :class:`CallbackError`."""
    try:
        yield
    except Exception as e:
        raise CallbackError(explain(callback, place, e)) from e
