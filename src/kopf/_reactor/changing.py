"""
One handling cycle of one object: from its state, through the detected cause and the handlers, to one patch.

The cycle takes the object as it is and gives back the object as it has become, with a hint when to continue. All that
is to be remembered between the cycles goes to the object itself. Only what could not be saved there (because of
a conflict, or a failure of the API) is kept in memory, so that handlers are not called again for that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from kopf._client.errors import APIClientError
from kopf._client.patching import PatchSuperseded, patch_object
from kopf._handlers.causes import ChangingCause
from kopf._handlers.context import SubhandlingContext, executing
from kopf._handlers.errors import HandlerChildrenRetry
from kopf._handlers.handlers import ChangingHandler, SpawningHandler
from kopf._handlers.invocation import invoke
from kopf._handlers.lifecycles import LifeCycleFn
from kopf._handlers.outcomes import deliver_result, execute_once
from kopf._handlers.registry import HandlersOfResource
from kopf._reactor.attachments import Attachments
from kopf._reactor.background import Background
from kopf._reactor.causation import Detection, detect
from kopf._reactor.digests import Digests, make_digest
from kopf._reactor.environment import Environment
from kopf._reactor.progress import HandlerState, Progress
from kopf._reactor.selection import select_accompanying, select_called, select_spawning, select_subhandlers
from kopf._reactor.shadows import Shadows
from kopf._reactor.superseding import Superseding
from kopf._settings.logs import ObjectLogger
from kopf._values.bodies import Body, BodyEssence
from kopf._values.fields import resolve
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange, Patch, thaw
from kopf._values.reasons import Reason
from kopf._values.resources import Resource

_TITLES = {
    Reason.CREATE: "Creation",
    Reason.UPDATE: "Updating",
    Reason.DELETE: "Deletion",
    Reason.RESUME: "Resuming",
}

_MAX_RESTORATIONS = 5
"""How many times the lost state of an object is put back, until it is obvious that somebody insists on removing it."""


@dataclasses.dataclass
class Unsaved:
    """What the handlers have done, but what is not on the object yet, as it could not be written there."""

    reason: Reason
    states: Mapping[HandlerId, HandlerState]
    patch: Patch
    essence: BodyEssence | None
    refused: bool
    """Whether the API will never accept it, e.g. because it is too big; as opposed to passing problems."""


class Known(NamedTuple):
    """The progress of the handlers as it was just saved."""

    reason: Reason
    states: Mapping[HandlerId, HandlerState]
    digest: str | None
    """The digest of the object, if nothing essential has changed in it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What has come out of a cycle."""

    obj: KubeObject | None
    """The object after the cycle; ``None`` if it is gone."""
    changed: bool = False
    """Whether the object was changed by the cycle, so that its new state is to be looked at right away."""
    delay: float | None = None
    """If not changed, in how many seconds to continue; ``None`` if there is nothing to do until it changes."""
    settled: bool = False
    """Whether the new state is known to need no handling: nothing was changed but what we have changed."""
    resumed: bool = False
    """Whether the object is known to the operator from now on, i.e. its initial handling is over."""
    progress: Known | None = None
    """If the handling goes on, what is on the object now, so that there is no need to read it from there."""


class HandlingFailure(Exception):
    """The cycle could not be completed; the handlers' outcomes are in ``unsaved``, and why is in the cause."""

    def __init__(self, unsaved: Unsaved) -> None:
        super().__init__()
        self.unsaved = unsaved


