"""
The backlog: what has happened, but was not thought about yet; one for all who remember what the operator does.

When an operator has little to do, each fact comes to a processor that has done something else meanwhile: the code and
the data of the listeners are not in its caches, and take several times more of its time than they would otherwise. So,
the facts are only put aside, most of them by no code of ours at all, and are thought about later, many of them
together, or when somebody asks. When they have happened, they say themselves.

They do not wait for long: facts refer to objects, errors, and whatever else is alive in the operator.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kopf._facts.bus import Bus, Fact

logger = logging.getLogger(__name__)

MAX_NOTES = 512
"""How many notes can wait."""
MAX_WEIGHT = 2**18
"""How much memory they may hold beside themselves, in bytes."""
MAX_AGE = 1.0
"""For how long a fact can wait, in seconds."""
WATCHED_AGE = 0.15
"""For how long it can wait while somebody looks, in seconds."""
_BLOCKED_AGE = 0.3
"""After how long others do not wait for the event loop of the operator to process the notes, in seconds."""
_MAX_COMPLAINTS = 100


F = TypeVar("F", bound=Fact)
_Note = tuple[float, Callable[..., None], tuple[Any, ...]]


class Backlog:
    """
    The notes, in their order. They are taken by any thread, and processed by one of them at a time.

    Large because what waits, and for how long it may, are told by the same notes.

    :param clock: tells the time in seconds since the epoch, in any thread.
    :param measure: tells the time by the clock of the facts, in seconds since any moment.
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, measure: Callable[[], float] = time.perf_counter
    ) -> None:
        self.lock = threading.RLock()
        """It is held while the notes are processed."""
        self._clock = clock
        self._measure = measure
        self._notes: collections.deque[_Note | Any] = collections.deque()  # any fact with a time
        self._weight = 0
        self._now: float | None = None
        self.stamp = 0
        """When it was noted what is processed now, in milliseconds since the epoch; 0 if nothing is."""
        self._takers: dict[type[Fact], tuple[Callable[[Any], None], ...]] = {}
        self._is_expected = False
        self.is_watched = False
        """Whether somebody looks, and wants to know soon."""
        self.on_expiry: Callable[[], None] | None = None
        """Called when what has waited is processed because of its age, in the event loop of the operator."""
        self._complaints: set[str] = set()

    @property
    def now(self) -> float:
        """When it was noted what is processed now; otherwise, the current time."""
        return self._clock() if self._now is None else self._now

    def follow(
        self, bus: Bus, kind: type[F], take: Callable[[F], None], *, is_passing: bool = False, is_heavy: bool = False
    ) -> None:
        """
        Have each fact of exactly this type taken later, by all who follow them, in the order of their following.

        It is for facts that have a time (``at``), are told in the event loop of the operator, and do not change after
        that. If they are ``is_passing``, others that are not come soon and bring them along: no code of ours is called.
        If they are ``is_heavy``, they have an object (``obj``), which can be large.
        """
        takers = self._takers.get(kind, ())
        self._takers[kind] = (*takers, take)
        if not takers:
            hear = self._hear_heavy if is_heavy else self._hear
            bus.subscribe(kind, self._notes.append if is_passing else hear)

    def note(self, process: Callable[..., None], *args: Any) -> None:
        """Have it processed later. The arguments are not to change, and are not to hold what is large or secret."""
        self._notes.append((self._measure(), process, args))
        if len(self._notes) >= MAX_NOTES:
            self.settle()

    def note_fact(self, at: float, weight: int, process: Callable[..., None], *args: Any) -> None:
        """
        The same in the event loop of the operator: it does not wait for long.

        The time is that of the fact. The weight is what the arguments hold, in bytes: they can be large.
        """
        self._notes.append((at, process, args))
        self._weight += weight
        if not self._is_expected:
            self._expect()
        if len(self._notes) >= MAX_NOTES or self._weight > MAX_WEIGHT:
            self.settle()

    def _hear_heavy(self, fact: Any) -> None:
        self._notes.append(fact)
        self._weight += fact.obj.size
        if not self._is_expected:
            self._expect()
        if len(self._notes) >= MAX_NOTES or self._weight > MAX_WEIGHT:
            self.settle()

    def _hear(self, fact: Fact) -> None:
        self._notes.append(fact)
        if not self._is_expected:
            self._expect()
        if len(self._notes) >= MAX_NOTES:
            self.settle()

    def _expect(self) -> None:
        self._is_expected = True
        asyncio.get_running_loop().call_later(WATCHED_AGE if self.is_watched else MAX_AGE, self._expire)

    def _expire(self) -> None:
        self._is_expected = False
        self.settle()
        if self.on_expiry is not None:
            self.on_expiry()

    def settle_old(self) -> None:
        """
        Process all of them if the event loop of the operator does not, as it is blocked.

        Otherwise, that one does it better: the objects are in the caches of its processor.
        """
        try:
            note = self._notes[0]
        except IndexError:
            return
        oldest = note[0] if isinstance(note, tuple) else note.at
        if self._measure() - oldest > (_BLOCKED_AGE if self.is_watched else MAX_AGE):
            self.settle()

    def settle(self) -> None:
        """Process all of them."""
        if not self._notes:
            return
        with self.lock:
            if self._now is not None:
                return  # it is asked for by one of them
            self._weight = 0
            epoch = self._clock() - self._measure()
            notes, takers = self._notes, self._takers
            try:
                while notes:
                    note = notes.popleft()
                    if isinstance(note, tuple):
                        at, process, args = note
                        self._now = now = epoch + at
                        self.stamp = int(now * 1000)
                        try:
                            process(*args)
                        except Exception as e:
                            self._complain(e)
                    else:
                        self._now = now = epoch + note.at
                        self.stamp = int(now * 1000)
                        for take in takers[type(note)]:
                            try:
                                take(note)
                            except Exception as e:
                                self._complain(e)
            finally:
                self._now = None
                self.stamp = 0

    def _complain(self, error: Exception) -> None:
        """It is not the fault of those who tell of something else right now."""
        if repr(error) not in self._complaints and len(self._complaints) < _MAX_COMPLAINTS:
            self._complaints.add(repr(error))
            logger.error("What has happened cannot be noted: %r", error, exc_info=error)
