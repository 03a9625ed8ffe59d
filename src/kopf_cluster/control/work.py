"""
The queue of what the control loops have to do: one piece after another, soon after the change that has caused it.

No object can end the control loops: whatever fails is logged, and is tried again later, while all the rest goes on.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Callable, Hashable
from typing import Final

from kopf_cluster import sessions, statuses
from kopf_cluster.store.storage import Change

logger = logging.getLogger("kopf.cluster")

# How many pieces are done in a row before the others on the event loop get their turn.
_TURN: Final = 20

# When to try again what depends on others, or has failed, in seconds; twice as late with every further failure.
_RETRY: Final = 1.0
_MAX_RETRY: Final = 1000.0  # as in kube-controller-manager


class WorkQueue:
    """Pieces of work in the order of arrival; a piece that already waits is not queued twice."""

    def __init__(self) -> None:
        self._pieces: collections.OrderedDict[Hashable, Callable[[], None]] = collections.OrderedDict()
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._failures: collections.Counter[Hashable] = collections.Counter()
        self._wakeup = asyncio.Event()

    def add(self, name: Hashable, piece: Callable[[], None]) -> None:
        self._pieces.setdefault(name, piece)
        self._wakeup.set()

    def add_later(self, delay: float, name: Hashable, piece: Callable[[], None]) -> None:
        """Queue the piece after so many seconds by the loop's clock. A piece that is planned already, is not moved."""
        if name not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(delay, self._add_planned, name, piece)

    def _add_planned(self, name: Hashable, piece: Callable[[], None]) -> None:
        del self._timers[name]
        self.add(name, piece)

    async def close(self) -> None:
        """Forget what is planned for later, and what is being asked."""
        for task in self._questions:
            task.cancel()
        if self._questions:
            await asyncio.wait(self._questions)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def run(self) -> None:
        """Do the work until cancelled."""
        while True:
            await self._wakeup.wait()
            for _ in range(_TURN):
                if not self._pieces:
                    self._wakeup.clear()
                    break
                name, piece = self._pieces.popitem(last=False)
                try:
                    self._do(name, piece)
                except sessions.Unresolved as unresolved:
                    self._ask(name, piece, unresolved)
            await asyncio.sleep(0)

    def _ask(self, name: Hashable, piece: Callable[[], None], unresolved: sessions.Unresolved) -> None:
        """Do the piece again when there is the answer for it; try it later if there is none."""

        async def ask() -> None:
            try:
                await unresolved.ask()
            except statuses.APIStatus as error:
                logger.warning("A control loop was not answered at %r: %s", name, error.message)
                self.add_later(_RETRY, name, piece)
            else:
                self.add(name, piece)

        task = asyncio.create_task(ask(), name=f"question of the control loops at {name!r}")
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    def _do(self, name: Hashable, piece: Callable[[], None]) -> None:
        try:
            piece()
        except statuses.APIStatus as error:
            logger.warning("A control loop was refused at %r: %s", name, error.message)
        except Exception:  # the other pieces must be done anyway
            delay = min(_RETRY * 2 ** min(self._failures[name], 10), _MAX_RETRY)
            logger.exception("A control loop has failed at %r, and tries again in %g seconds", name, delay)
            self._failures[name] += 1
            self.add_later(delay, name, piece)
        else:
            self._failures.pop(name, None)


def supervised(observer: Callable[[str, Change], None]) -> Callable[[str, Change], None]:
    """Let the observer see the changes, and fail at some of them with no harm to those who write, or to the others."""

    def observe(bucket: str, change: Change) -> None:
        try:
            observer(bucket, change)
        except Exception:
            logger.exception("A control loop has failed to see a change of %s %r", bucket, change.record.key)

    return observe