class HandlingCycle:
    """One pass over one object."""

    def __init__(
        self,
        env: Environment,
        resource: Resource,
        handlers: HandlersOfResource,
        obj: KubeObject,
        *,
        initial: bool,
        unsaved: Unsaved | None,
        known: Known | None = None,
        background: Background | None = None,
        baseline: BodyEssence | None = None,
        shadows: Shadows | None = None,
        user_code: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._env = env
        self._resource = resource
        self._handlers = handlers
        self._obj = obj
        self._body = Body(obj)
        self._initial = initial
        self._unsaved = unsaved
        self._known = known
        self._shadows = shadows if shadows is not None else Shadows()
        self._is_restoring = False
        self.baseline = baseline
        """The state of the object as of the beginning of its creation; all later changes are updates."""
        self._user_code = user_code
        self._executed = False
        self._logger = ObjectLogger(body=self._body, settings=env.settings)
        finalizer = env.settings.persistence.finalizer
        self._attachments = Attachments(
            obj, handlers, background, self._shadows, finalizer=finalizer, logger=self._logger
        )

    async def run(self) -> Step:
        """Do what is to be done now. Raises :class:`HandlingFailure` if the object could not be patched."""
        persistence = self._env.settings.persistence
        detection = detect(
            self._body, initial=self._initial, extra_fields=self._handlers.extra_fields, persistence=persistence
        )
        if self._unsaved is not None and _is_outdated(self._unsaved, detection):
            self._unsaved = None
        if detection.reason is Reason.CREATE and self._unsaved is None:
            detection = self._consult_shadow(detection)
        cause = self._make_cause(detection)
        accompanying = select_accompanying(self._handlers.changing, cause)
        digests = self._make_digests(cause)
        overtaken = digests.find_overtaken(accompanying)
        if overtaken and cause.reason is Reason.NOOP:
            cause = self._make_cause(dataclasses.replace(detection, reason=Reason.UPDATE))
            digests = self._make_digests(cause)
        if cause.reason is Reason.CREATE and self.baseline is None:
            self.baseline = digests.find_baseline(accompanying)
        spawning = select_spawning(self._handlers.spawning, cause)
        if detection.reason is Reason.FREE:
            self._attachments.accompany(cause, [])
            if accompanying:
                self._logger.debug("Deletion, but we are done with it, and we do not care.")
                self._logger.debug("Handling cycle is finished, waiting for new changes.")
            return Step(self._obj, resumed=True)
        if not accompanying and not spawning:
            return await self._release(cause)
        return await self._handle(cause, accompanying, spawning, overtaken, digests)

    def _consult_shadow(self, detection: Detection) -> Detection:
        """Tell the new objects from those that were handled, but have lost the trace of it."""
        uid = self._obj.head.uid
        digest = self._shadows.recall(uid)
        if digest is None:
            return detection
        losses = self._shadows.count_loss(uid)
        self._is_restoring = losses <= _MAX_RESTORATIONS
        if losses == 1:
            self._logger.warning(
                "The last handled configuration of the object was removed by somebody else. It is not considered as "
                "new, since it was already handled here. After a restart, it will be."
            )
        reason = Reason.NOOP if digest == make_digest(detection.new) else Reason.UPDATE
        return dataclasses.replace(detection, reason=reason)

    def _make_digests(self, cause: ChangingCause) -> Digests:
        known = self._known.digest if self._known is not None else None
        return Digests(cause, self._handlers.extra_fields, self._env.settings.persistence, known=known)

    def bury(self) -> None:
        """Say goodbye to an object that exists no more, if any handlers were for it."""
        if select_accompanying(self._handlers.changing, self._make_cause(Detection(Reason.GONE))):
            self._logger.debug("Deleted, really deleted, and we are notified.")

    def _make_cause(self, detection: Detection) -> ChangingCause:
        patch = Patch(body=self._body) if self._unsaved is None else self._unsaved.patch
        return ChangingCause(
            logger=self._logger,
            memo=self._env.memos.recall(self._obj.head.uid),
            indices=self._env.indices,
            resource=self._resource,
            body=self._body,
            patch=patch,
            reason=detection.reason,
            initial=self._initial,
            old=detection.old,
            new=detection.new,
            diff=detection.diff,
        )

    async def _release(self, cause: ChangingCause) -> Step:
        """Let go an object that no handler is for: it never was ours, or it does not match the filters anymore."""
        self._attachments.accompany(cause, [])
        if self._attachments.is_removable and self._attachments.is_worth_removing():
            return await self._save(cause, None, Patch(), change=self._attachments.release(), resumed=True)
        return Step(self._obj, resumed=True)

    async def _handle(
        self,
        cause: ChangingCause,
        accompanying: Sequence[ChangingHandler],
        spawning: Sequence[SpawningHandler],
        overtaken: Sequence[ChangingHandler],
        digests: Digests,
    ) -> Step:
        called = select_called(accompanying, cause)
        called += [handler for handler in overtaken if handler not in called]
        change = self._attachments.get_change([*accompanying, *spawning])
        if change is FinalizerChange.ADD and (called or spawning):
            # Before the first handler is called: if we crash after it, the deletion must not slip through.
            return await self._save(cause, None, Patch(), change=change)
        self._attachments.accompany(cause, spawning)
        change = change or self._attachments.get_change([*accompanying, *spawning])  # those that exit at once are gone
        progress = self._load_progress(cause, called, digests)
        if called:
            await self._execute_pending(cause, called, progress)
        delay = progress.get_delay(called, self._env.clock.now())
        outgoing = self._make_outgoing_patch(cause.patch)
        if delay is not None or (self._attachments.is_deleted and self._attachments.has_company):
            progress.store(outgoing, digests.get_after())
            if cause.reason is Reason.DELETE and (self._known is None or self._known.reason is not cause.reason):
                progress.drop_outdated(self._handlers.changing, outgoing)
            known = Known(cause.reason, dict(progress), digests.remember())  # in case that nobody else changes it
            step = await self._save(cause, progress, outgoing, change=change, delay=delay, known=known)
            if delay is not None and delay > 0 and not step.changed:
                self._logger.debug("Sleeping for %s seconds for the delayed handlers.", delay)
            return step
        return await self._finish(cause, accompanying, called, progress, outgoing, change)

    def _load_progress(
        self, cause: ChangingCause, called: Sequence[ChangingHandler], digests: Digests
    ) -> Progress:
        progress = Progress(
            storage=self._env.settings.persistence.progress_storage,
            body=self._body,
            reason=cause.reason,
            now=self._env.clock.now(),
            known=self._known.states if self._known is not None and self._known.reason is cause.reason else {},
            unsaved={} if self._unsaved is None else self._unsaved.states,
            get_digest=digests.get,
        )
        progress.involve(called)
        return progress

    async def _execute_pending(
        self, cause: ChangingCause, called: Sequence[ChangingHandler], progress: Progress
    ) -> None:
        pending = progress.get_pending(called, self._env.clock.now())
        if not pending:
            return
        if self._logger.isEnabledFor(logging.DEBUG):
            self._logger.debug("%s is in progress: %r", _TITLES[cause.reason], self._body)
            if cause.reason is Reason.UPDATE:
                self._logger.debug("Updating diff: %r", cause.diff)
        for handler in self._env.lifecycle(pending, state=progress, **cause.kwargs):
            if self._env.pause.is_on:
                break  # the rest is for later, or for those who do it instead of us
            self._executed = True
            await self._execute(cause, handler, progress, parent=None)

    async def _execute(
        self, cause: ChangingCause, handler: ChangingHandler, progress: Progress, parent: SubhandlingContext | None
    ) -> None:
        """Make one attempt of the handler, with its sub-handlers if it has them."""

        async def call() -> Any:
            with executing(self._body, context):
                result = await self._invoke(handler, kwargs)
                if context.declared:
                    await execute(context, context.declared)
                return result

        # With no references from the context to itself: such garbage of all objects would wait for the collector.
        execute = functools.partial(self._execute_subhandlers, progress)
        context = SubhandlingContext(parent=handler, cause=cause, execute=execute)
        attempt = progress[handler.id].get_attempt(self._env.clock.now())
        kwargs = {
            "retry": attempt.retry,
            "started": attempt.started,
            "runtime": attempt.runtime,
            **cause.kwargs_for(handler),
        }
        outcome = await execute_once(
            handler,
            attempt,
            call,
            logger=self._logger,
            default_backoff=self._env.settings.execution.default_backoff,
        )
        deliver_result(handler, outcome, cause.patch, logger=self._logger)
        progress.note(handler, outcome, self._env.clock.now(), context.seen)
        if parent is not None:
            parent.seen |= context.seen

    async def _invoke(self, handler: ChangingHandler, kwargs: Mapping[str, Any]) -> Any:
        execution = self._env.settings.execution
        if not handler.is_async:
            return await invoke(handler, kwargs, execution=execution)
        with self._user_code():
            return await invoke(handler, kwargs, execution=execution)

    async def _execute_subhandlers(
        self,
        progress: Progress,
        context: SubhandlingContext,
        handlers: Sequence[ChangingHandler],
        *,
        cause: ChangingCause | None = None,
        lifecycle: LifeCycleFn | None = None,
    ) -> None:
        """Execute some of the sub-handlers, as the lifecycle says; the parent waits until all of them are done."""
        cause = cause if cause is not None else context.cause
        lifecycle = lifecycle if lifecycle is not None else self._env.lifecycle
        handlers = select_subhandlers([*handlers], cause)
        context.declared.clear()
        context.seen |= dict.fromkeys(handler.id for handler in handlers)
        progress.involve(handlers)
        pending = progress.get_pending(handlers, self._env.clock.now())
        for handler in lifecycle(pending, state=progress, **cause.kwargs) if pending else ():
            await self._execute(cause, handler, progress, parent=context)
        delay = progress.get_delay(handlers, self._env.clock.now())
        if delay is not None:
            raise HandlerChildrenRetry("Some sub-handlers are not finished.", delay=delay)

    def _make_outgoing_patch(self, patch: Patch) -> Patch:
        """Separate what users want from what we add to it, so that it can be composed anew if it cannot be saved."""
        return Patch(thaw(patch) if patch else None, fns=patch.fns)

    async def _finish(
        self,
        cause: ChangingCause,
        accompanying: Sequence[ChangingHandler],
        called: Sequence[ChangingHandler],
        progress: Progress,
        outgoing: Patch,
        change: FinalizerChange | None,
    ) -> Step:
        """End the handling of this change: all of its handlers are done, or there were none."""
        if called and (self._executed or self._unsaved is None):  # else, it is only the saving that is repeated
            counts = progress.count(called)
            self._logger.info("%s is processed: %d succeeded; %d failed.", _TITLES[cause.reason], *counts)
        if cause.reason is Reason.DELETE:
            change = self._attachments.release()
        if not self._attachments.is_to_disappear:
            progress.purge(self._handlers.changing, outgoing)  # also of those that have matched before
        if (cause.reason in (Reason.CREATE, Reason.UPDATE) or self._is_restoring) and accompanying:
            essence = self._get_handled_essence(cause)
            self._shadows.remember(self._obj.head.uid, make_digest(essence))
            self._env.settings.persistence.diffbase_storage.store(body=self._body, patch=outgoing, essence=essence)
        if cause.reason is Reason.NOOP and not outgoing and change is None:
            self._logger.debug("Something has changed, but we are not interested (the essence is the same).")
        step = await self._save(cause, progress, outgoing, change=change, resumed=True)
        is_the_last = self._get_handled_essence(cause) == cause.new
        if not step.changed or (is_the_last and self._has_only_our_traces(step.obj, cause, outgoing)):
            self._logger.debug("Handling cycle is finished, waiting for new changes.")
            return dataclasses.replace(step, settled=True) if step.changed else step
        return step

    def _has_only_our_traces(self, obj: KubeObject | None, cause: ChangingCause, outgoing: Patch) -> bool:
        """
        Tell if the object is as before, plus our traces. It is much cheaper than to detect that there are no changes.

        If in doubt, it says no, and the object is looked at as always.
        """
        if obj is None or cause.patch.fns or cause.patch.keys() - {"status"} or self._handlers.extra_fields:
            return False
        before, after = self._obj.head, obj.head
        changes = outgoing.get("metadata", {}).get("annotations", {})
        annotations = {**(before.annotations or {}), **changes}
        return (
            after.deletionTimestamp is None
            and (after.labels or {}) == (before.labels or {})
            and (after.finalizers or []) == (before.finalizers or [])
            and (after.annotations or {}) == {key: value for key, value in annotations.items() if value is not None}
            and obj.has_same_content(self._obj)
        )

    def _get_handled_essence(self, cause: ChangingCause) -> BodyEssence:
        """What the handlers have really seen: if it was not saved at once, the object could have changed since then."""
        if self._unsaved is not None and self._unsaved.essence is not None:
            return self._unsaved.essence
        if cause.reason is Reason.CREATE and self.baseline is not None:
            return self.baseline
        return cause.new or BodyEssence()

    async def _save(
        self,
        cause: ChangingCause,
        progress: Progress | None,
        outgoing: Patch,
        *,
        change: FinalizerChange | None = None,
        delay: float | None = None,
        known: Known | None = None,
        resumed: bool = False,
    ) -> Step:
        """Bring the changes to the object. Without any, no API calls are made."""
        try:
            obj = await patch_object(
                self._env.api,
                self._resource,
                self._obj,
                outgoing,
                finalizer=self._attachments.finalizer,
                change=change,
                is_superseded=Superseding(
                    self._env.settings.persistence, self._handlers.changing, self._body, outgoing
                ),
                logger=self._logger,
            )
        except PatchSuperseded as e:
            self._logger.info(
                "The object was handled by somebody else meanwhile, e.g. by another operator. What was done here is "
                "not saved; going on from its fresh state."
            )
            return Step(e.obj, changed=True)
        except Exception as e:
            unsaved = Unsaved(
                reason=cause.reason,
                states={} if progress is None else progress.unsaved,
                patch=cause.patch,
                essence=self._get_handled_essence(cause),
                refused=isinstance(e, APIClientError),
            )
            raise HandlingFailure(unsaved) from e
        if obj is None:
            self._logger.debug("Patching was skipped: the object does not exist anymore.")
            return Step(None, resumed=True)
        if change is FinalizerChange.REMOVE:
            self._attachments.note_removal()
        if "status" in outgoing:
            self._check_status(obj, outgoing)
        if known is not None and known.digest is not None and not self._has_only_our_traces(obj, cause, outgoing):
            known = known._replace(digest=None)
        is_changed = obj.head.resourceVersion != self._obj.head.resourceVersion
        return Step(obj, changed=is_changed, delay=delay, resumed=resumed, progress=known)

    def _check_status(self, obj: KubeObject, outgoing: Patch) -> None:
        """Warn (once) about the fields of the status that the API has silently dropped, e.g. the results."""
        status = outgoing.get("status") or {}
        for key, value in status.items():
            is_lost = value not in (None, {}) and resolve(obj, ("status", key)) is None
            if is_lost and self._env.warnings.is_new((self._resource, key)):
                self._logger.warning(
                    "The field %r is dropped by the API, as the schema of %r does not know it. Permit it in the schema "
                    "(e.g. 'x-kubernetes-preserve-unknown-fields: true' in the status), or do not return results.",
                    f"status.{key}",
                    self._resource,
                )


def _is_outdated(unsaved: Unsaved, detection: Detection) -> bool:
    """
    Tell if what was not saved does not matter anymore: e.g. because a deletion has come after a creation.

    If it was refused, there is no sense in insisting once the object is different: it is handled anew as it is now.
    """
    return unsaved.reason is not detection.reason or (unsaved.refused and unsaved.essence != detection.new)
