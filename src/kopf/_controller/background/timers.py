"""
Timers: functions that run repeatedly on a schedule, as long as their object exists.

Between the runs, a timer is only an entry in the event loop: neither a task nor a thread. It never overlaps with
itself: the next run is scheduled after the previous one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection

from kopf._controller.background.runs import BackgroundRun, ObjectBackground
from kopf._controller.background.stop_signals import DaemonStoppingReason
from kopf._handlers.attempts import Outcome
from kopf._handlers.handlers import TimerHandler


class TimerRun(BackgroundRun[TimerHandler]):
    """One timer of one object."""

    __slots__ = ("_is_changed", "_is_waiting_for_change", "_planned", "_tick")

    def __init__(self, background: ObjectBackground, handler: TimerHandler) -> None:
        super().__init__(background, handler)
        self._tick: asyncio.Handle | None = None
        self._is_waiting_for_change = False
        self._is_changed = False
        """Whether the object has changed since the beginning of the latest run, even if no time has passed."""
        self._planned = 0.0
        """
        The planned time of the current or the next run, by the clock of the event loop.

        Not all event loops keep it: the calls of ``uvloop`` are at whole milliseconds, or have no time at all.
        """

    @property
    def next_call(self) -> float | None:
        if self._tick is None or self.stopper.is_set:
            return None
        idle = self.handler.idle
        return self._planned if idle is None else max(self._planned, self._background.changed_at + idle)

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its next call."""
        return self.is_running and self._task is None

    def stop(self, reason: DaemonStoppingReason) -> None:
        self.stopper.set(reason)
        if self._tick is not None:
            self._tick.cancel()
        if self._task is None:
            self._exit()  # otherwise, it is done after the current run

    def notice_change(self) -> None:
        self._is_changed = True
        if self._is_waiting_for_change and not self.stopper.is_set:
            self._is_waiting_for_change = False
            self.start(0)

    def call_early(self) -> None:
        if self._task is not None:
            self._task.add_done_callback(lambda _: self.call_early())
        elif self._tick is not None and not self.stopper.is_set:
            self._tick.cancel()
            self.start(0)

    def start(self, delay: float) -> None:
        loop = asyncio.get_running_loop()
        if self.handler.idle is not None:
            # The idle time begins with the last change; later changes can still move it.
            delay = max(delay, self._background.changed_at + self.handler.idle - loop.time())
        self._planned = loop.time() + delay
        # Not in the context of the previous run: it would stay in memory while the timer waits.
        context = self._background.runtime.context
        if delay > 0:
            self._tick = loop.call_at(self._planned, self._begin, context=context)
        else:  # as at the start for each object: avoid the heap of all timers
            self._tick = loop.call_soon(self._begin, context=context)

    def _begin(self) -> None:
        self._tick = None
        if self.handler.idle is not None:
            left = self._background.changed_at + self.handler.idle - asyncio.get_running_loop().time()
            if left > 0:
                self.start(left)
                return
        name, context = f"{self.handler} of {self._background.name}", self._background.runtime.context.copy()
        self._task = asyncio.create_task(self._run(), name=name, context=context)

    async def _run(self) -> None:
        self._is_changed = False
        try:
            outcome = await self._attempt()
        except asyncio.CancelledError:
            self._exit()
            raise
        except Exception:
            self._background.logger.exception(
                "%s has failed because of the framework, and is stopped until the restart.", self.handler
            )
            self._exit()
            return
        self._task = None
        self._background.body.object.forget_values()
        self._plan_next(outcome)
        del outcome  # see the executor on errors and frames

    def _plan_next(self, outcome: Outcome) -> None:
        """Decide when to run again: by the error, if any; otherwise, by the schedule of the timer."""
        if self.stopper.is_set or (outcome.final and outcome.exception is not None):
            self._exit()
        elif outcome.is_unfit:
            self._wait_for_change()
        elif not outcome.final:
            self.start(outcome.delay or 0)
        elif self.handler.interval is None and self.handler.idle is None:
            self._exit()  # it runs once
        elif self.handler.interval is None:
            self._wait_for_change()
        else:
            # Sharp timers count from the plan, not from the actual beginning, which is a bit late; or even early in
            # event loops that round the time: then the elapsed time is negative, and the same plan is not made again.
            elapsed = asyncio.get_running_loop().time() - self._planned if self.handler.sharp else 0
            interval = self.handler.interval
            self.start(interval - math.fmod(elapsed, interval) if interval else 0)

    def _wait_for_change(self) -> None:
        """Wait for a change: idle timers without an interval run once each time when the object calms down."""
        if self._is_changed:
            self.start(0)
        else:
            self._is_waiting_for_change = True

    def cancel(self) -> Collection[asyncio.Task[None]]:
        if self._task is None or self._task.done():
            return ()
        self._task.cancel()
        return (self._task,)
