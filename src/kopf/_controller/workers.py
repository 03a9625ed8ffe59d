"""
Workers: tasks that exist only while there is something to do, as many as the settings permit.

Objects whose coroutines wait in the users' code do not count, unless the limit is set explicitly; neither do objects
whose functions have been running in threads for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager
from types import TracebackType

from kopf._controller.pausing import Covers
from kopf._controller.runtime import Runtime
from kopf._controller.work_queue import WorkQueue
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

_SOFT_LIMIT = 50
"""How many objects are handled at once without a limit in the settings, besides those in the users' code."""

_FEW = 1000
"""How many objects can wait for workers while more are listed."""

_CATCHING_UP = 1.0
"""How long a page of a listing can wait for workers, in seconds: listings expire if they are not read soon."""

_CYCLES = 3
"""The number of cycles of the event loop in which workers certainly proceed, unless they wait for anything."""

_SAVING_EXIT_TIMEOUT = 5.0
"""How long the saving of results may take when the operator exits, in seconds."""


def has_room(runtime: Runtime, active: int, in_user_code: int) -> bool:
    """Tell if one more object of a resource can be handled now, besides so many."""
    limit = runtime.settings.queueing.worker_limit
    if limit is not None:
        return active + in_user_code < limit
    return active < _SOFT_LIMIT or active < _SOFT_LIMIT + runtime.executor.threads.extra_slots


def get_limit(runtime: Runtime) -> int:
    """Return how many objects of a resource can be handled at once, as one number."""
    limit = runtime.settings.queueing.worker_limit
    return _SOFT_LIMIT if limit is None else limit


class Workers:
    """The workers of one queue. None is started until the indices are ready."""

    def __init__(
        self, runtime: Runtime, resource: Resource, queue: WorkQueue[str], work: Callable[[str], Awaitable[None]]
    ) -> None:
        self._runtime = runtime
        self._resource = resource
        self._name = f"worker of {resource!r}"
        self._queue = queue
        self._work = work
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_waiting_for_indices = False
        self.user_code = UserCode(queue, self.wake)
        """Surrounds the execution of a user's coroutine."""
        runtime.executor.threads.usage.subscribe(self.wake)

    def wake(self) -> None:
        """Start as many workers as there are keys to work on, and as allowed."""
        if not self._queue.waiting:
            return
        if not self._runtime.index_readiness.is_open:
            if not self._is_waiting_for_indices:
                self._is_waiting_for_indices = True
                self._runtime.index_readiness.call_when_open(self._go_on)
            return
        loop = asyncio.get_running_loop()
        while self._queue.waiting and (key := self._queue.take()) is not None:
            context = self._runtime.context.copy()
            self._tasks[key] = loop.create_task(self._run(key), name=self._name, context=context)

    def _go_on(self) -> None:
        self._is_waiting_for_indices = False
        self.wake()

    async def _run(self, key: str) -> None:
        self._runtime.observer.work_begun(self._resource, key)
        try:
            await self._work(key)
        except Exception:
            logger.critical("The %s has failed; this is a bug of the framework.", self._name, exc_info=True)
        finally:
            self._runtime.observer.work_ended(self._resource, key)
            del self._tasks[key]
            self._queue.done(key)
            self.wake()

    def go_on(self, key: str) -> bool:
        """
        Let the cancelled worker of the key go on, unless the operator itself has cancelled it; return whether it does.

        Handlers can cancel their own tasks: usually by a library for timeouts that comes too late with it.
        """
        task, root = self._tasks[key], self._runtime.task
        # The fence interrupts workers without a request to cancel them.
        if self._queue.is_closed or self._runtime.pause.is_held(key) or not task.cancelling():
            return False
        if root is not None and (root.done() or root.cancelling()):  # asyncio.run() cancels all tasks when it ends
            return False
        while task.uncancel():
            pass
        return True

    async def catch_up(self) -> None:
        """
        Let the workers proceed before more objects are listed, as long as they do not wait for anything.

        Most listed objects need nothing. Without this, all of them would be in memory at once.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CATCHING_UP
        waiting = self._queue.waiting
        while (left := len(waiting)) > _FEW and loop.time() < deadline:
            for _ in range(_CYCLES):
                await asyncio.sleep(0)
            if len(waiting) >= left:
                return

    async def settle(self, timeout: float, covers: Covers = lambda key: True) -> None:
        """Wait until the current workers (of the covered keys) end; for so many seconds at most."""
        await _wait([task for key, task in self._tasks.items() if covers(key)], timeout)

    async def stop(self, *, is_saving: Callable[[str], bool]) -> None:
        """
        Wait for the workers for a reasonable time, then cancel them.

        Workers that save results get more time: otherwise, the handlers would be called again.
        """
        timeout = self._runtime.settings.queueing.exit_timeout
        self._runtime.executor.threads.usage.unsubscribe(self.wake)
        await _wait(self._tasks.values(), timeout)
        await self._cancel(self._tasks, is_saving)

    async def leave(self, covers: Covers, timeout: float, *, is_saving: Callable[[str], bool] | None) -> None:
        """
        Do the same for some keys; wait for so many seconds at most until they are cancelled.

        Workers that wait for functions in threads, which cannot be cancelled, go on. With no ``is_saving``, nothing is
        saved, and these are cancelled, too.
        """
        tasks = {key: task for key, task in self._tasks.items() if covers(key)}
        await _wait(tasks.values(), timeout)
        if is_saving is None:
            await self._cancel(tasks, lambda key: False)
        else:
            is_occupied = self._runtime.executor.threads.is_occupied_by
            await self._cancel({key: task for key, task in tasks.items() if not is_occupied(task)}, is_saving)

    async def _cancel(self, tasks: Mapping[str, asyncio.Task[None]], is_saving: Callable[[str], bool]) -> None:
        timeout = self._runtime.settings.queueing.exit_timeout
        for key, task in tasks.items():
            if not is_saving(key):
                task.cancel()
        await _wait(tasks.values(), timeout)
        savers = [task for key, task in tasks.items() if is_saving(key)]
        await _wait(savers, max(0.0, _SAVING_EXIT_TIMEOUT - timeout))
        for task in tasks.values():
            task.cancel()
        await _wait(tasks.values(), timeout)


class UserCode(AbstractContextManager[None]):
    """
    A context of the users' code: objects that wait in it make room for others, unless the limit is set explicitly.

    All workers of a queue share it, also at the same time.
    """

    __slots__ = ("_queue", "_wake")

    def __init__(self, queue: WorkQueue[str], wake: Callable[[], None]) -> None:
        self._queue = queue
        self._wake = wake

    def __enter__(self) -> None:
        self._queue.exempt += 1
        if self._queue.waiting:
            self._wake()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._queue.exempt -= 1


async def _wait(tasks: Collection[asyncio.Task[None]], timeout: float) -> None:
    if tasks:
        await asyncio.wait([*tasks], timeout=timeout)
