"""
Background: the functions that accompany an object for as long as it exists, i.e. its daemons and timers.

They are kept for every object by the ids of the handlers. They see the object through a live body: its content is replaced
with every event. A function that has exited on its own or has failed for good is remembered, so that it is not started
again, until the object stops matching its filters, or the operator restarts.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kopf._client.patching import PatchConflict, patch_object
from kopf._handlers.causes import Kwargs, ResourceCause
from kopf._handlers.context import executing
from kopf._handlers.handlers import SpawningHandler
from kopf._handlers.invocation import invoke
from kopf._handlers.outcomes import Attempt, Outcome, execute_once
from kopf._reactor.environment import Environment
from kopf._reactor.stopping import DaemonStopper, DaemonStoppingReason
from kopf._settings.logs import ObjectLogger
from kopf._settings.settings import iter_delays
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch, thaw
from kopf._values.resources import Resource


class Companion:
    """
    What accompanies one object: everything that its daemons & timers share.

    Its ``on_exit`` is called whenever any of them has exited.
    """

    __slots__ = ("__weakref__", "body", "changed_at", "env", "logger", "memo", "on_exit", "resource", "runs")

    def __init__(
        self, env: Environment, resource: Resource, obj: KubeObject, on_exit: Callable[[KubeObject], None]
    ) -> None:
        self.env = env
        self.resource = resource
        self.body = Body(obj)
        self.memo = env.memos.recall(obj.head.uid)
        self.logger = ObjectLogger(body=self.body, settings=env.settings)
        self.runs: dict[str, BackgroundRun] = {}
        self.on_exit = on_exit
        self.changed_at = asyncio.get_running_loop().time()

    def refresh(self, obj: KubeObject) -> None:
        """Show the new state of the object in the live body."""
        if obj.head.resourceVersion != self.body.object.head.resourceVersion:
            self.changed_at = asyncio.get_running_loop().time()
            self.body._replace_with(obj)
            for run in self.runs.values():
                run.notice_change()

    def exit(self) -> None:
        """One of the runs has exited."""
        self.on_exit(self.body.object)

    @property
    def is_running(self) -> bool:
        """Whether any of the runs has not exited yet."""
        return any(run.is_running for run in self.runs.values())


class BackgroundRun:
    """One daemon or timer of one object. The descendants know when to call the function."""

    __slots__ = ("_companion", "_handler", "_retries", "_started", "_unsent", "is_running", "stopper")

    def __init__(self, companion: Companion, handler: SpawningHandler) -> None:
        self._companion = companion
        self._handler = handler
        self._retries = 0
        self._started: datetime.datetime | None = None
        self._unsent: Patch | None = None
        self.stopper = DaemonStopper()
        self.is_running = True

    def start(self, delay: float) -> None:
        """Begin in so many seconds."""
        raise NotImplementedError

    def stop(self, reason: DaemonStoppingReason) -> None:
        """Ask it to stop, and see to it that it does."""
        raise NotImplementedError

    def notice_change(self) -> None:
        """The object has changed."""

    def _make_kwargs(self) -> Kwargs:
        """The specific kwargs of this kind of handlers."""
        return {}

    async def _attempt(self) -> Outcome:
        """Call the function once, and bring its patch & result to the object."""
        companion, env = self._companion, self._companion.env
        now = env.clock.now()
        self._started = self._started or now
        attempt = Attempt(retry=self._retries, started=self._started, runtime=now - self._started)
        patch = self._unsent if self._unsent is not None else Patch(body=companion.body)
        cause = self._make_cause(patch)
        kwargs = {
            "retry": attempt.retry,
            "started": attempt.started,
            "runtime": attempt.runtime,
            **self._make_kwargs(),
            **cause.kwargs_for(self._handler),
        }

        async def call() -> Any:
            with executing(companion.body):
                return await invoke(self._handler, kwargs, executor=env.settings.execution.executor)

        outcome = await execute_once(
            self._handler,
            attempt,
            call,
            logger=companion.logger,
            default_backoff=env.settings.execution.default_backoff,
        )
        self._retries = 0 if outcome.final else self._retries + 1
        self._started = None if outcome.final else self._started
        if outcome.result is not None:
            patch.status[self._handler.id] = thaw(outcome.result)
        await self._deliver(patch)
        return outcome

    def _make_cause(self, patch: Patch) -> ResourceCause:
        companion = self._companion
        return ResourceCause(
            logger=companion.logger,
            memo=companion.memo,
            indices=companion.env.indices,
            resource=companion.resource,
            body=companion.body,
            patch=patch,
        )

    async def _deliver(self, patch: Patch) -> None:
        """Patch the object; in case of a conflict, on its fresh state; in case of errors, as long as it takes."""
        if not patch:
            return
        self._unsent = patch
        companion, env = self._companion, self._companion.env
        delays = iter(iter_delays(env.settings.queueing.error_delays))
        delay = 0.0
        while True:
            try:
                obj = await patch_object(
                    env.api, companion.resource, companion.body.object, patch, logger=companion.logger
                )
            except Exception as e:
                delay = next(delays, delay)
                log = companion.logger.debug if isinstance(e, PatchConflict) else companion.logger.error
                log("%s could not patch the object, and will try again in %s seconds: %s", self._handler, delay, e)
                await asyncio.sleep(delay)
            else:
                self._unsent = None
                if obj is not None:
                    companion.refresh(obj)
                return

    def _exit(self) -> None:
        """Note that it does not run anymore."""
        if self.is_running:
            self.is_running = False
            self.stopper.set(DaemonStoppingReason.DONE)
            self._companion.exit()


RunFactory = Callable[[Companion, SpawningHandler], BackgroundRun]


class Background:
    """All daemons & timers of the objects of one resource."""

    def __init__(
        self,
        env: Environment,
        resource: Resource,
        factories: Mapping[type[SpawningHandler], RunFactory],
        on_exit: Callable[[KubeObject], None],
    ) -> None:
        self._env = env
        self._resource = resource
        self._factories = factories
        self._on_exit = on_exit
        self._companions: dict[str, Companion] = {}
        self._stopping: set[Companion] = set()

    def refresh(self, obj: KubeObject) -> None:
        """Show the new state of the object to those who accompany it, if there are any."""
        companion = self._companions.get(obj.head.uid)
        if companion is not None:
            companion.refresh(obj)

    def is_running(self, uid: str) -> bool:
        """Whether anything accompanies the object right now."""
        companion = self._companions.get(uid)
        return companion is not None and companion.is_running

    def match(self, cause: ResourceCause, handlers: Sequence[SpawningHandler], *, initial: bool) -> None:
        """Start those of the matching handlers that were not started yet; stop those that do not match anymore."""
        obj = cause.body.object
        companion = self._companions.get(obj.head.uid)
        if companion is None:
            if not handlers:
                return
            companion = self._companions[obj.head.uid] = Companion(self._env, self._resource, obj, self._on_exit)
        matching = {handler.id for handler in handlers}
        for key, run in list(companion.runs.items()):
            if key not in matching:
                if run.is_running:
                    run.stop(DaemonStoppingReason.FILTERS_MISMATCH)
                else:
                    del companion.runs[key]  # so that it is started anew when it matches again
        for handler in handlers:
            if handler.id not in companion.runs:
                run = companion.runs[handler.id] = self._factories[type(handler)](companion, handler)
                run.start(self._get_delay(handler, cause, initial=initial))
        if not companion.runs:
            del self._companions[obj.head.uid]

    def _get_delay(self, handler: SpawningHandler, cause: ResourceCause, *, initial: bool) -> float:
        if callable(handler.initial_delay):
            return float(handler.initial_delay(**cause.kwargs_for(handler)) or 0)
        return handler.initial_delay or 0.0

    def stop_all_of(self, uid: str, reason: DaemonStoppingReason) -> None:
        """Stop all that accompanies the object."""
        companion = self._companions.get(uid)
        if companion is not None:
            _stop(companion.runs.values(), reason)

    def forget(self, uid: str) -> None:
        """Stop all that accompanies an object that exists no more."""
        companion = self._companions.pop(uid, None)
        if companion is not None:
            _stop(companion.runs.values(), DaemonStoppingReason.RESOURCE_DELETED)
            if companion.is_running:
                self._stopping.add(companion)

    async def stop(self, reason: DaemonStoppingReason) -> None:
        """Stop everything, and wait until it has exited, was cancelled, or is abandoned."""
        companions = [*self._companions.values(), *self._stopping]
        self._companions.clear()
        for companion in companions:
            _stop(companion.runs.values(), reason)
        while any(companion.is_running for companion in companions):
            await asyncio.sleep(0.01)


def _stop(runs: Iterable[BackgroundRun], reason: DaemonStoppingReason) -> None:
    for run in runs:
        if run.is_running:
            run.stop(reason)
