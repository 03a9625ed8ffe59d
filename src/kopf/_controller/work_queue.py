"""
The work queue: which keys to work on now, which ones later, and how many at once.

It knows nothing of what the keys stand for, and starts nothing itself: workers take the keys, and tell when they are
done. A key is never with two workers at once: if it is added meanwhile, the same worker goes on with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable
from typing import Any, Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


class Alarm(Protocol):
    """A call that was scheduled for later; see :class:`asyncio.Handle`."""

    def cancel(self) -> None:
        """Do not call it."""


class CallAt(Protocol):
    """How to schedule a call; see :meth:`asyncio.loop.call_at`."""

    def __call__(self, when: float, callback: Callable[..., Any], /, *args: Any) -> Alarm:
        """Call it at that time of the same clock."""


class WorkQueue(Generic[K]):
    """
    The keys that wait for a worker: the urgent ones first, each kind in the order of its addition.

    ``has_room`` tells whether there can be one more worker besides so many, and so many exempt ones; ``is_barred``, if
    a key is given to no worker for now: it is dropped then, to be added again later. ``on_due`` is called with the key
    and the planned time when a time set by :meth:`set_alarm` has come; ``call_at`` is the one of the event loop.

    Large because a key is in it in three ways: it waits for a worker, for a time, or is worked on.
    """

    def __init__(
        self,
        *,
        has_room: Callable[[int, int], bool],
        on_due: Callable[[K, float], None],
        call_at: CallAt,
        is_barred: Callable[[K], bool] = lambda key: False,
    ) -> None:
        self._has_room = has_room
        self._is_barred = is_barred
        self._lanes = _Lanes[K]()
        self.waiting: Collection[K] = self._lanes.entries
        """The keys that wait for a worker."""
        self.active: dict[K, bool] = {}  # whether each one was added again meanwhile
        """The keys that are with workers."""
        self.exempt = 0
        """How many of the keys that are worked on do not count."""
        self._alarms = _Alarms[K](on_due, call_at)
        self.planned: Collection[K] = self._alarms.entries
        """The keys that wait for their time."""
        self.is_held = False
        """Whether nothing is given to workers for now, or for ever."""
        self.is_closed = False
        """Whether it is over."""

    def __len__(self) -> int:
        """How many keys are in the queue: waiting for a worker, for a time, or being worked on."""
        return len({*self.waiting, *self.active, *self.planned})

    def add(self, key: K, *, urgent: bool = True) -> bool:
        """
        Have the key worked on as soon as possible. If it waits already, it can only become more urgent.

        Tell if it has neither waited nor been worked on.
        """
        if key in self.active:
            self.active[key] = True
            return False
        return not self.is_closed and self._lanes.add(key, urgent=urgent)

    def set_alarm(self, key: K, when: float | None) -> None:
        """Have the callback called for the key at this time, instead of any other time for this key, or never."""
        if not self.is_closed and (when is not None or key in self.planned):
            self._alarms.set(key, when)

    def is_active(self, key: K) -> bool:
        """Tell if the key is with a worker."""
        return key in self.active

    def get_position(self, key: K) -> int | None:
        """Tell how many keys are taken before this one, if it waits for a worker; it takes as long as they are many."""
        return self._lanes.get_position(key)

    def take(self) -> K | None:
        """Take the next key to work on; ``None`` if there is none, or no more can be worked on now."""
        if self.is_held or not self.waiting or not self._has_room(len(self.active) - self.exempt, self.exempt):
            return None
        while self.waiting:
            key = self._lanes.pop()
            if not self._is_barred(key):
                self.active[key] = False
                return key
        return None

    def renew(self, key: K) -> bool:
        """Tell the worker, who has done all that it knew of, if there is more: the key was added again meanwhile."""
        if self.is_held or not self.active[key] or self._is_barred(key):
            return False
        self.active[key] = False
        return True

    def done(self, key: K) -> None:
        """Take the key back from its worker. If it was added again, it waits for another one."""
        if self.active.pop(key):
            self.add(key)

    def discard(self, key: K) -> None:
        """Forget the key: neither its time comes, nor its turn."""
        self._lanes.entries.pop(key, None)
        self._alarms.set(key, None)

    def hold(self) -> None:
        """Give nothing to workers until released. Everything else goes on: the keys are added, the alarms go off."""
        self.is_held = True

    def release(self) -> None:
        """Give the keys to workers again."""
        self.is_held = self.is_closed

    def close(self) -> None:
        """Forget all waiting keys, for good. Workers finish their current keys as usual."""
        self.is_held = self.is_closed = True
        self._lanes.clear()
        self._alarms.clear()


class _Lanes(Generic[K]):
    """Two queues. When a key becomes urgent, its entry in the other one is void, and is skipped."""

    def __init__(self) -> None:
        self.entries: dict[K, tuple[K, bool]] = {}
        self._urgent: deque[tuple[K, bool]] = deque()
        self._others: deque[tuple[K, bool]] = deque()

    def add(self, key: K, *, urgent: bool) -> bool:
        known = self.entries.get(key)
        if known is None or (urgent and not known[1]):
            entry = self.entries[key] = (key, urgent)
            (self._urgent if urgent else self._others).append(entry)
        return known is None

    def pop(self) -> K:
        """Get the next one; there must be any."""
        while True:
            entry = (self._urgent or self._others).popleft()
            if self.entries.get(entry[0]) is entry:
                del self.entries[entry[0]]
                return entry[0]

    def get_position(self, key: K) -> int | None:
        if (entry := self.entries.get(key)) is None:
            return None
        valid = (item for item in (*self._urgent, *self._others) if self.entries.get(item[0]) is item)
        return next(number for number, item in enumerate(valid) if item is entry)

    def clear(self) -> None:
        self.entries.clear()
        self._urgent.clear()
        self._others.clear()


class _Alarms(Generic[K]):
    """
    At most one alarm for a key, with the time that was asked for.

    Not all event loops can tell it: the calls of ``uvloop`` are at whole milliseconds, or at no time if it has come.
    """

    def __init__(self, on_due: Callable[[K, float], None], call_at: CallAt) -> None:
        self._on_due = on_due
        self._call_at = call_at
        self.entries: dict[K, tuple[float, Alarm]] = {}

    def set(self, key: K, when: float | None) -> None:
        entry = self.entries.get(key)
        if entry is not None:
            if entry[0] == when:
                return
            entry[1].cancel()
            del self.entries[key]
        if when is not None:
            self.entries[key] = (when, self._call_at(when, self._go_off, key, when))

    def _go_off(self, key: K, when: float) -> None:
        del self.entries[key]
        self._on_due(key, when)

    def clear(self) -> None:
        for _, alarm in self.entries.values():
            alarm.cancel()
        self.entries.clear()
