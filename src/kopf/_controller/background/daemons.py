"""
Daemons: functions that run once and for long, as tasks or threads, until their object is gone.

A daemon stops in stages: Kopf asks it to exit; then cancels it, if it is a coroutine and has a cancellation timeout;
then abandons it, if it still runs after the timeout. Without a timeout, Kopf waits as long as it takes.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Collection

from kopf._controller.background.runs import BackgroundRun, ObjectBackground
from kopf._controller.background.stop_signals import AsyncDaemonStopperChecker, DaemonStoppingReason
from kopf._handlers.handlers import DaemonHandler


class DaemonRun(BackgroundRun[DaemonHandler]):
    """One daemon of one object."""

    __slots__ = ("_change", "_guard", "_next_call")

    def __init__(self, background: ObjectBackground, handler: DaemonHandler) -> None:
        super().__init__(background, handler)
        self._guard: asyncio.Task[None] | None = None
        self._next_call: float | None = None
        self._change: asyncio.Event | None = None
        """Set by the next change, while the object does not fit the model of the daemon."""

    @property
    def next_call(self) -> float | None:
        return self._next_call

    def start(self, delay: float) -> None:
        name, context = f"{self.handler} of {self._background.name}", self._background.runtime.context.copy()
        self._task = asyncio.create_task(self._run(delay), name=name, context=context)

    def stop(self, reason: DaemonStoppingReason) -> None:
        already = self.stopper.is_set
        self.stopper.set(reason)
        self.notice_change()
        if not already:
            self._guard = asyncio.create_task(self._see_off(), name=f"stopping of {self.handler}")

    def notice_change(self) -> None:
        if self._change is not None:
            self._change.set()

    async def _run(self, delay: float) -> None:
        """Call the function, repeatedly if it fails temporarily, unless it must stop meanwhile."""
        logger = self._background.logger
        try:
            while not await self._sleep(delay):
                if self.handler.decoders is not None:
                    self._change = asyncio.Event()
                outcome = await self._attempt()
                if outcome.is_unfit and self._change is not None:
                    await self._change.wait()
                is_final, delay = outcome.final, outcome.delay or 0
                del outcome  # see the executor on errors and frames
                if is_final:
                    break
            if self.stopper.is_set:
                logger.debug("%s has exited on request and will not be retried or restarted.", self.handler)
        except asyncio.CancelledError:
            if not self.stopper.is_set:
                raise
            logger.debug("%s has exited by cancellation.", self.handler)
        except Exception:
            logger.exception("%s has failed because of the framework, and will not be restarted.", self.handler)
        finally:
            self._exit()

    async def _sleep(self, delay: float) -> bool:
        """Wait for the time of the next attempt; return whether there must be none."""
        if delay > 0 and not self.stopper.is_set:
            self._next_call = asyncio.get_running_loop().time() + delay
            await AsyncDaemonStopperChecker(self.stopper).wait(delay)
            self._next_call = None
        else:
            await asyncio.sleep(0)  # let others work, even if it restarts instantly and repeatedly
        return self.stopper.is_set

    async def _see_off(self) -> None:
        """Go through the stages of the stopping, until the daemon has exited or is abandoned."""
        handler, logger = self.handler, self._background.logger
        # Stages that do not exist leave no flags: then the reason is only that of the stop itself.
        if handler.cancellation_backoff is not None:
            self.stopper.set(DaemonStoppingReason.DAEMON_SIGNALLED)
        polling = handler.cancellation_polling or self._background.runtime.settings.background.cancellation_polling
        if await self._wait(handler.cancellation_backoff if handler.cancellation_backoff is not None else 0):
            return
        if handler.cancellation_timeout is None:
            while not await self._wait(polling):
                logger.warning("%s is asked to exit, but it still runs. The object waits for it.", handler)
            return
        self.stopper.set(DaemonStoppingReason.DAEMON_CANCELLED)
        if handler.is_async and self._task is not None:
            logger.debug("%s is signalled to exit by force.", handler)
            self._task.cancel()
        if not await self._wait(handler.cancellation_timeout):
            self._abandon()

    async def _wait(self, timeout: float) -> bool:
        """Wait for the exit of the daemon; return whether it has exited."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout)
        return self._task is None or self._task.done() or not self.is_running

    def _abandon(self) -> None:
        self.stopper.set(DaemonStoppingReason.DAEMON_ABANDONED)
        message = f"{self.handler} did not exit in time. Leaving it orphaned."
        self._background.logger.warning(message)
        if self._task is not None:
            orphans = self._background.orphans
            orphans[self._task] = self._background.body.object.head.key
            self._task.add_done_callback(lambda task: orphans.pop(task, None))
        if self.is_running:  # it ends for everybody else; but it is not marked as done
            self.is_running = False
            self._background.exit()
        warnings.warn(message, ResourceWarning, stacklevel=1)  # last, as users can turn warnings into errors

    def cancel(self) -> Collection[asyncio.Task[None]]:
        tasks = [task for task in (self._guard, self._task) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        return tasks
