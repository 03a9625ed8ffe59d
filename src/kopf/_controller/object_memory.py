"""
Object memory: what this process remembers of an object it has handled, beyond what is kept on the object itself.

The last handled configuration is kept on the objects, where others can overwrite or remove it, e.g. by replacing
the whole object, or by copying annotations from a parent to its children. Without this memory, such an object looks as
if it has never been handled, and is created again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopf._values.objects import KubeObject

if TYPE_CHECKING:
    from kopf._controller.background.runs import ObjectBackground  # most resources have neither daemons nor timers

MAX_SIZE = 4 * 1024 * 1024
"""How many bytes of states are kept for one resource: those of the objects that were handled last."""


class ObjectMemory:
    """What is remembered of one object."""

    __slots__ = ("background", "fingerprint", "is_released", "is_unresumed", "latest", "losses", "removals", "snapshot")

    def __init__(self) -> None:
        self.fingerprint: int | None = None
        """In which state the object was handled by this operator process; ``None`` if it was not."""
        self.snapshot: bytes | None = None
        """That state itself; ``None`` if it is not kept anymore."""
        self.losses = 0
        """How many times the last handled state was removed from the object by others."""
        self.removals = 0
        """How many times our finalizer was removed from the object since it was needed there."""
        self.is_released = False
        """Whether all was done for the object that is being deleted, whatever the older states of it look like."""
        self.is_unresumed = False
        """Whether it existed before the operator started, and no handler was for it since then: it is resumed later."""
        self.background: ObjectBackground | None = None
        """The daemons & timers of the object, if it has any."""
        self.latest: KubeObject | None = None
        """The object as it is now; kept only where it can have to be handled though it has not changed."""

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
        """The object was handled in this state. The fingerprint is kept always, the state while there is room."""
        self.drop(memory)
        memory.fingerprint, memory.snapshot = fingerprint, snapshot
        self._kept[memory] = len(snapshot)
        self._size += len(snapshot)
        while self._size > MAX_SIZE:
            self.drop(next(iter(self._kept)))

    def drop(self, memory: ObjectMemory) -> None:
        """Keep the state no more, e.g. as the object is gone."""
        self._size -= self._kept.pop(memory, 0)
        memory.snapshot = None
