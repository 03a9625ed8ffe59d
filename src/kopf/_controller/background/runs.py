"""
Background: the functions that accompany an object for as long as it exists, i.e. its daemons and timers.

They are kept for every object by the ids of the handlers. They see the object through a live body: its content is
replaced with every event. A function that has exited on its own or has failed for good is remembered, so that it is
not started again, until the operator restarts.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import datetime
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from kopf._client.errors import APIError, APINetworkError, APIServerError, APITooManyRequestsError
from kopf._client.resources.patching import PatchConflict, patch_object
from kopf._controller.background.stopping import (
    AsyncDaemonStopperChecker,
    DaemonStopper,
    DaemonStoppingReason,
    SyncDaemonStopperChecker,
)
from kopf._controller.own_writes import is_newer
from kopf._controller.runtime import Runtime
from kopf._handlers.causes import ResourceCause
from kopf._handlers.context import executing
from kopf._handlers.handlers import SpawningHandler
from kopf._handlers.invocation import invoke
from kopf._handlers.outcomes import Attempt, Outcome, deliver_result, execute_once
from kopf._logging.logs import ObjectLogger
from kopf._settings.settings import iter_delays
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.resources import Resource

_PASSING_REASONS = DaemonStoppingReason.FILTERS_MISMATCH | DaemonStoppingReason.OPERATOR_PAUSING

_CANCELLATION_TIMEOUT = 0.5
"""How long the cancelled leftovers may take to exit, in seconds."""


class Companion:
    """
    What accompanies one object: everything that its daemons & timers share.

    Its ``on_exit`` is called whenever any of them has exited.
    """

    __slots__ = (
        "body",
        "changed_at",
        "is_gone",
        "logger",
        "memo",
        "on_exit",
        "orphans",
        "resource",
        "runs",
        "runtime",
    )

    def __init__(
        self,
        runtime: Runtime,
        resource: Resource,
        obj: KubeObject,
        on_exit: Callable[[Companion], None],
        orphans: set[asyncio.Task[None]],
    ) -> None:
        self.runtime = runtime
        self.orphans = orphans
        self.resource = resource
        self.body = Body(obj.for_users())
        self.memo = runtime.memos.recall(obj.head.uid)
        runtime.memos.pin(obj.head.uid)
        self.is_gone = False
        self.logger = ObjectLogger(body=self.body, settings=runtime.settings)
        self.runs: dict[str, BackgroundRun] = {}
        self.on_exit = on_exit
        self.changed_at = asyncio.get_running_loop().time()

    def refresh(self, obj: KubeObject) -> None:
        """Show the new state of the object in the live body."""
        version, current = obj.head.resourceVersion, self.body.object.head.resourceVersion
        if version != current and not (self.runtime.comparable_versions and is_newer(current, version)):
            self.changed_at = asyncio.get_running_loop().time()
            self.body._replace_with(obj.for_users())
            for run in self.runs.values():
                run.notice_change()

    @property
    def name(self) -> str:
        """The name of the object for the debugging."""
        head = self.body.object.head
        return f"{head.namespace}/{head.name}" if head.namespace else head.name

    def exit(self) -> None:
        """One of the runs has exited."""
        self.on_exit(self)

    @property
    def is_running(self) -> bool:
        """Whether any of the runs has not exited yet."""
        return any(run.is_running for run in self.runs.values())


class BackgroundRun(abc.ABC):
    """One daemon or timer of one object. The descendants know when to call the function."""

    __slots__ = ("_companion", "_handler", "_retries", "_started", "is_running", "stopper")

    def __init__(self, companion: Companion, handler: SpawningHandler) -> None:
        self._companion = companion
        self._handler = handler
        self._retries = 0
        self._started: datetime.datetime | None = None
        self.stopper = DaemonStopper()
        self.is_running = True

    @property
    def handler(self) -> SpawningHandler:
        """What it runs."""
        return self._handler

    @property
    def is_to_be_restarted(self) -> bool:
        """Whether it has exited only because the object did not match, or the operator was paused, for some time."""
        reason = self.stopper.reason
        return not self.is_running and reason is not None and bool(reason & _PASSING_REASONS)

    @abc.abstractmethod
    def start(self, delay: float) -> None:
        """Begin in so many seconds."""

    @abc.abstractmethod
    def stop(self, reason: DaemonStoppingReason) -> None:
        """Ask it to stop, and see to it that it does."""

    def notice_change(self) -> None:  # noqa: B027  # daemons do not care: they see the live body
        """The object has changed."""

    @abc.abstractmethod
    def cancel(self) -> Collection[asyncio.Task[None]]:
        """Cancel whatever is left of it, as the operator itself cannot wait any longer; give what was cancelled."""

    async def _attempt(self) -> Outcome:
        """Call the function once, and bring its patch & result to the object."""
        companion, runtime = self._companion, self._companion.runtime
        now = runtime.clock.now()
        self._started = self._started or now
        attempt = Attempt(retry=self._retries, started=self._started, runtime=now - self._started)
        patch = Patch(body=companion.body)
        cause = self._make_cause(patch)
        checker = AsyncDaemonStopperChecker if self._handler.is_async else SyncDaemonStopperChecker
        kwargs = {
            "retry": attempt.retry,
            "started": attempt.started,
            "runtime": attempt.runtime,
            "stopped": checker(self.stopper),
            **cause.kwargs_for(self._handler),
        }

        async def call() -> Any:
            with executing(companion.body):
                return await invoke(self._handler, kwargs, execution=runtime.settings.execution)

        outcome = await execute_once(
            self._handler,
            attempt,
            call,
            logger=companion.logger,
            default_backoff=runtime.settings.execution.default_backoff,
        )
        self._retries = 0 if outcome.final else self._retries + 1
        self._started = None if outcome.final else self._started
        deliver_result(self._handler, outcome, patch, logger=companion.logger)
        await self._deliver(patch)
        return outcome

    def _make_cause(self, patch: Patch) -> ResourceCause:
        companion = self._companion
        return ResourceCause(
            logger=companion.logger,
            memo=companion.memo,
            indices=companion.runtime.indices,
            resource=companion.resource,
            body=companion.body,
            patch=patch,
        )

    async def _deliver(self, patch: Patch) -> None:
        """
        Patch the object: in case of a conflict, on its fresh state; in case of passing problems, as long as they last.

        What the API refuses is dropped. If the run is asked to stop meanwhile, there is only one attempt left.
        """
        companion, runtime = self._companion, self._companion.runtime
        delays = iter(iter_delays(runtime.settings.queueing.error_delays))
        delay = 0.0
        is_last = False
        while patch and not companion.is_gone:
            try:
                obj = await patch_object(
                    runtime.api, companion.resource, companion.body.object, patch, logger=companion.logger
                )
            except (PatchConflict, APIServerError, APITooManyRequestsError, APINetworkError) as e:
                if is_last:
                    companion.logger.error("%s exits with its patch not applied: %s", self._handler, e)
                    return
                delay = next(delays, delay)
                log = companion.logger.debug if isinstance(e, PatchConflict) else companion.logger.error
                log("%s could not patch the object, and will try again in %s seconds: %s", self._handler, delay, e)
                is_last = self.stopper.is_set or await AsyncDaemonStopperChecker(self.stopper).wait(delay)
            except Exception as e:
                text = "%s has made a patch that cannot be applied, it is lost: %s"
                companion.logger.error(text, self._handler, e, exc_info=None if isinstance(e, APIError) else e)
                return
            else:
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
        runtime: Runtime,
        resource: Resource,
        make_run: RunFactory,
        on_exit: Callable[[KubeObject], None],
    ) -> None:
        self._runtime = runtime
        self._resource = resource
        self._make_run = make_run
        self._on_exit = on_exit
        self._companions: dict[str, Companion] = {}
        self._leaving: set[Companion] = set()
        self._orphans: set[asyncio.Task[None]] = set()
        self._exits = asyncio.Event()

    def refresh(self, obj: KubeObject) -> None:
        """Show the new state of the object to those who accompany it, if there are any."""
        companion = self._companions.get(obj.head.uid)
        if companion is not None:
            companion.refresh(obj)

    def relax(self, uid: str) -> None:
        """The object is not handled at the moment: let it take as little memory as it can."""
        companion = self._companions.get(uid)
        if companion is not None:
            companion.body.object.forget_values()

    def is_running(self, uid: str) -> bool:
        """Whether anything accompanies the object right now."""
        companion = self._companions.get(uid)
        return companion is not None and companion.is_running

    def is_over(self, uid: str, handler: SpawningHandler) -> bool:
        """Whether the handler has run for the object, and will not run again until the operator restarts."""
        companion = self._companions.get(uid)
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
        companion = self._companions.get(obj.head.uid)
        if companion is None:
            if not handlers:
                return
            companion = self._companions[obj.head.uid] = Companion(
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
                run = companion.runs[handler.id] = self._make_run(companion, handler)
                run.start(delay)

    def stop_all_of(self, uid: str, reason: DaemonStoppingReason) -> None:
        """Stop all that accompanies the object."""
        companion = self._companions.get(uid)
        if companion is not None:
            _stop(companion.runs.values(), reason)

    def pause(self) -> None:
        """Stop everything; nothing is started then, as the objects are not looked at."""
        for companion in self._companions.values():
            _stop(companion.runs.values(), DaemonStoppingReason.OPERATOR_PAUSING)

    def resume(self) -> None:
        """Look at all those objects again: what was stopped by the pause, is to be started anew."""
        for companion in [*self._companions.values()]:
            self._on_exit(companion.body.object.for_users())

    def forget(self, uid: str) -> None:
        """Stop all that accompanies an object that exists no more."""
        companion = self._companions.pop(uid, None)
        if companion is not None:
            companion.is_gone = True
            _stop(companion.runs.values(), DaemonStoppingReason.RESOURCE_DELETED)
            if companion.is_running:
                self._leaving.add(companion)

    def _handle_exit(self, companion: Companion) -> None:
        self._exits.set()
        if self._leaving and not companion.is_running:
            self._leaving.discard(companion)
        if not companion.is_gone:
            self._on_exit(companion.body.object.for_users())

    async def stop(self, reason: DaemonStoppingReason, timeout: float) -> None:
        """Stop everything, and wait until it has exited or is abandoned; after the timeout (seconds), cancel it."""
        companions = [*self._companions.values(), *self._leaving]
        self._companions.clear()
        for companion in companions:
            _stop(companion.runs.values(), reason)
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


def _get_delay(handler: SpawningHandler, cause: ResourceCause) -> float:
    if callable(handler.initial_delay):
        return float(handler.initial_delay(**cause.kwargs_for(handler)) or 0)
    return handler.initial_delay or 0.0


def _stop(runs: Iterable[BackgroundRun], reason: DaemonStoppingReason) -> None:
    for run in runs:
        if run.is_running:
            run.stop(reason)
