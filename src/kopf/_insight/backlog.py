"""
The backlog: notices that are not processed yet. The history and the journal of decisions share it.

When an operator has little to do, the code and the data of the observers are not in the caches of the processor when a
notice comes, and so take several times more time. Therefore, the backlog is an observer that only puts the notices
aside. It passes them to its own observers later, many at once, or when they are needed.

The notices do not wait for long: they refer to objects, errors, and other things that are alive in the operator.
"""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kopf._controller.observer import Observer, Observers, Tell

MAX_NOTES = 512
"""How many notes can wait."""
MAX_WEIGHT = 2**18
"""How much memory their arguments may hold, in bytes."""
MAX_AGE = 1.0
"""For how long a note can wait, in seconds."""
WATCHED_AGE = 0.15
"""For how long a note can wait while a page of the console is open, in seconds."""
_BLOCKED_AGE = 0.3
"""For how long other threads wait for the event loop of the operator to process the notes, in seconds."""

_Note = tuple[float, Callable[..., None], tuple[Any, ...]]


class Backlog(Observers):
    """
    The notes, in their order. Any thread can add them; one thread at a time processes them.

    While a note is processed, ``clock`` and ``now`` return the time when it was made.

    Large because the notes and their waiting times belong together.

    :param observers: the observers of the operator. The backlog is one of them once it has observers of its own.
    :param get_timestamp: returns the time in seconds since the epoch, in any thread.
    """

    def __init__(self, observers: Observers | None = None, get_timestamp: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._source = Observers() if observers is None else observers
        self.lock = threading.RLock()
        """It is held while the notes are processed."""
        self._get_timestamp = get_timestamp
        self._notes: collections.deque[_Note] = collections.deque()
        self._weight = 0
        self._at: float | None = None
        self._now: float | None = None
        self.stamp = 0
        """When the note was made that is processed now, in milliseconds since the epoch; 0 if none is processed."""
        self.clock = self._get_time
        self._is_expected = False
        self.is_watched = False
        """Whether a page of the console is open, so that notes must not wait for long."""
        self.on_expiry: Callable[[], None] | None = None
        """Called when notes are processed because of their age, in the event loop of the operator."""

    @property
    def now(self) -> float:
        """When the note was made that is processed now, in seconds since the epoch; otherwise, the current time."""
        return self._get_timestamp() if self._now is None else self._now

    def _get_time(self) -> float:
        return self._source.clock() if self._at is None else self._at

    def _set(self, observers: Iterable[Observer]) -> None:
        super()._set(observers)
        self._source.remove(self)
        self._source.add(self)

    def _combine(self, name: str, methods: Sequence[Tell]) -> Tell:
        """Make a note of each call, in the event loop of the operator."""
        tell, is_heavy = super()._combine(name, methods), name == "object_seen"
        source, notes = self._source, self._notes

        def note(*args: Any) -> None:
            notes.append((source.clock(), tell, args))
            if is_heavy:
                self._weight += args[-1].size
            if not self._is_expected or len(notes) >= MAX_NOTES or self._weight > MAX_WEIGHT:
                self._expect()

        return note

    def note(self, process: Callable[..., None], *args: Any) -> None:
        """Process it later, in any thread. The arguments must not change, and must not be large or secret."""
        self._notes.append((self._source.clock(), process, args))
        if len(self._notes) >= MAX_NOTES:
            self.settle()

    def note_heavy(self, weight: int, process: Callable[..., None], *args: Any) -> None:
        """
        Process it soon, in the event loop of the operator.

        The weight is the memory that the arguments hold, in bytes: they can be large.
        """
        self._notes.append((self._source.clock(), process, args))
        self._weight += weight
        self._expect()

    def _expect(self) -> None:
        """Schedule the processing; or do it now if there are too many notes."""
        if not self._is_expected:
            self._is_expected = True
            asyncio.get_running_loop().call_later(WATCHED_AGE if self.is_watched else MAX_AGE, self._expire)
        if len(self._notes) >= MAX_NOTES or self._weight > MAX_WEIGHT:
            self.settle()

    def _expire(self) -> None:
        self._is_expected = False
        self.settle()
        if self.on_expiry is not None:
            self.on_expiry()

    def settle_old(self) -> None:
        """
        Process all notes if the event loop of the operator does not, as it is blocked.

        Otherwise, that event loop does it faster: the objects are in the caches of its processor.
        """
        try:
            oldest = self._notes[0][0]
        except IndexError:
            return
        if self._source.clock() - oldest > (_BLOCKED_AGE if self.is_watched else MAX_AGE):
            self.settle()

    def settle(self) -> None:
        """Process all notes."""
        if not self._notes:
            return
        with self.lock:
            if self._now is not None:
                return  # one of the notes has called this
            self._weight = 0
            epoch, notes = self._get_timestamp() - self._source.clock(), self._notes
            try:
                while notes:
                    self._at, process, args = notes.popleft()
                    self._now = epoch + self._at
                    self.stamp = int(self._now * 1000)
                    try:
                        process(*args)
                    except Exception as e:
                        self._complain("the backlog", e)
            finally:
                self._at = self._now = None
                self.stamp = 0
