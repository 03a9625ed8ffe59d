"""Cause detection: what has happened to the object, judged by its current and its last handled state."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import cast

from kopf._settings.settings import PersistenceSettings
from kopf._values import codec
from kopf._values.bodies import Body, BodyEssence
from kopf._values.diffs import EMPTY, Diff, diff
from kopf._values.fields import FieldPath, ensure, resolve, without
from kopf._values.patches import thaw
from kopf._values.reasons import Reason


@dataclasses.dataclass(frozen=True, slots=True)
class Detection:
    """What was found out about the object."""

    reason: Reason
    old: BodyEssence | None = None
    new: BodyEssence | None = None
    diff: Diff = EMPTY
    snapshot: bytes = b"null"
    """The current state as it was when detected, serialised. Users can modify the other values, as they get them."""

    def restore_new(self) -> BodyEssence | None:
        """Give the current state as it was when detected."""
        state: BodyEssence | None = codec.decode(self.snapshot)
        return state


def detect(
    body: Body, *, initial: bool, extra_fields: Iterable[FieldPath], persistence: PersistenceSettings
) -> Detection:
    """
    Compare the object to its last handled configuration.

    ``initial`` means that it existed before the operator started and is not resumed yet. A deletion is only handled
    if our finalizer blocks it: otherwise, it was either handled already or there is no need to.
    """
    head = body.object.head
    if head.deletionTimestamp is not None and persistence.finalizer not in (head.finalizers or ()):
        return Detection(Reason.FREE)
    old = persistence.diffbase_storage.fetch(body=body)
    new = persistence.diffbase_storage.build(body=body, extra_fields=extra_fields)
    new = persistence.progress_storage.clear(essence=new)
    if old is not None:
        old = persistence.progress_storage.clear(essence=persistence.diffbase_storage.clean(old))
    snapshot = codec.encode(new)
    if head.deletionTimestamp is not None:
        return Detection(Reason.DELETE, old, new, diff(old, new), snapshot)
    if old is None:
        return Detection(Reason.CREATE, None, new, diff(None, new), snapshot)
    # Mostly, there are no changes, and it is much cheaper to see that on the serialised states.
    if changes := EMPTY if codec.encode(old) == snapshot else diff(old, new):
        return Detection(Reason.UPDATE, old, new, changes, snapshot)
    return Detection(Reason.RESUME if initial else Reason.NOOP, old, new, snapshot=snapshot)


def carry_over(state: BodyEssence, before: BodyEssence, after: BodyEssence) -> BodyEssence:
    """Make the same changes in the state as there are between the two other ones."""
    if state == before:
        return after
    result = thaw(state)
    for item in diff(before, after):
        if item.new is None:
            result = without(result, item.field)
        else:
            ensure(result, item.field, item.new)
    return cast(BodyEssence, result)


def take_over(before: BodyEssence, expected: BodyEssence, seen: BodyEssence) -> BodyEssence:
    """Make the expected changes of the state, but with those values that are really seen afterwards."""
    result = thaw(before)
    for item in diff(before, expected):
        value = resolve(seen, item.field)
        if value is None:
            result = without(result, item.field)
        else:
            ensure(result, item.field, value)
    return cast(BodyEssence, result)
