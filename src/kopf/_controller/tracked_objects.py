"""
Tracked objects: everything that the operator keeps about the objects of one resource, one entry for each object.

Objects without matching handlers have no entries. The state and the waiting events of an object are dropped when it is
idle; its memory stays as long as it exists. When it is gone, everything about it is forgotten at once, here.
"""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.changes.object_memory import Carried, HandledStates, ObjectMemory
from kopf._controller.changes.selection import could_match
from kopf._controller.object_state import ObjectState, Rules
from kopf._controller.runtime import Runtime
from kopf._handlers.handlers import ResourceHandler
from kopf._handlers.registry import HandlersOfResource
from kopf._settings.settings import iter_delays
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.patches import Patch
from kopf._values.records import Record, field, replace

if TYPE_CHECKING:
    from kopf._controller.background.spawning import Background


class Gone:
    """The end of an object that does not exist anymore, but is not forgotten yet: a worker has it, or will take it."""

    __slots__ = ("obj", "successor")

    def __init__(self, obj: KubeObject) -> None:
        self.obj = obj
        """The last state of the object."""
        self.successor: WatchEvent | None = None
        """The latest event after the end: the object is selected again, or another one has the same name."""


class CurrentPass(Protocol):
    """A pass over an object, while it is going on."""

    @property
    def is_saving(self) -> bool:
        """Whether the object is being patched now, which must not be interrupted."""


class TrackedObject(Record, eq=False):
    """
    One object, as the operator knows it.

    Large because it keeps everything about the object, so that it can be handed over and forgotten in one place.
    """

    key: str
    memory: ObjectMemory = field(default_factory=ObjectMemory)
    """The memory of the object for as long as it exists."""
    state: ObjectState | None = None
    """What to handle, and when; ``None`` if the object is idle."""
    events: deque[WatchEvent] | None = None
    """The raw events that wait for their handlers; ``None`` if there are none."""
    reconciliation: CurrentPass | None = None
    """The current pass over the object, if any."""
    gone: Gone | None = None
    """The end of the object, if it exists no more."""
    stub: KubeObject | None = None
    """The readable part of the object if it cannot be decoded."""
    complaint: str | None = None
    """The last logged reason why the object cannot be handled, if it cannot."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is going on with the object."""
        return self.state is None and self.events is None and self.gone is None and self.reconciliation is None

    @property
    def is_saving(self) -> bool:
        """Whether the results of the handlers are being written to the object now."""
        return self.reconciliation is not None and self.reconciliation.is_saving

    @property
    def is_unsaved(self) -> bool:
        """Whether results of the handlers must still be written to the object."""
        return self.state is not None and self.state.memory.unsaved is not None

    def take_snapshot(self) -> tuple[Carried, ObjectMemory]:
        """Return a snapshot of everything known about the object, for use while the operator goes on."""
        carried = Carried(initial=self.memory.is_unresumed) if self.state is None else self.state.memory
        called = None if carried.called is None else {*carried.called}
        unsaved = None if carried.unsaved is None else replace(carried.unsaved, patch=Patch())
        # The object can have another state by then than the saved one.
        saved = None if carried.saved is None else replace(carried.saved, digest=None, snapshot=None)
        return replace(carried, called=called, unsaved=unsaved, saved=saved), copy.copy(self.memory)


