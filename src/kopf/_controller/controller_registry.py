"""
The registry of running controllers: how a controller requests the handling of an object of another resource.

A change of an owned object is a reason to handle its owner; a change of a used one, to handle its users. Their
controllers do not know each other, and start and stop as their resources come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from contextvars import Context, ContextVar
from typing import NamedTuple, Protocol

from kopf._handlers.registry import Owners
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource


class Children(Protocol):
    """The owned objects of one resource, for other controllers."""

    @property
    def owners(self) -> Owners:
        """The handlers of the owners that react to their changes."""

    def find(self, namespace: str | None, name: str) -> KubeObject | None:
        """Return the latest state of an owned object, if it is known."""

    def get(self, uid: str) -> KubeObject | None:
        """Return the latest state of an owned object, if it is known."""

    def list_of(self, owner: str) -> Collection[str]:
        """List the UIDs of all objects with this owner, by its UID."""

    def note(self, obj: KubeObject, author: str | None) -> None:
        """Accept the state of an object that this owner has just written."""


class Wakeable(Protocol):
    """A controller, for other controllers."""

    @property
    def is_paused(self) -> bool:
        """Whether other operators have the priority now."""

    @property
    def children(self) -> Children | None:
        """The owned objects of its resource, if any handlers need them."""

    def wake(self, key: str, handlers: Collection[HandlerId]) -> bool:
        """Request calls of these handlers, though the object has not changed; return whether it is known."""


class Place(NamedTuple):
    """The place of an object, which need not exist."""

    resource: Resource
    namespace: str | None
    name: str


class Wakeup(NamedTuple):
    """A request to call a handler for an object."""

    resource: Resource
    key: str
    handler: HandlerId


class References:
    """The references of handled objects to other objects."""

    def __init__(self) -> None:
        self._users: dict[Place, dict[Wakeup, None]] = {}
        self._used: dict[Wakeup, frozenset[Place]] = {}

    def __iter__(self) -> Iterator[Wakeup]:
        return iter(self._used)

    def put(self, wakeup: Wakeup, places: Collection[Place]) -> None:
        """Replace the references."""
        before, now = self._used.pop(wakeup, frozenset()), frozenset(places)
        for place in before - now:
            users = self._users[place]
            del users[wakeup]
            if not users:
                del self._users[place]
        for place in now - before:
            self._users.setdefault(place, {})[wakeup] = None
        if now:
            self._used[wakeup] = now

    def list_users(self, place: Place) -> list[Wakeup]:
        """List the users of the object at this place."""
        return [*self._users.get(place, ())]


class Controllers:
    """The running controllers of an operator by their resources: at most one for each."""

    def __init__(self) -> None:
        self._running: dict[Resource, Wakeable] = {}
        self._alarms: dict[Wakeup, asyncio.TimerHandle] = {}
        self.references = References()
        """The users to handle when the objects that they use change."""

    @property
    def resources(self) -> Collection[Resource]:
        """The resources that are handled or watched now."""
        return self._running.keys()

    def add(self, resource: Resource, controller: Wakeable) -> None:
        """Register the controller of the resource."""
        self._running[resource] = controller

    def discard(self, resource: Resource, controller: Wakeable) -> None:
        """Unregister a stopped controller. If the resource has a new one by now, that one stays."""
        if self._running.get(resource) is controller:
            del self._running[resource]
            for wakeup in [item for item in (*self._alarms, *self.references) if item.resource == resource]:
                self.forget(wakeup)

    def list_owned(self, owner: Resource, handler: HandlerId) -> list[Resource]:
        """List the resources of owned objects that the handler reacts to."""
        found = ((item, self.get_children(item)) for item in self._running)
        return [item for item, children in found if children is not None and handler in children.owners.get(owner, ())]

    def get_children(self, resource: Resource) -> Children | None:
        """Return the owned objects of the resource; ``None`` if no handler needs them."""
        controller = self._running.get(resource)
        return None if controller is None else controller.children

    def is_paused(self, resource: Resource) -> bool:
        """Tell if other operators have the priority for the resource now."""
        controller = self._running.get(resource)
        return controller is not None and controller.is_paused

    def enqueue(self, resource: Resource, key: str, handlers: Collection[HandlerId]) -> bool:
        """
        Request calls of these handlers as soon as possible, though the object has not changed.

        ``key`` is its UID. Many requests for one object result in one call. If this operator does not handle the
        object, nothing happens, and the result is false.
        """
        controller = self._running.get(resource)
        return controller is not None and controller.wake(key, handlers)

    def enqueue_later(self, wakeup: Wakeup, delay: float, context: Context) -> None:
        """Do so in so many seconds, instead of an earlier request for this object and handler."""
        if (alarm := self._alarms.get(wakeup)) is not None:
            alarm.cancel()
        loop = asyncio.get_running_loop()
        self._alarms[wakeup] = loop.call_later(delay, self._on_time, wakeup, context=context)

    def _on_time(self, wakeup: Wakeup) -> None:
        del self._alarms[wakeup]
        self.enqueue(wakeup.resource, wakeup.key, {wakeup.handler})

    def enqueue_users(self, place: Place) -> None:
        """Request the handling of all users of the object at this place."""
        for wakeup in self.references.list_users(place):
            self.enqueue(wakeup.resource, wakeup.key, {wakeup.handler})

    def forget(self, wakeup: Wakeup) -> None:
        """Drop the requests and references of an object that does not exist, or is not handled anymore."""
        self.references.put(wakeup, ())
        if (alarm := self._alarms.pop(wakeup, None)) is not None:
            alarm.cancel()


_current: ContextVar[Controllers] = ContextVar("current_controllers")


@contextlib.contextmanager
def offering_controllers(controllers: Controllers) -> Iterator[None]:
    """Offer these controllers to the tools in this context, and in its tasks and threads."""
    token = _current.set(controllers)
    try:
        yield
    finally:
        _current.reset(token)


def get_current_controllers() -> Controllers:
    """Return the controllers of the current operator; none outside of operators."""
    return _current.get(Controllers())
