"""
Object memory: what this process remembers about an object that it has handled, beyond the data on the object itself.

The last handled configuration is on the objects, where others can overwrite or remove it, e.g. when they replace the
whole object, or copy annotations from a parent to its children. Without this memory, such an object would look
unhandled, and the creation handlers would be called again and again.

From one pass to the next, the object itself carries all that matters. Only results that could not be saved there
(because of a conflict, a refusal, or a failure of the API) are in memory, so that the handlers are not called again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kopf._controller.changes.handler_states import HandlerState
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.reasons import Reason
from kopf._values.records import FrozenRecord, Record

if TYPE_CHECKING:
    from kopf._controller.background.runs import ObjectBackground  # most resources have neither daemons nor timers

MAX_SIZE = 4 * 1024 * 1024
"""The maximal size of the kept states of one resource, in bytes: of the objects that were handled last."""


class ObjectMemory(Record, eq=False):
    """The memory of one object."""

    fingerprint: int | None = None
    """The fingerprint of the last state that this process has handled; ``None`` if there is none."""
    snapshot: bytes | None = None
    """The state itself; ``None`` if it is not kept anymore."""
    losses: int = 0
    """The number of removals of the last handled state by others."""
    removals: int = 0
    """The number of removals of our finalizer since it was last needed."""
    is_released: bool = False
    """Whether everything is done for the object being deleted, even if older states still come."""
    is_unresumed: bool = False
    """Whether it existed before the operator started, and no handler has matched since then: it is resumed later."""
    background: ObjectBackground | None = None
    """The daemons and timers of the object, if it has any."""
    latest: KubeObject | None = None
    """The current state of the object; kept only for handlers that are called without its changes."""

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to remember."""
        return (
            self.fingerprint is None
            and self.background is None
            and self.latest is None
            and not (self.is_unresumed or self.losses or self.removals or self.is_released)
        )


class HandledStates:
    """Keeps the last handled states of the objects of one resource in their memories, as long as there is room."""

    def __init__(self) -> None:
        self._kept: dict[ObjectMemory, int] = {}
        self._size = 0

    def keep(self, memory: ObjectMemory, fingerprint: int, snapshot: bytes) -> None:
        """Keep the handled state. The fingerprint is always kept, the state while there is room."""
        size = len(snapshot)
        self._size += size - self._kept.pop(memory, 0)
        memory.fingerprint, memory.snapshot = fingerprint, snapshot
        self._kept[memory] = size  # as the newest
        while self._size > MAX_SIZE:
            self.drop(next(iter(self._kept)))

    def drop(self, memory: ObjectMemory) -> None:
        """Drop the state, e.g. because the object is gone."""
        self._size -= self._kept.pop(memory, 0)
        memory.snapshot = None


class Unsaved(Record):
    """Results of the handlers that could not be written to the object yet."""

    reason: Reason
    states: Mapping[HandlerId, HandlerState]
    patch: Patch
    is_reported: bool = False
    """Whether the end of the handling was already logged."""
    is_refused: bool = False
    """Whether the API refuses them, e.g. because of their size; as opposed to passing problems."""


class SavedProgress(FrozenRecord, frozen=True):
    """The progress of the handlers that was just saved."""

    reason: Reason
    states: Mapping[HandlerId, HandlerState]
    digest: str | None
    """The digest of the object, if nothing essential has changed in it."""
    snapshot: bytes | None = None
    """The snapshot of the object in the same case, if all of the object is known to be readable."""


class Carried(Record):
    """The memory between two passes over an object."""

    initial: bool = False
    """Whether the object existed before the operator started, and is not resumed yet."""
    unsaved: Unsaved | None = None
    saved: SavedProgress | None = None
    """The progress that was just saved, if the object has not changed since then."""
    called: set[HandlerId] | None = None
    """The handlers that this operator has called since it began to resume the object; updated by the passes."""
    woken: dict[HandlerId, bool] | None = None
    """
    The handlers to call without a change of the object, and whether they were called, which the passes update; ``None``
    if there are none.
    """
    baseline: bytes | None = None
    """The snapshot of the object as of the beginning of its creation, while that is in progress."""
    errors: int = 0
    """The number of failed passes in a row because of the framework or the API, not of the handlers."""
    conflicts: int = 0
    """The number of conflicts in a row without an event of the stream that would explain them."""


class Result(Record):
    """The result of a pass."""

    obj: KubeObject | None
    """The object after the pass; ``None`` if it is gone."""
    changed: bool = False
    """Whether the pass has changed the object, so that its new state needs a pass at once."""
    requeue_after: float | None = None
    """If not changed, the delay until the next pass, in seconds; ``None`` if it waits for changes only."""
    settled: bool = False
    """Whether the new state needs no handling: it has only our own changes."""
    resumed: bool = False
    """Whether the initial handling of the object is over."""
    saved: SavedProgress | None = None
    """The progress that is on the object now, if the handling goes on: no need to read it from there."""
    error: Exception | None = None
    """The error that requires another pass."""


class SavingFailure(Exception):
    """The object could not be patched; ``__cause__`` is the reason."""

    def __init__(self, obj: KubeObject) -> None:
        super().__init__()
        self.obj = obj
        """The current state of the object: some of several requests can have succeeded."""
