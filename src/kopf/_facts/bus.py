"""
The bus: whatever an operator does or decides is a fact, and is told to those who listen: metrics, traces, the console.

Facts are records. Each room declares its own ones, in its ``…_facts.py``, and tells them where they happen:

    if bus.is_heard:
        bus.tell(PauseChanged(…))

So, when nobody listens, a fact costs a check of a flag: nothing is made for it.

Of most facts, there are many for each object. Whether anybody listens to those at all, is another flag, and the type is
asked for: ``if bus.is_followed and LookDecided in bus.heard``. A beginning that nobody listens to is still made, for
its end to refer to. Metrics do not listen to those, they have counters instead, see :mod:`kopf._facts.counters`.

Listeners are called at once, by the task in which the fact happens, before it goes on: they see the context variables
of that task, and may set them. They must be quick. They cannot fail the operator: their errors are logged, each once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from kopf._facts.counters import Counters
from kopf._values.records import FrozenRecord

logger = logging.getLogger(__name__)


class Fact(FrozenRecord, frozen=True, eq=False):
    """Something that has happened right now. Facts are told apart by their identity, so those of a pair can refer."""

    is_frequent: ClassVar[bool] = False
    """Whether there are some for each event of each object."""


F = TypeVar("F", bound=Fact)

Listener = Callable[[F], None]


class Bus:
    """Tells the facts of one operator to those who listen."""

    __slots__ = ("_complaints", "_listeners", "clock", "counters", "heard", "is_followed", "is_heard")

    def __init__(self) -> None:
        self._listeners: Mapping[type[Fact], tuple[Callable[[Any], None], ...]] = {}
        self.heard: Mapping[type[Fact], Callable[[Any], None]] = {}
        """The types of facts that anybody listens to, with what is to be called."""
        self._complaints: set[tuple[str, str]] = set()
        self.is_heard = False
        """Whether anybody listens or counts."""
        self.is_followed = False
        """Whether anybody listens to what is frequent."""
        self.counters: Counters | None = None
        """What is counted without being told."""
        self.clock: Callable[[], float] = time.perf_counter
        """The time of those facts which have one."""

    def subscribe(self, kind: type[F], listener: Listener[F]) -> None:
        """Call the listener for each fact of exactly this type, after those who have subscribed before."""
        self._set_listeners(kind, (*self._listeners.get(kind, ()), listener))

    def unsubscribe(self, kind: type[F], listener: Listener[F]) -> None:
        """Do not call it anymore."""
        self._set_listeners(kind, tuple(item for item in self._listeners.get(kind, ()) if item != listener))

    def _set_listeners(self, kind: type[Fact], listeners: tuple[Callable[[Any], None], ...]) -> None:
        self._listeners = {**self._listeners, kind: listeners}
        heard = {kind: listeners for kind, listeners in self._listeners.items() if listeners}
        self.heard = {kind: self._make_hearing(listeners) for kind, listeners in heard.items()}
        self.is_heard = bool(heard or self.counters)
        self.is_followed = any(kind.is_frequent for kind in heard)

    def count(self, counters: Counters) -> None:
        """Count from now on. There is one set of counters, as one operator has one set of metrics."""
        self.counters = counters
        self.is_heard = True

    def _make_hearing(self, listeners: tuple[Callable[[Any], None], ...]) -> Callable[[Any], None]:
        """A single listener, as is usual, is called with nothing in between: it is for every fact of every object."""

        def tell_all(fact: Fact) -> None:
            for listener in listeners:
                try:
                    listener(fact)
                except Exception as e:
                    self._complain(fact, e)

        return listeners[0] if len(listeners) == 1 else tell_all

    def tell(self, fact: Fact) -> None:
        """Call those who listen to such facts. To be called only if somebody listens at all."""
        hear = self.heard.get(type(fact))
        if hear is not None:
            try:
                hear(fact)
            except Exception as e:
                self._complain(fact, e)

    def _complain(self, fact: Fact, error: Exception) -> None:
        complaint = type(fact).__name__, repr(error)
        if complaint not in self._complaints and len(self._complaints) < _MAX_COMPLAINTS:
            self._complaints.add(complaint)
            logger.error("Who listens to %s has failed: %r", type(fact).__name__, error, exc_info=error)


_MAX_COMPLAINTS = 100
"""How many different errors of listeners are logged: they can have anything in their texts."""
