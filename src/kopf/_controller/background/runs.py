"""
Runs: the functions that accompany an object for as long as it exists, i.e. its daemons and timers.

They see the object through a live body: every event replaces its content. The runs deliver their changes of the object
despite passing problems.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from kopf._client.errors import APIConflictError, APINetworkError, APIServerError, APITooManyRequestsError
from kopf._client.resources.patching import PatchConflict, patch_object
from kopf._controller.background.stop_signals import (
    AsyncDaemonStopperChecker,
    DaemonStopper,
    DaemonStoppingReason,
    SyncDaemonStopperChecker,
)
from kopf._controller.error_texts import describe_error
from kopf._controller.runtime import Runtime
from kopf._handlers.attempts import Outcome, deliver_result
from kopf._handlers.causes import BackgroundCause
from kopf._handlers.handlers import SpawningHandler
from kopf._handlers.retry_policy import Retries
from kopf._logging.loggers import ObjectLogger
from kopf._settings.settings import iter_delays
from kopf._values.bodies import Body
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.resources import Resource, is_newer

H = TypeVar("H", bound=SpawningHandler)

_CONFLICTS = (PatchConflict, APIConflictError)
"""The latter is for patches without a version: the server has tried in vain to put them into a busy object."""

_PASSING_REASONS = (
    DaemonStoppingReason.FILTERS_MISMATCH
    | DaemonStoppingReason.OPERATOR_PAUSING
    | DaemonStoppingReason.RESOURCE_HANDED_OVER
)


class ObjectBackground:
    """
    The background of one object: its daemons & timers, and all that they share.

    ``on_exit`` is called whenever one of them has exited.

    Large because there can be one for each object of the cluster, and several smaller ones would take more memory.
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
        on_exit: Callable[[ObjectBackground], None],
        orphans: dict[asyncio.Task[None], str],
    ) -> None:
        self.runtime = runtime
        self.orphans = orphans
        self.resource = resource
        self.body = Body(obj.for_users())
        self.memo = runtime.memos.recall(obj.head.key, pinned=True)
        self.is_gone = False
        self.logger = ObjectLogger(body=self.body, settings=runtime.settings)
        self.runs: dict[str, BackgroundRun[Any]] = {}
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
        """The name of the object for debugging."""
        head = self.body.object.head
        return f"{head.namespace}/{head.name}" if head.namespace else head.name

    def call_early(self, handlers: Collection[HandlerId]) -> None:
        """Call the timers among the handlers as soon as possible, before their time."""
        for handler in handlers:
            if (run := self.runs.get(handler)) is not None:
                run.call_early()

    def exit(self) -> None:
        """Accept that a run has exited."""
        self.on_exit(self)

    def has_running(self, *, blocking: bool = False) -> bool:
        """Tell if any of them has not exited yet; with ``blocking``, any that is not optional."""
        return any(run.is_running and (not blocking or run.handler.requires_finalizer) for run in self.runs.values())

    @property
    def is_to_go_on(self) -> bool:
        """Whether any of them has exited and must start again."""
        return any(run.is_to_be_restarted for run in self.runs.values())

    def is_over(self, handler: SpawningHandler) -> bool:
        """Tell if the handler has run for the object, and will not run again until the operator restarts."""
        run = self.runs.get(handler.id)
        return run is not None and not run.is_running and not run.is_to_be_restarted

    def stop_as_deleted(self) -> None:
        """Ask all of them to exit, because the object is being deleted, or is gone."""
        self.stop(DaemonStoppingReason.RESOURCE_DELETED)

    def stop_as_handed_over(self) -> None:
        """Ask all of them to exit, because another replica will handle the object."""
        self.stop(DaemonStoppingReason.RESOURCE_HANDED_OVER)

    def stop(self, reason: DaemonStoppingReason) -> None:
        """Ask all of them to exit."""
        for run in [*self.runs.values()]:
            if run.is_running:
                run.stop(reason)

    def let_go(self) -> bool:
        """
        Drop the runs of a gone object if all of them have exited; return whether they have.

        They refer to this object. Free the memory now: garbage collection is rare.
        """
        if self.has_running():
            return False
        self.runs.clear()
        return True


