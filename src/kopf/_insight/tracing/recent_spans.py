"""What the traces remember, to be linked to what comes later: of a limited number of objects."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from opentelemetry.trace import SpanContext

K = TypeVar("K", bound=Hashable)

_MAX_SPANS = 10_000
"""How many spans are remembered of each kind: about 300 bytes each."""


class RecentSpans(Generic[K]):
    """The latest span of each key. If there are too many keys, the oldest ones are forgotten."""

    def __init__(self, limit: int = _MAX_SPANS) -> None:
        self._limit = limit
        self._spans: dict[K, SpanContext] = {}

    def note(self, key: K, span: SpanContext) -> None:
        """Remember the span as the latest one."""
        self._spans.pop(key, None)
        self._spans[key] = span
        if len(self._spans) > self._limit:
            del self._spans[next(iter(self._spans))]

    def recall(self, key: K) -> SpanContext | None:
        """Get the latest span, if it is known."""
        return self._spans.get(key)

    def forget(self, key: K) -> None:
        """Nothing is going to be linked to it."""
        self._spans.pop(key, None)


class TraceMemory:
    """The memory of one operator."""

    def __init__(self) -> None:
        self.attempts = RecentSpans[tuple[str, str]]()
        """The attempts that are to be repeated, by the objects & the handlers."""
        self.objects = RecentSpans[str]()
        """What was done last for the objects, by their uids."""
