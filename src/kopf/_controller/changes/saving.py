"""
Saving: what has come out of a handling cycle goes to the object, or is kept in memory until it can go there.

All that is to be remembered between the cycles is on the object itself. Only what could not be saved there (because of
a conflict, a refusal, or a failure of the API) is kept in memory, so that the handlers are not called again for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kopf._controller.changes.decision import END, Plan
from kopf._controller.changes.handler_state import HandlerState
from kopf._controller.handled_memory import HandledMemory
from kopf._controller.runtime import Runtime
from kopf._logging.loggers import Logger, ObjectLogger
from kopf._values import codec
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import ADD, REMOVE, Patch, merge, thaw
from kopf._values.reasons import DELETE, Reason
from kopf._values.records import FrozenRecord, Record
from kopf._values.resources import Resource


class Unsaved(Record):
    """What the handlers have done, but what is not on the object yet, as it could not be written there."""

    reason: Reason
    states: Mapping[HandlerId, HandlerState]
    patch: Patch
    is_reported: bool = False
    """Whether it was said how the handling has ended."""
    is_refused: bool = False
    """Whether the API does not accept it, e.g. because it is too big; as opposed to passing problems."""


class SavedProgress(NamedTuple):
    """The progress of the handlers as it was just saved."""

    reason: Reason
    states: Mapping[HandlerId, HandlerState]
    digest: str | None
    """The digest of the object, if nothing essential has changed in it."""
    snapshot: bytes | None = None
    """The snapshot of the object in the same case, if all of the object is known to be readable."""


class Carried(Record):
    """What is carried from one pass over an object to the next one, in memory."""

    initial: bool = False
    """Whether the object existed before the operator started, and is not resumed yet."""
    unsaved: Unsaved | None = None
    saved: SavedProgress | None = None
    """The progress as it was just saved, if the object is as it was then."""
    called: set[HandlerId] | None = None
    """Which handlers this operator has called for the object since it began to resume it; to be added to."""
    baseline: bytes | None = None
    """The snapshot of the object as of the beginning of its creation, while that is in progress."""
    errors: int = 0
    """How many times in a row the object could not be handled because of us or of the API (not of the handlers)."""


class Result(FrozenRecord, frozen=True):
    """What has come out of a cycle."""

    obj: KubeObject | None
    """The object after the cycle; ``None`` if it is gone."""
    changed: bool = False
    """Whether the object was changed by the cycle, so that its new state is to be looked at right away."""
    requeue_after: float | None = None
    """If not changed, in how many seconds to continue; ``None`` if there is nothing to do until it changes."""
    settled: bool = False
    """Whether the new state is known to need no handling: nothing was changed but what we have changed."""
    resumed: bool = False
    """Whether the object is known to the operator from now on, i.e. its initial handling is over."""
    saved: SavedProgress | None = None
    """If the handling goes on, what is on the object now, so that there is no need to read it from there."""
    error: Exception | None = None
    """What was left undone because of an error, so that it is to be tried again."""


class SavingFailure(Exception):
    """The object could not be patched; the cause says why."""

    def __init__(self, obj: KubeObject) -> None:
        super().__init__()
        self.obj = obj
        """The object as it is now: some of several requests can have succeeded."""


def check_status(runtime: Runtime, resource: Resource, obj: KubeObject, patch: Patch, logger: ObjectLogger) -> None:
    """Warn (once) about the fields of the status that the API has silently dropped, e.g. the results."""
    status = obj.get("status")
    stored = status if isinstance(status, Mapping) else {}
    for key, value in (patch.get("status") or {}).items():
        is_lost = value is not None and value != {} and stored.get(key) is None
        if is_lost and runtime.warnings.is_new((resource, key)):
            logger.warning(
                "The field %r is dropped by the API, as the schema of %r does not know it. Permit it in the schema "
                "(e.g. 'x-kubernetes-preserve-unknown-fields: true' in the status), or do not return results.",
                f"status.{key}",
                resource,
            )


def has_only_traces(before: KubeObject, after: KubeObject, patch: Patch) -> bool:
    """
    Tell if the object is as before, plus the annotations & the status from the patch.

    It is much cheaper than to detect that there are no changes. If in doubt, it says no, and the object is looked at as
    always.
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


def note_finalizer(plan: Plan, handled: HandledMemory, key: str, *, finalizer: str, logger: Logger) -> None:
    """Say what is going to be done with the finalizer, and count what is needed for the next decisions."""
    if plan.is_required:
        handled.forget_removals(key)
    if plan.finalizer is None and not plan.is_contested:
        return
    if plan.finalizer is ADD:
        logger.debug("Adding the finalizer, thus preventing the actual deletion.")
    elif plan.finalizer is REMOVE and plan.saving is END and plan.reason is DELETE:
        logger.debug("Removing the finalizer, thus allowing the actual deletion.")
    elif plan.finalizer is REMOVE:
        logger.debug("Removing the finalizer, as there are no handlers requiring it.")
    elif plan.is_contested:
        handled.count_removal(key)  # so that it is not said again for this object
        logger.warning(
            "The finalizer %r is not needed by this operator, but somebody else puts it back; it is left there. "
            "If it is another operator, give them different names: settings.persistence.finalizer.",
            finalizer,
        )


def note_removal(handled: HandledMemory, obj: KubeObject) -> None:
    """The finalizer is removed from the object indeed."""
    if obj.head.deletionTimestamp is not None:
        handled.note_release(obj.head.key)
    else:
        handled.count_removal(obj.head.key)