class BackgroundRun(abc.ABC, Generic[H]):
    """
    One daemon or timer of one object. The subclasses know when to call the function.

    Large because it is the common interface of both, to start, stop, wake, and describe them.
    """

    __slots__ = ("_background", "_task", "handler", "is_running", "retries", "stopper")

    def __init__(self, background: ObjectBackground, handler: H) -> None:
        self._background = background
        self._task: asyncio.Task[None] | None = None
        self.handler = handler
        self.retries = Retries()
        """The failed attempts in a row."""
        self.stopper = DaemonStopper()
        self.is_running = True

    @property
    def is_to_be_restarted(self) -> bool:
        """Whether it has exited for a passing reason: the filters, a pause, or a move to another replica."""
        reason = self.stopper.reason
        return not self.is_running and reason is not None and bool(reason & _PASSING_REASONS)

    @property
    def is_in_thread(self) -> bool:
        """Whether its function runs in a thread now; known only if the operator has replicas."""
        return self._task is not None and self._background.runtime.executor.threads.is_occupied_by(self._task)

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its next call; unknown for daemons."""
        return False

    @property
    @abc.abstractmethod
    def next_call(self) -> float | None:
        """The time of the next call, by the clock of the event loop; ``None`` if it runs, or this is unknown."""

    @abc.abstractmethod
    def start(self, delay: float) -> None:
        """Start in so many seconds."""

    @abc.abstractmethod
    def stop(self, reason: DaemonStoppingReason) -> None:
        """Ask it to stop, and make sure that it does."""

    def call_early(self) -> None:
        """Call a timer as soon as possible; if it is running, once more afterwards."""

    def notice_change(self) -> None:  # daemons see the live body
        """Accept that the object has changed."""

    @abc.abstractmethod
    def cancel(self) -> Collection[asyncio.Task[None]]:
        """Cancel all of its tasks, because the operator cannot wait any longer; return these tasks."""

    async def _attempt(self) -> Outcome:
        """Call the function once, and deliver its patch and result to the object."""
        runtime, cause = self._background.runtime, self._make_cause()
        attempt = self.retries.begin(runtime.clock.now())
        outcome = await runtime.executor.execute(self.handler, cause, attempt)
        if not outcome.is_unfit:
            self.retries.note(outcome)
        deliver_result(self.handler, outcome, cause.patch)
        if cause.patch:
            await self._deliver(cause.patch)
        try:
            return outcome
        finally:
            del outcome  # see the executor on errors and frames

    async def _deliver(self, patch: Patch) -> None:
        """
        Patch the object: after a conflict, in its fresh state; after passing problems, as long as they last.

        Drop what the API refuses. If the handler is asked to stop meanwhile, only one attempt is left.
        """
        background, handler = self._background, self.handler
        runtime, logger = background.runtime, background.logger
        delays = iter(iter_delays(runtime.settings.queueing.error_delays))
        delay = 0.0
        is_last = False
        while patch and not background.is_gone:
            try:
                obj = await patch_object(runtime.api, background.resource, background.body.object, patch, logger=logger)
            except (*_CONFLICTS, APIServerError, APITooManyRequestsError, APINetworkError) as e:
                if is_last:
                    logger.error("%s exits with its patch not applied: %s", handler, e)
                    return
                delay = next(delays, delay)
                log = logger.debug if isinstance(e, _CONFLICTS) else logger.error
                log("%s could not patch the object, and will try again in %s seconds: %s", handler, delay, e)
                is_last = self.stopper.is_set or await AsyncDaemonStopperChecker(self.stopper).wait(delay)
            except Exception as e:
                text = "%s has made a patch that cannot be applied, it is lost: %s"
                reason, culprit = describe_error(e)
                logger.error(text, handler, reason, exc_info=culprit)
                return
            else:
                if obj is not None:
                    background.refresh(obj)
                return

    def _make_cause(self) -> BackgroundCause:
        background = self._background
        checker = AsyncDaemonStopperChecker if self.handler.is_async else SyncDaemonStopperChecker
        return BackgroundCause(
            logger=background.logger,
            memo=background.memo,
            indices=background.runtime.indices,
            resource=background.resource,
            body=background.body,
            patch=Patch(body=background.body),
            stopped=checker(self.stopper),
        )

    def _exit(self) -> None:
        """Note that it has exited."""
        if self.is_running:
            self.is_running = False
            self.stopper.set(DaemonStoppingReason.DONE)
            self._background.exit()
