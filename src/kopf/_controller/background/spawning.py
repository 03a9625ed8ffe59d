"""
Spawning: which daemons and timers run for which objects of a resource, and when they begin and end.

Each object keeps them by the ids of their handlers. It remembers functions that have exited on their own or have failed
for good, so that they do not start again until the operator restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from kopf._controller.background.daemons import DaemonRun
from kopf._controller.background.runs import BackgroundRun, ObjectBackground
from kopf._controller.background.stop_signals import DaemonStoppingReason
from kopf._controller.background.timers import TimerRun
from kopf._controller.pausing import Covers
from kopf._controller.runtime import Runtime
from kopf._handlers.causes import ResourceCause
from kopf._handlers.handlers import DaemonHandler, SpawningHandler, TimerHandler
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource
from kopf._values.user_functions import explaining

_CANCELLATION_TIMEOUT = 0.5
"""How long the cancelled leftovers may take to exit, in seconds."""


class Background:
    """All daemons & timers of the objects of one resource."""

    def __init__(
        self,
        runtime: Runtime,
        resource: Resource,
        on_exit: Callable[[KubeObject], None],
    ) -> None:
        self._runtime = runtime
        self._resource = resource
        self._on_exit = on_exit
        self.objects: dict[ObjectBackground, None] = {}
        """The backgrounds of existing objects, and of gone objects with anything still running."""
        self._orphans: dict[asyncio.Task[None], str] = {}
        self._exits = asyncio.Event()

    def begin(self, obj: KubeObject) -> ObjectBackground:
        """Make the background of an object that has none yet."""
        background = ObjectBackground(self._runtime, self._resource, obj, self._handle_exit, self._orphans)
        self.objects[background] = None
        return background

    def match(
        self,
        background: ObjectBackground,
        cause: ResourceCause,
        handlers: Sequence[SpawningHandler],
        *,
        unknown: Collection[str] = (),
    ) -> None:
        """
        Start matching handlers that have not started yet; stop handlers that do not match anymore.

        The ``unknown`` ids are of handlers with failed filters: they neither start nor stop.
        """
        matching = {handler.id for handler in handlers}
        for key, run in background.runs.items():
            if key not in matching and key not in unknown and run.is_running:
                run.stop(DaemonStoppingReason.FILTERS_MISMATCH)
        for handler in handlers:
            previous = background.runs.get(handler.id)
            if previous is None or previous.is_to_be_restarted:
                delay = _get_delay(handler, cause)  # the users' code can fail
                run = background.runs[handler.id] = _make_run(background, handler)
                run.start(delay)

    def pause(self) -> None:
        """Stop everything; nothing starts during the pause, because there are no passes."""
        for background in [*self.objects]:
            if not background.is_gone:
                background.stop(DaemonStoppingReason.OPERATOR_PAUSING)

    def resume(self) -> None:
        """Request a pass over each object, to start again everything that the pause has stopped."""
        for background in [*self.objects]:
            if not background.is_gone:
                self._on_exit(background.body.object.for_users())

    def forget(self, background: ObjectBackground) -> None:
        """Stop everything of an object that does not exist anymore."""
        background.is_gone = True
        background.stop_as_deleted()
        if background.let_go():
            self.objects.pop(background, None)

    def _handle_exit(self, background: ObjectBackground) -> None:
        self._exits.set()
        if not background.is_gone:
            self._on_exit(background.body.object.for_users())
        elif background.let_go():
            self.objects.pop(background, None)

    async def stop(self, timeout: float) -> None:
        """Stop everything at the exit, and wait; after the timeout (in seconds), cancel the rest."""
        objects = [*self.objects]
        self.objects.clear()
        for background in objects:
            background.stop(DaemonStoppingReason.OPERATOR_EXITING)
        await self._see_off(objects, self._orphans, timeout, "The operator exits, but does not wait for %s anymore.")

    async def leave(self, covers: Covers, timeout: float, *, is_urgent: bool) -> None:
        """
        Wait for the covered objects, which are handed over and already stopping; after the timeout, cancel the rest.

        Unless it is urgent, functions in threads go on, since they cannot be cancelled.
        """
        objects = [item for item in self.objects if covers(item.body.object.head.key)]
        orphans = [task for task, key in self._orphans.items() if covers(key)]
        text = "The object is handed over, and %s is not waited for anymore."
        await self._see_off(objects, orphans, timeout, text, spares_threads=not is_urgent)

    def list_running(self) -> list[str]:
        """List the keys of the objects with anything still running."""
        keys = [item.body.object.head.key for item in self.objects if item.has_running()]
        return [*keys, *self._orphans.values()]

    def let_go(self, background: ObjectBackground) -> None:
        """Forget an object that belongs to another replica now."""
        background.is_gone = True
        self.objects.pop(background, None)

    async def _see_off(
        self,
        objects: Sequence[ObjectBackground],
        orphans: Collection[asyncio.Task[None]],
        timeout: float,
        text: str,
        *,
        spares_threads: bool = False,
    ) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                running = [run for background in objects for run in background.runs.values()]
                while running := [run for run in running if run.is_running]:
                    self._exits.clear()
                    await self._exits.wait()
        leftovers = [
            (background, run)
            for background in objects
            for run in background.runs.values()
            if not (spares_threads and run.is_in_thread)
        ]
        for background, run in leftovers:
            if run.is_running:
                background.logger.warning(text, run.handler)
        tasks = [task for _, run in leftovers for task in run.cancel()]
        for task in orphans:
            task.cancel()
        tasks += orphans
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCELLATION_TIMEOUT)


def _make_run(background: ObjectBackground, handler: SpawningHandler) -> BackgroundRun[Any]:
    match handler:
        case DaemonHandler():
            return DaemonRun(background, handler)
        case TimerHandler():
            return TimerRun(background, handler)
    raise TypeError(f"{handler} is neither a daemon nor a timer.")


def _get_delay(handler: SpawningHandler, cause: ResourceCause) -> float:
    if callable(handler.initial_delay):
        with explaining(handler.initial_delay, f"initial_delay= of {handler}"):
            kwargs = cause.kwargs_for(handler)
            try:
                cause.decode(handler, handler.initial_delay, kwargs)
            except ModelMismatchError:  # it waits until the object fits, without a delay
                return 0.0
            return float(handler.initial_delay(**kwargs) or 0)
    return handler.initial_delay or 0.0
