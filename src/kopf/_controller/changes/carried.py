"""
What is carried from one pass over an object to the next one, in memory.

All that is to be remembered between the passes is on the object itself. Only what could not be saved there (because of
a conflict, a refusal, or a failure of the API) is kept in memory, so that the handlers are not called again for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kopf._controller.changes.handler_state import HandlerState
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.reasons import Reason
from kopf._values.records import FrozenRecord, Record


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
    woken: dict[HandlerId, bool] | None = None
    """
    Which handlers are to be called though the object itself has not changed, and whether they were called for that by
    now, to be noted there; ``None`` if there are none.
    """
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
