"""
Spawning: which daemons & timers run for which objects of a resource, and when they begin and end.

They are kept for every object by the ids of the handlers. A function that has exited on its own or has failed for good
is remembered, so that it is not started again, until the operator restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from kopf._controller.background.daemons import DaemonRun
from kopf._controller.background.runs import BackgroundRun, Companion
from kopf._controller.background.stopping import DaemonStoppingReason
from kopf._controller.background.timers import TimerRun
from kopf._controller.runtime import Runtime
from kopf._handlers.causes import ResourceCause
from kopf._handlers.handlers import DaemonHandler, SpawningHandler, TimerHandler
from kopf._values.callbacks import explaining
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

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
        self.companions: dict[str, Companion] = {}
        """Those of the objects that exist, by the keys of the objects."""
        self._leaving: set[Companion] = set()
        self._orphans: set[asyncio.Task[None]] = set()
        self._exits = asyncio.Event()

    def refresh(self, obj: KubeObject) -> None:
        """Show the new state of the object to those who accompany it, if there are any."""
        companion = self.companions.get(obj.head.key)
        if companion is not None:
            companion.refresh(obj)

    def release_memory(self, uid: str) -> None:
        """The object is not handled at the moment: let it take as little memory as it can."""
        companion = self.companions.get(uid)
        if companion is not None:
            companion.body.object.forget_values()

    def is_running(self, uid: str, *, blocking: bool = False) -> bool:
        """Whether anything accompanies the object right now; if ``blocking``, with what is not optional only."""
        companion = self.companions.get(uid)
        if companion is None or not blocking:
            return companion is not None and companion.is_running
        return any(run.is_running and run.handler.requires_finalizer for run in companion.runs.values())

    def is_over(self, uid: str, handler: SpawningHandler) -> bool:
        """Whether the handler has run for the object, and will not run again until the operator restarts."""
        companion = self.companions.get(uid)
        run = companion.runs.get(handler.id) if companion is not None else None
        return run is not None and not run.is_running and not run.is_to_be_restarted

    def match(
        self,
        cause: ResourceCause,
        handlers: Sequence[SpawningHandler],
        *,
        unknown: Collection[str] = (),
    ) -> None:
        """
        Start those of the matching handlers that were not started yet; stop those that do not match anymore.

        Those whose ids are ``unknown`` are neither started nor stopped.
        """
        obj = cause.body.object
        companion = self.companions.get(obj.head.key)
        if companion is None:
            if not handlers:
                return
            companion = self.companions[obj.head.key] = Companion(
                self._runtime, self._resource, obj, self._handle_exit, self._orphans
            )
        matching = {handler.id for handler in handlers}
        for key, run in companion.runs.items():
            if key not in matching and key not in unknown and run.is_running:
                run.stop(DaemonStoppingReason.FILTERS_MISMATCH)
        for handler in handlers:
            previous = companion.runs.get(handler.id)
            if previous is None or previous.is_to_be_restarted:
                delay = _get_delay(handler, cause)  # it is the users' code, and can fail
                run = companion.runs[handler.id] = _make_run(companion, handler)
                run.start(delay)

    def stop_all_of_deleted(self, uid: str) -> None:
        """Stop all that accompanies the object, as it is being deleted."""
        companion = self.companions.get(uid)
        if companion is not None:
            _stop(companion.runs.values(), DaemonStoppingReason.RESOURCE_DELETED)

    def pause(self) -> None:
        """Stop everything; nothing is started then, as the objects are not looked at."""
        for companion in self.companions.values():
            _stop(companion.runs.values(), DaemonStoppingReason.OPERATOR_PAUSING)

    def resume(self) -> None:
        """Look at all those objects again: what was stopped by the pause, is to be started anew."""
        for companion in [*self.companions.values()]:
            self._on_exit(companion.body.object.for_users())

    def forget(self, uid: str) -> None:
        """Stop all that accompanies an object that exists no more."""
        companion = self.companions.pop(uid, None)
        if companion is not None:
            companion.is_gone = True
            _stop([*companion.runs.values()], DaemonStoppingReason.RESOURCE_DELETED)
            if not companion.let_go():
                self._leaving.add(companion)

    def _handle_exit(self, companion: Companion) -> None:
        self._exits.set()
        if not companion.is_gone:
            self._on_exit(companion.body.object.for_users())
        elif companion.let_go():
            self._leaving.discard(companion)

    async def stop(self, timeout: float) -> None:
        """The operator exits: stop everything, and wait for it; after the timeout (in seconds), cancel what is left."""
        companions = [*self.companions.values(), *self._leaving]
        self.companions.clear()
        for companion in companions:
            _stop(companion.runs.values(), DaemonStoppingReason.OPERATOR_EXITING)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                running = [run for companion in companions for run in companion.runs.values()]
                while running := [run for run in running if run.is_running]:
                    self._exits.clear()
                    await self._exits.wait()
        leftovers = [(companion, run) for companion in companions for run in companion.runs.values()]
        for companion, run in leftovers:
            if run.is_running:
                companion.logger.warning("The operator exits, but does not wait for %s anymore.", run.handler)
        tasks = [task for _, run in leftovers for task in run.cancel()]
        for task in self._orphans:
            task.cancel()
        tasks += self._orphans
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCELLATION_TIMEOUT)


def _make_run(companion: Companion, handler: SpawningHandler) -> BackgroundRun[Any]:
    match handler:
        case DaemonHandler():
            return DaemonRun(companion, handler)
        case TimerHandler():
            return TimerRun(companion, handler)
    raise TypeError(f"{handler} is neither a daemon nor a timer.")


def _get_delay(handler: SpawningHandler, cause: ResourceCause) -> float:
    if callable(handler.initial_delay):
        with explaining(handler.initial_delay, f"initial_delay= of {handler}"):
            return float(handler.initial_delay(**cause.kwargs_for(handler)) or 0)
    return handler.initial_delay or 0.0


def _stop(runs: Iterable[BackgroundRun[Any]], reason: DaemonStoppingReason) -> None:
    for run in runs:
        if run.is_running:
            run.stop(reason)