class TrackedObjects:
    """
    The objects of one resource by their keys.

    Large because it also keeps facts about the resource and its handlers as a whole.
    """

    def __init__(self, runtime: Runtime, handlers: HandlersOfResource, background: Background | None) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._rules = Rules(
            comparable_versions=runtime.comparable_versions,
            consistency_timeout=settings.persistence.consistency_timeout,
            error_delays=iter_delays(settings.queueing.error_delays),
        )
        self._could_match = _make_matcher((*handlers.changing, *handlers.spawning))
        self._keeps_latest = any(handler.is_wakeable for handler in handlers.changing)
        self.has_readers = self._keeps_latest or background is not None
        """Whether anything reads the current states of idle objects."""
        self._resumes = any(handler.initial for handler in handlers.changing)
        self._background = background
        self.handled = HandledStates()
        self._entries: dict[str, TrackedObject] = {}
        self.get: Callable[[str], TrackedObject | None] = self._entries.get

    def __iter__(self) -> Iterator[TrackedObject]:
        return iter([*self._entries.values()])

    def count_busy(self) -> int:
        """Count the objects that are not idle; the time is linear."""
        return sum(not entry.is_idle for entry in self)

    def obtain(self, key: str) -> TrackedObject:
        """Return the entry of the object, or make a new one."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = TrackedObject(key)
        return entry

    def accept(self, key: str, event: WatchEvent, now: float) -> TrackedObject | None:
        """Accept an event of the object; return its entry if there can be something to do."""
        obj = event.object
        entry = self._entries.get(key)
        if entry is not None and entry.gone is not None:
            entry.gone.successor = event
            return None
        if event.type == "DELETED":
            entry = self.obtain(key)
            if self._background is not None and entry.memory.background is not None:
                self._background.forget(entry.memory.background)
                entry.memory.background = None
            entry.state, entry.gone = None, Gone(obj)
            return entry
        state = None if entry is None else entry.state
        if entry is None or state is None:
            if self._could_match is not None and not self._is_of_interest(entry, obj.head, self._could_match):
                if event.type is None and self._resumes:
                    self.obtain(key).memory.is_unresumed = True
                self.refresh(entry, obj)
                return None
            entry = self.obtain(key) if entry is None else entry
            state = self.wake(entry)
        initial = event.type is None or entry.memory.is_unresumed
        if state.on_event(obj, now, initial=initial) and self.has_readers:
            self.refresh(entry, obj)
        return entry

    def _is_of_interest(
        self, entry: TrackedObject | None, head: ObjectMeta, could_match: Callable[[ObjectMeta], bool]
    ) -> bool:
        """Tell if an idle object needs a pass: a handler can match it, or has left its traces on it."""
        if could_match(head) or self._runtime.settings.persistence.finalizer in (head.finalizers or ()):
            return True
        background = None if entry is None else entry.memory.background
        return background is not None and background.has_running()

    def refresh(self, entry: TrackedObject | None, obj: KubeObject) -> None:
        """Show the new state of the object to its daemons and timers, and keep it if it can be needed later."""
        if entry is None or obj.pruned:
            return
        if entry.memory.background is not None:
            entry.memory.background.refresh(obj)
        if self._keeps_latest:
            entry.memory.latest = obj

    def wake(self, entry: TrackedObject) -> ObjectState:
        """Return the state of an object that is not idle anymore."""
        if entry.state is None:
            entry.state = ObjectState(self._rules)
        return entry.state

    def settle(self, entry: TrackedObject) -> None:
        """If nothing is going on with the object, keep only its memory; drop the entry if that is blank."""
        if entry.state is not None:
            if not entry.state.is_idle:
                return
            entry.state = None
        is_handled = entry.memory.fingerprint is not None  # as mostly
        if not is_handled and entry.is_idle and entry.stub is None and entry.memory.is_blank:
            self._entries.pop(entry.key, None)

    def release(self, entry: TrackedObject) -> None:
        """Free memory of an object that is idle or waits: there can be many, for a long time."""
        self._runtime.memos.release(entry.key)
        if entry.memory.background is not None:
            entry.memory.background.body.object.forget_values()
        if entry.memory.latest is not None:
            entry.memory.latest.forget_values()
        if entry.state is not None and entry.state.last_seen is not None:
            entry.state.last_seen.forget_values()

    def get_pending(self, key: str) -> KubeObject | None:
        """Return the state of the object that is handled next, if any."""
        entry = self._entries.get(key)
        return None if entry is None or entry.state is None else entry.state.pending

    def hand_over(self, entry: TrackedObject) -> None:
        """Forget the object, which belongs to another replica now."""
        if self._background is not None and entry.memory.background is not None:
            self._background.let_go(entry.memory.background)
        self.handled.drop(entry.memory)
        self._entries.pop(entry.key, None)

    def forget(self, entry: TrackedObject, now: float) -> TrackedObject | None:
        """Forget the object, which does not exist anymore; return the entry of its successor, if there is one."""
        self._runtime.memos.forget(entry.key)
        self.handled.drop(entry.memory)
        self._entries.pop(entry.key, None)
        if entry.events is not None:  # the successor's events
            self.obtain(entry.key).events = entry.events
        if entry.gone is not None and entry.gone.successor is not None:
            self.accept(entry.key, entry.gone.successor, now)
        return self._entries.get(entry.key)


def _make_matcher(handlers: Sequence[ResourceHandler]) -> Callable[[ObjectMeta], bool] | None:
    """Make a quick check for matching handlers; ``None`` if some handlers match all objects."""
    if any(not item.labels and not item.annotations for item in handlers):
        return None
    return functools.partial(could_match, handlers)
