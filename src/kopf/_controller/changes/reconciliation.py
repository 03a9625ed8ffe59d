"""
One handling cycle of one object: from its state, through the detected cause and the handlers, to one patch.

The cycle takes the object as it is and gives back the object as it has become, with a hint when to continue. What
cannot be saved is given back, too, and is the first thing to do in the next cycle.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from kopf._client.errors import APINetworkError, APIServerError, APITooManyRequestsError
from kopf._client.resources.patching import PatchSuperseded
from kopf._controller.background.spawning import Background
from kopf._controller.changes.detection import Detection, carry_over, detect, take_over
from kopf._controller.changes.execution import TITLES, Execution
from kopf._controller.changes.finalizer import Attachments
from kopf._controller.changes.progress import Progress, find_overtaken, find_seen
from kopf._controller.changes.saving import Known, SavingFailure, Step, Unsaved, has_only_traces, save
from kopf._controller.changes.seen_states import SeenStates, make_digest
from kopf._controller.changes.selection import Selection, judge_failures
from kopf._controller.changes.superseding import Superseding
from kopf._controller.handled_memory import HandledMemory
from kopf._controller.runtime import Runtime
from kopf._handlers.causes import ChangingCause
from kopf._handlers.handlers import ChangingHandler, SpawningHandler
from kopf._handlers.registry import HandlersOfResource
from kopf._logging.loggers import ObjectLogger
from kopf._values import codec
from kopf._values.bodies import Body, BodyEssence
from kopf._values.codec import NestingError
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange, Patch, PatchRequest, thaw
from kopf._values.reasons import Reason
from kopf._values.resources import Resource

_MAX_RESTORATIONS = 5
"""How many times the lost state of an object is put back, until it is obvious that somebody insists on removing it."""

_PASSING_ERRORS = (APIServerError, APITooManyRequestsError, APINetworkError)
"""The next attempts can succeed with the same changes; with all other errors, they can only in another state."""

_MAX_REFUSALS = 3
"""How many times in a row the last changes of a deleted object can be refused, until it is released without them."""


class Reconciliation:
    """One pass over one object."""

    def __init__(
        self,
        runtime: Runtime,
        resource: Resource,
        handlers: HandlersOfResource,
        obj: KubeObject,
        *,
        initial: bool,
        unsaved: Unsaved | None,
        known: Known | None = None,
        called: set[HandlerId] | None = None,
        errors: int = 0,
        background: Background | None = None,
        baseline: BodyEssence | None = None,
        handled: HandledMemory | None = None,
        user_code: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._runtime = runtime
        self._resource = resource
        self._handlers = handlers
        self._obj = obj
        self._body = Body(obj.for_users())
        self._initial = initial
        self._unsaved = unsaved
        self._is_reported = unsaved is not None and unsaved.is_reported
        self._known = known
        self._errors = errors
        self._handled = handled if handled is not None else HandledMemory()
        self._is_restoring = False
        self._is_refused = False
        self._cause: ChangingCause | None = None
        self._detection: Detection | None = None
        self.correction: Unsaved | None = None
        """What is to be saved anew, as the API has not kept the changes by the handlers as they are."""
        self._expected: BodyEssence | None = None
        """The essence of the object as it will be with the changes by its handlers, if there are any."""
        self.baseline = baseline
        """The state of the object as of the beginning of its creation; all later changes are updates."""
        self._user_code = user_code
        self.is_saving = False
        """Whether the object is being patched right now, which is not to be interrupted."""
        self._logger = ObjectLogger(body=self._body, settings=runtime.settings)
        finalizer = runtime.settings.persistence.finalizer
        self._attachments = Attachments(
            obj, background, self._handled, finalizer=finalizer, logger=self._logger
        )
        self._progress = Progress(
            storage=runtime.settings.persistence.progress_storage,
            body=self._body,
            now=runtime.clock.now(),
            known=known.states if known is not None else {},
            unsaved=unsaved.states if unsaved is not None else {},
            called=called,
        )

    async def run(self) -> Step:
        """Do what is to be done now. Raises :class:`SavingFailure` if the object could not be patched."""
        try:
            return await self._run()
        except PatchSuperseded as e:
            self._logger.info(
                "The object was handled by somebody else meanwhile, e.g. by another operator. What was done here is "
                "not saved; going on from its fresh state."
            )
            return Step(e.obj, changed=True)

    async def _run(self) -> Step:
        detection = self._detect()
        cause = self._make_cause(detection)
        selection = Selection(cause)
        accompanying = selection.select_accompanying(self._handlers.changing)
        digests = self._make_digests(cause.reason)
        overtaken = list(find_overtaken(accompanying, self._progress, digests))
        if overtaken and cause.reason is Reason.NOOP:
            cause = self._make_cause(dataclasses.replace(detection, reason=Reason.UPDATE))
            selection = Selection(cause)
            digests = self._make_digests(cause.reason)
        self._cause = cause
        self._progress.begin(cause.reason)
        if cause.reason is Reason.CREATE and self.baseline is None:
            self.baseline = self._find_baseline(accompanying, digests)
        spawning = selection.select_spawning(self._handlers.spawning)
        if detection.reason is Reason.FREE:
            self._attachments.accompany(cause, [])
            if accompanying:
                self._logger.debug("Deletion, but we are done with it, and we do not care.")
                self._logger.debug("Handling cycle is finished, waiting for new changes.")
            return Step(self._obj, resumed=True)
        called = selection.select_called(accompanying)
        called += [handler for handler in overtaken if handler not in called]
        errors = 0 if cause.reason is Reason.DELETE else self._errors  # nothing is deleted because of failures
        error = judge_failures(selection.get_relevant_failures(), errors, logger=self._logger)
        if not accompanying and not spawning and self._unsaved is None:
            return await self._release(cause, selection, digests, error)
        return await self._handle(cause, accompanying, called, spawning, digests, selection, error)

    def _detect(self) -> Detection:
        persistence = self._runtime.settings.persistence
        detection = detect(
            Body(self._obj), initial=self._initial, extra_fields=self._handlers.extra_fields, persistence=persistence
        )
        if self._handled.is_released(self._obj.head.key):
            # What we see can be older than our own write. Nobody can put a finalizer on an object being deleted.
            return Detection(Reason.FREE)
        is_overtaken = self._unsaved is not None and self._unsaved.reason is not Reason.DELETE
        if detection.reason is Reason.DELETE and is_overtaken:
            # It does not matter anymore, and must not hold the deletion.
            self._unsaved, self._is_reported = None, False
            self._progress.drop_unsaved()
        if detection.reason is Reason.CREATE and self._unsaved is None:
            detection = self._consult_shadow(detection)
        self._detection = detection
        return detection

    @functools.cached_property
    def _essence(self) -> BodyEssence | None:
        """The essence of the object as it was before any of the users' functions was called for it."""
        return self._detection.restore_new() if self._detection is not None else None

    def _consult_shadow(self, detection: Detection) -> Detection:
        """Tell the new objects from those that were handled, but have lost the trace of it."""
        uid = self._obj.head.key
        digest = self._handled.recall(uid)
        if digest is None:
            return detection
        losses = self._handled.count_loss(uid)
        self._is_restoring = losses <= _MAX_RESTORATIONS
        if losses == 1:
            self._logger.warning(
                "The last handled configuration of the object was removed by somebody else. It is not considered as "
                "new, since it was already handled here. After a restart, it will be."
            )
        reason = Reason.NOOP if digest == make_digest(detection.new) else Reason.UPDATE
        return dataclasses.replace(detection, reason=reason)

    def _make_digests(self, reason: Reason) -> SeenStates:
        return SeenStates(reason, self._essence, whole=self._known.digest if self._known is not None else None)

    def _find_baseline(self, handlers: Iterable[ChangingHandler], digests: SeenStates) -> BodyEssence | None:
        """
        Get the state as of the beginning of the creation.

        If the operator was restarted in the middle, and some handlers have seen another state before that, then that
        one is not known anymore. With an empty one instead, the creation is followed by an update of everything.
        """
        seen = set(find_seen(handlers, self._progress))
        return BodyEssence() if seen and seen != {digests.get_whole()} else self._essence

    def collect_unsaved(self) -> Unsaved | None:
        """After a failure, give what is left to be saved, so that it is not lost, and not done again."""
        if self._cause is None:
            return self._unsaved
        patch, states = self._cause.patch, self._progress.unsaved
        if not patch and not states:
            return None
        return Unsaved(
            self._cause.reason, states, patch, is_reported=self._is_reported, is_refused=self._is_refused
        )

    def bury(self) -> None:
        """Say goodbye to an object that exists no more, if any handlers were for it."""
        selection = Selection(self._make_cause(Detection(Reason.GONE)))
        if selection.select_accompanying(self._handlers.changing):
            self._logger.debug("Deleted, really deleted, and we are notified.")

    def _make_cause(self, detection: Detection) -> ChangingCause:
        patch = Patch(body=self._body) if self._unsaved is None else self._unsaved.patch
        return ChangingCause(
            logger=self._logger,
            memo=self._runtime.memos.recall(self._obj.head.key),
            indices=self._runtime.indices,
            resource=self._resource,
            body=self._body,
            patch=patch,
            reason=detection.reason,
            initial=self._initial,
            old=detection.old,
            new=detection.new,
            diff=detection.diff,
        )

    async def _release(
        self, cause: ChangingCause, selection: Selection, digests: SeenStates, error: Exception | None
    ) -> Step:
        """Let go an object that no handler is for: it never was ours, or it does not match the filters anymore."""
        self._attachments.accompany(cause, [], unknown=selection.failures)
        # Only those who could be called for the deletion can hold it; for a living object, all can need the finalizer.
        is_in_doubt = error is not None or (selection.failures and not self._attachments.is_deleted)
        change = None if is_in_doubt else self._attachments.get_removal()
        if change is None:
            return Step(self._obj, resumed=True, error=error)
        return await self._save(cause, Patch(), digests, change=change, resumed=True, error=error)

    async def _handle(
        self,
        cause: ChangingCause,
        accompanying: Sequence[ChangingHandler],
        called: Sequence[ChangingHandler],
        spawning: Sequence[SpawningHandler],
        digests: SeenStates,
        selection: Selection,
        error: Exception | None,
    ) -> Step:
        demanding: list[ChangingHandler | SpawningHandler] = [*selection.select_demanding(accompanying), *spawning]
        change = self._attachments.get_change(demanding, unknown=selection.failures)
        if change is FinalizerChange.ADD and (called or spawning) and self._unsaved is None:
            # Before the first handler is called: if we crash after it, the deletion must not slip through.
            return await self._save(cause, Patch(), digests, change=change, error=error)
        self._attachments.accompany(cause, spawning, unknown=selection.failures)
        change = change or self._attachments.get_change(demanding, unknown=selection.failures)  # some exit at once
        self._progress.involve(called, digests)
        if called and self._unsaved is None:  # first of all, save what was done before
            execution = Execution(
                self._runtime, self._body, self._progress, digests, user_code=self._user_code, logger=self._logger
            )
            await execution.execute_pending(cause, called)
        delay = self._progress.get_delay(called, self._runtime.clock.now())
        if error is None and delay is None and not (self._attachments.is_deleted and self._attachments.has_company):
            return await self._finish(cause, accompanying, called, digests, change)
        outgoing = self._make_outgoing_patch(cause.patch)
        try:
            stored, self._expected = self._account_for(cause.patch, digests)
        except NestingError as e:  # of the patch, not of the object
            self._is_refused = True
            raise SavingFailure(self._obj) from e
        stored.store(outgoing)
        if cause.reason is Reason.DELETE and (self._known is None or self._known.reason is not cause.reason):
            stored.drop_outdated(self._handlers.changing, outgoing)
        step = await self._save(cause, outgoing, digests, change=change, delay=delay, error=error)
        if step.obj is not None:
            step = dataclasses.replace(step, progress=self._remember(stored, digests, outgoing, step.obj))
        if delay is not None and delay > 0 and not step.changed:
            self._logger.debug("Sleeping for %s seconds for the delayed handlers.", delay)
        return step

    def _account_for(self, patch: Patch, digests: SeenStates) -> tuple[Progress, BodyEssence | None]:
        """
        Get the progress as it is to be when the object is patched by its handlers, and what its essence becomes then.

        They know what they do: their own changes are not something that they have to see again, neither as an update
        in the middle of the handling nor after it. In a creation, they become a part of what is created.
        """
        is_essential = patch.fns or patch.keys() - {"status"} or (patch and self._handlers.extra_fields)
        if not is_essential:
            return self._progress, None
        body = Body(patch.apply_to(self._obj))
        persistence = self._runtime.settings.persistence
        after = detect(body, initial=False, extra_fields=self._handlers.extra_fields, persistence=persistence)
        expected = after.restore_new()  # the users still have the values of the patch, and can modify them
        progress = self._progress.copy()
        progress.account_for(digests, SeenStates(digests.reason, expected))
        return progress, expected

    def _note_expected(self, progress: Progress, expected: BodyEssence | None) -> None:
        """The changes by the handlers are on the object."""
        self._progress = progress
        if expected is not None and self.baseline is not None and self._essence is not None:
            self.baseline = carry_over(self.baseline, self._essence, expected)

    def _get_actual(self, expected: BodyEssence, obj: KubeObject) -> BodyEssence:
        """What the changes by the handlers have become: the API can drop or normalise them."""
        persistence = self._runtime.settings.persistence
        after = detect(Body(obj), initial=False, extra_fields=self._handlers.extra_fields, persistence=persistence)
        seen = after.restore_new()  # the next handlers get the values of the object, and can modify them
        return take_over(self._essence or BodyEssence(), expected, seen or BodyEssence())

    def _remember(self, stored: Progress, digests: SeenStates, outgoing: Patch, obj: KubeObject) -> Known:
        """Note what is now on the object, in case that nobody else changes it before the next cycle."""
        stored.note_saved()
        if self._expected is not None:
            actual = self._get_actual(self._expected, obj)
            if actual != self._expected:
                stored.account_for(SeenStates(digests.reason, self._expected), SeenStates(digests.reason, actual))
                self.correction = Unsaved(digests.reason, stored.unsaved, Patch()) if stored.unsaved else None
            self._expected = actual
        self._note_expected(stored, self._expected)
        is_same = (
            self._expected is None
            and not self._handlers.extra_fields
            and digests.whole is not None
            and has_only_traces(self._obj, obj, outgoing)
        )
        return Known(digests.reason, dict(stored), digests.whole if is_same else None)

    def _make_outgoing_patch(self, patch: Patch) -> Patch:
        """Separate what users want from what we add to it, so that it can be composed anew if it cannot be saved."""
        return Patch(thaw(patch) if patch else None, fns=patch.fns)

    async def _finish(
        self,
        cause: ChangingCause,
        accompanying: Sequence[ChangingHandler],
        called: Sequence[ChangingHandler],
        digests: SeenStates,
        change: FinalizerChange | None,
    ) -> Step:
        """End the handling of this change: all of its handlers are done, or there were none."""
        outgoing = self._make_outgoing_patch(cause.patch)
        if called and not self._is_reported:
            counts = self._progress.count(called)
            self._logger.info("%s is processed: %d succeeded; %d failed.", TITLES[cause.reason], *counts)
            self._is_reported = True
        if cause.reason is Reason.DELETE:
            change = self._attachments.release()
            self._drop_refused_wishes(cause, outgoing)
        if not self._attachments.is_to_disappear:
            self._progress.purge(self._handlers.changing, outgoing)  # also of those that have matched before
        essence = self._get_handled_essence(cause)
        is_handled = bool((cause.reason in (Reason.CREATE, Reason.UPDATE) or self._is_restoring) and accompanying)
        if is_handled:
            self._runtime.settings.persistence.diffbase_storage.store(body=self._body, patch=outgoing, essence=essence)
        if cause.reason is Reason.NOOP and not outgoing and change is None:
            self._logger.debug("Something has changed, but we are not interested (the essence is the same).")
        step = await self._save(cause, outgoing, digests, change=change, resumed=True)
        if is_handled:
            self._handled.remember(self._obj.head.key, make_digest(essence))
        if not step.changed or (essence == self._essence and self._has_only_our_traces(step.obj, cause, outgoing)):
            self._logger.debug("Handling cycle is finished, waiting for new changes.")
            return dataclasses.replace(step, settled=True) if step.changed else step
        return step

    def _drop_refused_wishes(self, cause: ChangingCause, outgoing: Patch) -> None:
        """Let nothing hold the deletion forever: not even what the deletion handlers want, but the API does not."""
        if outgoing and self._unsaved is not None and self._unsaved.is_refused and self._errors >= _MAX_REFUSALS:
            wishes = dict(cause.patch) or "those by the transformation functions"
            self._logger.error("The object is released without the changes that could not be made: %r", wishes)
            for patch in (cause.patch, outgoing):
                patch.clear()
                patch.fns.clear()

    def _has_only_our_traces(self, obj: KubeObject | None, cause: ChangingCause, outgoing: Patch) -> bool:
        if obj is None or cause.patch.fns or cause.patch.keys() - {"status"} or self._handlers.extra_fields:
            return False
        return has_only_traces(self._obj, obj, outgoing)

    def _get_handled_essence(self, cause: ChangingCause) -> BodyEssence:
        """
        What the handlers have really seen: in a creation, other changes meanwhile are updates after it.

        If that was refused and is bigger than the actual state (it can be too big), it is an update of everything.
        """
        essence = self._essence if self._essence is not None else BodyEssence()
        if cause.reason is not Reason.CREATE or self.baseline is None or self.baseline == essence:
            return essence
        was_refused = self._unsaved is not None and self._unsaved.is_reported and self._unsaved.is_refused
        is_bigger = was_refused and len(codec.encode(self.baseline)) > len(codec.encode(essence))
        return BodyEssence() if is_bigger else self.baseline

    async def _save(
        self,
        cause: ChangingCause,
        outgoing: Patch,
        digests: SeenStates,
        *,
        change: FinalizerChange | None = None,
        delay: float | None = None,
        resumed: bool = False,
        error: Exception | None = None,
    ) -> Step:
        """Bring the changes to the object. Raises :class:`SavingFailure` with what is left to be saved."""

        latest = self._obj

        def note(request: PatchRequest, obj: KubeObject) -> None:
            nonlocal latest
            latest = obj
            if request.subresource == "status" and isinstance(request.changes, dict):
                # It is there, even if the rest is refused.
                status = Patch({"status": cause.patch.pop("status", {})})
                progress, expected = self._account_for(status, digests)
                self._note_expected(progress, expected)

        self.is_saving = True
        persistence = self._runtime.settings.persistence
        try:
            obj = await save(
                self._runtime,
                self._resource,
                self._obj,
                outgoing,
                change=change,
                on_saved=note,
                is_superseded=Superseding(persistence, self._handlers.changing, Body(self._obj), outgoing),
                logger=self._logger,
            )
        except PatchSuperseded:
            raise
        except Exception as e:
            self._is_refused = not isinstance(e, _PASSING_ERRORS)
            raise SavingFailure(latest) from e
        finally:
            self.is_saving = False
        if change is FinalizerChange.REMOVE:
            self._attachments.note_removal()
        if obj is None:
            return Step(None, resumed=True)
        is_changed = obj.head.resourceVersion != self._obj.head.resourceVersion
        return Step(obj, changed=is_changed, delay=delay, resumed=resumed, error=error)
