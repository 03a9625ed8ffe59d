"""
Batches: the facts are only put aside when they happen, and are counted later, many at once.

In the middle of something else, the code that counts is never in the caches of the processor, so it takes three times
more than in a row. The batches are small, as facts keep objects in memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kopf._facts.bus import Bus, Fact

_SIZE = 256
"""How many facts are kept at most, until they are counted, or until somebody scrapes: those of about 20 objects."""


class Batches:
    """Tells the facts of one bus to another one, late, with the time when they have happened."""

    def __init__(self, target: Bus, clock: Callable[[], float]) -> None:
        self.late = target
        """Tells the facts when they are counted."""
        self._clock = clock
        self._waiting: deque[tuple[float, Fact]] = deque()  # its methods are safe in threads
        self._lock = threading.Lock()
        self._time: float | None = None

    def follow(self, source: Bus, kinds: Iterable[type[Fact]]) -> None:
        """Tell what is told there."""
        for kind in kinds:
            source.subscribe(kind, self._take)

    def get_time(self) -> float:
        """Tell when the fact has happened that is told right now; in between, tell the time."""
        return self._clock() if self._time is None else self._time

    def _take(self, fact: Fact) -> None:
        waiting = self._waiting
        waiting.append((self._clock(), fact))
        if len(waiting) >= _SIZE:
            with self.settled():
                pass

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Have everything told that has happened, and nothing more inside of the block; in any thread."""
        with self._lock:
            waiting, tell = self._waiting, self.late.tell
            for _ in range(len(waiting)):
                self._time, fact = waiting.popleft()
                tell(fact)
            self._time = None
            yield
