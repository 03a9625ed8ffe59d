"""Deferred values: made when somebody looks at them, as mostly nobody does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kopf._values.records import FrozenRecord


class Deferred(FrozenRecord, frozen=True):
    """In the place of a value: how to make it."""

    make: Callable[[], Any]
