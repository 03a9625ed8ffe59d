"""
Budgets: how much may be tried.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Budget:
    """How many runs there may be, and how many seconds of the real time they may take together; none for no limit."""

    runs: int | None = None
    seconds: float | None = None

    def spend(self, items: Iterable[T]) -> Iterator[T]:
        """Give the items while there is something to spend; at least one of them."""
        began = time.monotonic()
        for count, item in enumerate(items):
            if self.runs is not None and count >= self.runs:
                return
            if count and self.seconds is not None and time.monotonic() - began >= self.seconds:
                return
            yield item
