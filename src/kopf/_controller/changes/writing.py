"""Writing: the results of one pass go to the object, or are kept to be written later."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence

from kopf._client.errors import APINetworkError, APIServerError, APITooManyRequestsError
from kopf._client.resources.patching import PatchOptions, PatchRequest, PatchSuperseded, patch_object
from kopf._controller.changes.decision import Plan, make_fingerprint
from kopf._controller.changes.execution import TITLES
from kopf._controller.changes.object_memory import ObjectMemory, Result, SavedProgress, SavingFailure, Unsaved
from kopf._controller.changes.observation import Observation
from kopf._controller.changes.own_changes import OwnChanges
from kopf._controller.changes.progress import Progress, count
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.changes.seen_states import SeenStates
from kopf._controller.rivals import is_superseded
from kopf._handlers.handlers import ChangingHandler
from kopf._values import codec
from kopf._values.bodies import Body
from kopf._values.codec import NestingError
from kopf._values.objects import KubeObject
from kopf._values.patches import REMOVE, Patch, merge, thaw
from kopf._values.reasons import CREATE, DELETE, NOOP, RESUME
from kopf._values.resources import is_newer

_PASSING_ERRORS = (APIServerError, APITooManyRequestsError, APINetworkError)
"""After these errors, the same changes can succeed later; after all others, only in another state of the object."""

_STATUS = frozenset({"status"})

_MAX_REFUSALS = 3
"""The maximum of refusals in a row of the last changes of a deleted object, until it is released without them."""


class Writing:
    """
    The writing of the results of one pass.

    Large because it also keeps the results for a later attempt if it fails.
    """

    __slots__ = (
        "_is_refused",
        "_is_reported",
        "_latest",
        "_observed",
        "_plan",
        "_scope",
        "baseline",
        "correction",
        "is_saving",
    )

    def __init__(self, scope: ReconciliationScope, observed: Observation, plan: Plan) -> None:
        carried = observed.carried
        self._scope = scope
        self._observed = observed
        self._plan = plan
        unsaved, saved = observed.unsaved, observed.situation.saved
        self._is_reported = unsaved is not None and unsaved.is_reported
        self._is_refused = False
        self._latest = observed.obj
        self.correction: Unsaved | None = None
        """The states to save again, because the API has altered the changes by the handlers."""
        self.baseline = carried.baseline
        """The snapshot of the object as of the beginning of its creation; all later changes are updates."""
        # It is not begun by adding the finalizer.
        if plan.reason is CREATE and carried.baseline is None and (plan.call or not saved.is_blank):
            self.baseline = observed.find_baseline()
        self.is_saving = False
        """Whether the object is being patched now, which must not be interrupted."""

    def report(self, called: Sequence[ChangingHandler]) -> None:
        """Log once how the handling by these handlers has ended."""
        plan, logger = self._plan, self._observed.logger
        if not self._is_reported:
            self._is_reported = True
            # Handlers that are called for everything around the object log it at their own level.
            level = logging.INFO if plan.reason is not RESUME else max([item.success_level for item in called])
            if logger.isEnabledFor(level):
                counts = count(called, plan.progress)
                logger.log(level, "%s is processed: %d succeeded; %d failed.", TITLES[plan.reason], *counts)

    def collect_unsaved(self) -> Unsaved | None:
        """Return the unsaved results after a failure, so that they are neither lost nor repeated."""
        states, patch = self._plan.progress.unsaved, self._observed.patch
        if not patch and not states:
            return None
        reason = self._plan.reason
        return Unsaved(reason, states, patch, is_reported=self._is_reported, is_refused=self._is_refused)

    async def save_progress(self) -> Result:
        """Save the progress: the handling goes on later."""
        plan, observed = self._plan, self._observed
        outgoing = self._make_outgoing_patch()
        own = self._make_own_changes()
        try:
            stored, expected = own.expect(observed.patch, plan.progress)
        except NestingError as e:  # of the patch, not of the object
            self._is_refused = True
            raise SavingFailure(observed.obj) from e
        baseline = self._keep_baseline(own, stored, expected, self.baseline)
        stored.store(outgoing)
        saved = self._observed.carried.saved
        if plan.reason is DELETE and (saved is None or saved.reason is not plan.reason):
            stored.saved.drop_outdated(self._scope.candidates.changing, plan.reason, stored, outgoing)
        result = await self.save(outgoing)
        if result.obj is not None:
            self._check_status(result.obj, outgoing)
            saved = self._remember(stored, expected, baseline, outgoing, result.obj)
            result.saved = saved
        delay = result.requeue_after
        if delay is not None and delay > 0 and not result.changed:
            observed.logger.debug("Sleeping for %s seconds for the delayed handlers.", delay)
        return result

    async def finish(self) -> Result:
        """End the handling of this change: all of its handlers are done, if there were any."""
        scope, plan, observed = self._scope, self._plan, self._observed
        if plan.reason is DELETE:
            drop_refused_wishes(observed, self._observed.carried.errors)
        outgoing = self._make_outgoing_patch()
        if not observed.situation.blocking.is_last:
            plan.progress.purge(scope.candidates.changing, outgoing)  # also of former matches
        handled = snapshot = observed.situation.detection.snapshot
        if self.baseline is not None:
            handled = observed.get_handled_snapshot(plan, self.baseline)
        if plan.is_handled:
            if (fresher := scope.get_fresher(observed.situation.key)) is not None:
                self._look_for_rivals(fresher)
            scope.snapshots.store(handled, body=observed.body, patch=outgoing)
        if plan.reason is NOOP and not outgoing and plan.finalizer is None:
            observed.logger.debug("Something has changed, but we are not interested (the essence is the same).")
        result = await self.save(outgoing)
        if plan.is_handled:
            scope.handled.keep(observed.memory, make_fingerprint(handled), handled)
        is_settled = result.changed and handled == snapshot and self._has_only_our_traces(result.obj, outgoing)
        if (is_settled or not result.changed) and observed.logger.isEnabledFor(logging.DEBUG):
            observed.logger.debug("Handling cycle is finished, waiting for new changes.")
        result.settled = is_settled
        if not is_settled and result.obj is not None:
            self._check_status(result.obj, outgoing)
        return result

    async def save(self, outgoing: Patch) -> Result:
        """Patch the object. Raises :class:`SavingFailure` with the state of the object after it."""
        scope, plan, observed = self._scope, self._plan, self._observed
        if not outgoing and plan.finalizer is None:
            return Result(observed.obj, False, plan.requeue_after, resumed=plan.resumed, error=plan.error)
        options = None if plan.finalizer is None else PatchOptions(scope.finalizer, plan.finalizer)
        self.is_saving = True
        try:
            if "status" in scope.resource.subresources:
                obj = await self._send_in_order(outgoing)
            else:  # it is one request anyway
                obj = await patch_object(
                    scope.runtime.api, scope.resource, observed.obj, outgoing, options, logger=observed.logger
                )
        except PatchSuperseded:
            raise
        except Exception as e:
            self._is_refused = not isinstance(e, _PASSING_ERRORS)
            raise SavingFailure(self._latest) from e
        finally:
            self.is_saving = False
        if plan.finalizer is REMOVE:
            note_removal(observed.obj, observed.memory)
        if obj is None:
            observed.logger.debug("Patching was skipped: the object does not exist anymore.")
            return Result(None, resumed=True)
        is_changed = obj.head.resourceVersion != observed.obj.head.resourceVersion
        return Result(obj, is_changed, plan.requeue_after, resumed=plan.resumed, error=plan.error)

    async def _send_in_order(self, outgoing: Patch) -> KubeObject | None:
        """
        Send the patch with our records, the status apart from the rest.

        Usually, the records are in the last request: a crash before it repeats the handlers. If they are in the status,
        which is sent first, the other changes by the handlers go before it. Otherwise, a crash would lose them.
        """
        scope, observed = self._scope, self._observed
        patch, obj = observed.patch, observed.obj
        check = functools.partial(
            is_superseded,
            persistence=scope.persistence,
            handlers=scope.candidates.changing,
            before=obj,
            outgoing=outgoing,
        )
        options = PatchOptions(scope.finalizer, self._plan.finalizer, check, self._note_saved)
        send = functools.partial(patch_object, scope.runtime.api, scope.resource, logger=observed.logger)
        if (patch.fns or patch.keys() - _STATUS) and outgoing.get("status") != patch.get("status"):
            rest = patch.derive({key: value for key, value in patch.items() if key != "status"})
            changed = await send(obj, rest, options._replace(change=None))
            if changed is None:
                return None
            added = {key: value for key, value in outgoing.items() if key == "status" or value != patch.get(key)}
            obj, outgoing = changed, outgoing.derive(added)
        return await send(obj, outgoing, options)

    def _look_for_rivals(self, fresher: KubeObject) -> None:
        """
        Note other operators: if the object is marked as handled since our last write, this operator did not do it.
        """
        scope, obj = self._scope, self._observed.obj
        is_comparable = scope.runtime.comparable_versions
        if is_comparable and is_newer(fresher.head.resourceVersion, obj.head.resourceVersion):
            mark = scope.persistence.diffbase_storage.fetch(body=Body(fresher))
            if mark is not None and mark != scope.persistence.diffbase_storage.fetch(body=Body(obj)):
                scope.rivals.note(fresher)

    def _note_saved(self, request: PatchRequest, obj: KubeObject) -> None:
        """Accept a successful request: the status is on the object, even if the next request is refused."""
        self._latest = obj
        if request.subresource == "status" and isinstance(request.changes, dict):
            status = Patch({"status": self._observed.patch.pop("status", {})})
            own = self._make_own_changes()
            self._plan.progress, expected = own.expect(status, self._plan.progress)
            self.baseline = own.carry_over(self.baseline, expected)

    def _make_own_changes(self) -> OwnChanges:
        snapshot = self._observed.situation.detection.snapshot
        return OwnChanges(self._scope.snapshots, self._observed.obj, self._plan.seen, snapshot=snapshot)

    def _make_outgoing_patch(self) -> Patch:
        """Copy the patch of the handlers for our additions, so that a failed one can be composed anew."""
        patch = self._observed.patch
        if not patch:
            return Patch()
        if self._scope.snapshots.is_plain and self._observed.situation.saved.is_absent and "metadata" not in patch:
            return patch.derive(patch)  # our additions modify nothing of it
        return patch.derive(thaw(patch))

    def _keep_baseline(
        self, own: OwnChanges, progress: Progress, expected: bytes | None, known: bytes | None
    ) -> bytes | None:
        """Add our own changes to the state as of the beginning of a creation, and both of them to the progress."""
        baseline = own.carry_over(self.baseline, expected)
        if baseline is not None:
            if known != baseline:
                progress.account_for(SeenStates(CREATE, known), SeenStates(CREATE, baseline))
            progress.keep_baseline(baseline, self._plan.called)
        return baseline

    def _remember(
        self, stored: Progress, expected: bytes | None, baseline: bytes | None, outgoing: Patch, obj: KubeObject
    ) -> SavedProgress:
        """Note the progress on the object, in case nobody else changes it before the next pass."""
        plan, own = self._plan, self._make_own_changes()
        stored.note_saved()
        if expected is not None:
            expected = own.compare(expected, obj, stored)
            self.baseline = self._keep_baseline(own, stored, expected, baseline)
            if states := stored.unsaved:
                self.correction = Unsaved(plan.reason, states, Patch())
        plan.progress = stored
        is_same = (
            expected is None
            and not self._scope.snapshots.extra_fields
            and plan.seen.whole is not None
            and has_only_traces(self._observed.obj, obj, outgoing)
        )
        if not is_same:
            return SavedProgress(plan.reason, dict(stored), None)
        # Storages of users can use anything as the essence. If handlers were called, the whole object was decoded.
        is_known = plan.call and self._scope.snapshots.is_plain
        snapshot = self._observed.situation.detection.snapshot if is_known else None
        return SavedProgress(plan.reason, dict(stored), plan.seen.whole, snapshot)

    def _check_status(self, obj: KubeObject, outgoing: Patch) -> None:
        """Warn once about fields of the status that the API has silently dropped, e.g. results."""
        if "status" not in outgoing and not outgoing.fns:
            return
        wanted = {**(outgoing.get("status") or {})}
        wanted.update((key, True) for fn in outgoing.fns for key in getattr(fn, "status_fields", ()))
        warnings, resource, status = self._scope.runtime.warnings, self._scope.resource, obj.get("status")
        stored = status if isinstance(status, Mapping) else {}
        for key, value in wanted.items():
            is_lost = value is not None and value != {} and stored.get(key) is None
            if is_lost and warnings.is_new((resource, key)):
                self._observed.logger.warning(
                    "The API drops the field %r, because the schema of %r does not have it. Permit it in the schema "
                    "(e.g. 'x-kubernetes-preserve-unknown-fields: true' in the status), or do not return results.",
                    f"status.{key}",
                    resource,
                )

    def _has_only_our_traces(self, obj: KubeObject | None, outgoing: Patch) -> bool:
        """Tell if no handler can depend on the changes; if in doubt, there is another pass."""
        patch, scope = self._observed.patch, self._scope
        if obj is None or patch.fns or not patch.keys() <= _STATUS or scope.snapshots.extra_fields:
            return False
        if not scope.candidates.follows.isdisjoint(outgoing):
            return False
        return has_only_traces(self._observed.obj, obj, outgoing)


def note_removal(obj: KubeObject, memory: ObjectMemory) -> None:
    """Note that our finalizer was removed from the object in this state."""
    if obj.head.deletionTimestamp is not None:
        memory.is_released = True  # from now on, this operator ignores the object
    else:
        memory.removals += 1


def drop_refused_wishes(observed: Observation, errors: int) -> None:
    """Drop changes that the API refuses repeatedly, so that they do not block the deletion forever."""
    unsaved, patch = observed.unsaved, observed.patch
    if patch and unsaved is not None and unsaved.is_refused and errors >= _MAX_REFUSALS:
        wishes = dict(patch) or "those by the transformation functions"
        observed.logger.error("The object is released without the changes that could not be made: %.1000r", wishes)
        patch.clear()
        patch.fns.clear()


def has_only_traces(before: KubeObject, after: KubeObject, patch: Patch) -> bool:
    """
    Tell if the object is as before, plus the annotations and the status from the patch.

    It is much cheaper than the detection of changes. If in doubt, it is false, and the object gets a regular pass.
    """
    old, new = before.head, after.head
    if new.deletionTimestamp is not None or new.labels != old.labels or new.finalizers != old.finalizers:
        return False
    annotations = patch["metadata"].get("annotations") if "metadata" in patch else None
    if old.annotations:
        annotations = {**old.annotations, **(annotations or {})}
    if annotations and None in annotations.values():
        annotations = {key: value for key, value in annotations.items() if value is not None}
    return (
        (new.annotations or {}) == (annotations or {})
        and after.has_same_content(before)
        and _has_patched_status(before, after, patch)
    )


def _has_patched_status(before: KubeObject, after: KubeObject, patch: Patch) -> bool:
    wanted = patch.get("status")
    if wanted and not before.could_have("status", "") and after.is_serialised_as("status", codec.encode(wanted)):
        return True  # as it usually is: there was no status
    old, new = before.get("status") or {}, after.get("status") or {}
    if not wanted:
        return bool(new == old)
    if isinstance(old, dict) and old.keys().isdisjoint(wanted) and new == {**old, **wanted}:
        return True  # there are new fields only, and nothing to be merged
    expected = thaw(old)
    merge(expected, wanted)
    return bool(new == expected)
