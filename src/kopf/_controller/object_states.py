"""The states of those objects of one resource that are not idle; the others have none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from kopf._client.resources.watch_machine import WatchEvent
from kopf._controller.changes.selection import could_match
from kopf._controller.object_state import ObjectState, Rules, make_state
from kopf._controller.runtime import Runtime
from kopf._handlers.handlers import ResourceHandler
from kopf._handlers.registry import HandlersOfResource
from kopf._settings.settings import iter_delays
from kopf._values.objects import KubeObject, ObjectMeta

if TYPE_CHECKING:
    from kopf._controller.background.spawning import Background


class Gone:
    """An object that exists no more, but is not forgotten yet, as somebody works on it, or is going to."""

    __slots__ = ("obj", "successor")

    def __init__(self, obj: KubeObject) -> None:
        self.obj = obj
        """The last state of the object."""
        self.successor: WatchEvent | None = None
        """The latest of what came later: it is selected again, or there is another object of the same name."""


class ObjectStates:
    """The states by the keys of the objects. They are made for the objects that any handlers could be for."""

    def __init__(self, runtime: Runtime, handlers: HandlersOfResource, background: Background | None) -> None:
        settings = runtime.settings
        self._rules = Rules(
            comparable_versions=runtime.comparable_versions,
            consistency_timeout=settings.persistence.consistency_timeout,
            error_delays=iter_delays(settings.queueing.error_delays),
        )
        self._finalizer = settings.persistence.finalizer
        self._could_match = _make_matcher((*handlers.changing, *handlers.spawning))
        self._background = background
        self._states: dict[str, ObjectState] = {}
        self.get: Callable[[str], ObjectState | None] = self._states.get
        """The state of the object, if it is not idle."""
        self._gone: dict[str, Gone] = {}
        self.gone: Collection[str] = self._gone.keys()
        """The keys of the objects that exist no more, and are to be forgotten."""

    def __len__(self) -> int:
        return len(self._states) + len(self._gone)

    def get_pending(self, key: str) -> KubeObject | None:
        """What is to be handled next of the object, if anything."""
        state = self._states.get(key)
        return None if state is None else state.pending

    def obtain(self, key: str) -> ObjectState | None:
        """The same, or a new one if it is idle; ``None`` if the object exists no more."""
        if key in self._gone:
            return None
        return self._states.get(key) or self._add(key)

    def accept(self, key: str, event: WatchEvent, now: float) -> bool:
        """Take in what the event tells of the object; tell if it is of interest."""
        obj = event.object
        if key in self._gone:
            self._gone[key].successor = event
            return False
        if event.type == "DELETED":
            if self._background is not None:
                self._background.forget(key)
            self._states.pop(key, None)
            self._gone[key] = Gone(obj)
            return True
        state = self._states.get(key)
        if state is None and self._is_of_interest(key, obj.head):
            state = self._add(key)
        is_news = state is None or state.on_event(obj, now, initial=event.type is None)
        if is_news and self._background is not None and not obj.pruned:
            self._background.refresh(obj)
        return state is not None

    def _is_of_interest(self, key: str, head: ObjectMeta) -> bool:
        """Tell if an idle object is to be looked at: is any handler for it, or was any and has left its traces."""
        return (
            self._could_match is None
            or self._could_match(head)
            or self._finalizer in (head.finalizers or ())
            or (self._background is not None and self._background.is_running(key))
        )

    def _add(self, key: str) -> ObjectState:
        state = self._states[key] = make_state(self._rules)
        return state

    def forget(self, key: str, now: float) -> KubeObject:
        """Forget the object that is gone, and get its last state; take in what has come later, if anything."""
        gone = self._gone.pop(key)
        if gone.successor is not None:
            self.accept(key, gone.successor, now)
        return gone.obj

    def drop(self, key: str) -> None:
        """Keep the state no more: the object is idle."""
        del self._states[key]


def _make_matcher(handlers: Sequence[ResourceHandler]) -> Callable[[ObjectMeta], bool] | None:
    """Find out once if there are handlers for all objects, whatever they are: then, there is nothing to be asked."""
    if any(not item.labels and not item.annotations for item in handlers):
        return None
    return functools.partial(could_match, handlers)
