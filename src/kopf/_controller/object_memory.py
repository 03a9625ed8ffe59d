"""
Object memory: what this process remembers about an object that it has handled, beyond the data on the object itself.

The last handled configuration is on the objects, where others can overwrite or remove it, e.g. when they replace the
whole object, or copy annotations from a parent to its children. Without this memory, such an object would look
unhandled, and the creation handlers would be called again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopf._values.objects import KubeObject
from kopf._values.records import Record

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
        is_untouched = self.fingerprint is None and self.background is None
        is_untouched = is_untouched and self.latest is None and not self.is_unresumed
        return is_untouched and not self.losses and not self.removals and not self.is_released


class HandledStates:
    """Keeps the last handled states of the objects of one resource in their memories, as long as there is room."""

    def __init__(self) -> None:
        self._kept: dict[ObjectMemory, int] = {}
        self._size = 0

    def keep(self, memory: ObjectMemory, fingerprint: int, snapshot: bytes) -> None:
        """Keep the handled state. The fingerprint is always kept, the state while there is room."""
        self.drop(memory)
        memory.fingerprint, memory.snapshot = fingerprint, snapshot
        self._kept[memory] = len(snapshot)
        self._size += len(snapshot)
        while self._size > MAX_SIZE:
            self.drop(next(iter(self._kept)))

    def drop(self, memory: ObjectMemory) -> None:
        """Drop the state, e.g. because the object is gone."""
        self._size -= self._kept.pop(memory, 0)
        memory.snapshot = None
