"""
Controllers: those of all resources that are handled now, for whoever wants an object of another resource handled.

A change of an owned object is a reason to look at its owner; a change of a used one, at its users. All are handled by
controllers that know nothing of each other, and are started and stopped as their resources come and go.
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
    """The owned objects of one resource, for the others."""

    @property
    def owners(self) -> Owners:
        """Whose handlers are called when they are changed."""

    def find(self, namespace: str | None, name: str) -> KubeObject | None:
        """Get the latest state of an owned object, if it is known."""

    def get(self, uid: str) -> KubeObject | None:
        """Get the latest state of an owned object, if it is known."""

    def list_of(self, owner: str) -> Collection[str]:
        """Get the uids of all objects that are owned by this one, by its uid."""

    def note(self, obj: KubeObject, author: str | None) -> None:
        """Take in the state of an object that was just written for this owner."""


class Wakeable(Protocol):
    """A controller, for the others."""

    @property
    def is_paused(self) -> bool:
        """Whether other operators have the priority now."""

    @property
    def children(self) -> Children | None:
        """The owned objects of its resource, if anybody asks for them."""

    def wake(self, key: str, handlers: Collection[HandlerId]) -> bool:
        """Call these handlers for the object, though it has not changed; tell if such an object is known."""


class Place(NamedTuple):
    """Where an object is, whether it exists or not."""

    resource: Resource
    namespace: str | None
    name: str


class Wakeup(NamedTuple):
    """Which handler is to be called for which object."""

    resource: Resource
    key: str
    handler: HandlerId


class References:
    """Who refers to which objects."""

    def __init__(self) -> None:
        self._users: dict[Place, dict[Wakeup, None]] = {}
        self._used: dict[Wakeup, frozenset[Place]] = {}

    def __iter__(self) -> Iterator[Wakeup]:
        return iter(self._used)

    def put(self, wakeup: Wakeup, places: Collection[Place]) -> None:
        """Note what is referred to, instead of what was before."""
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
        """Get those who refer to what is there."""
        return [*self._users.get(place, ())]


class Controllers:
    """The running controllers of an operator by their resources: at most one for each."""

    def __init__(self) -> None:
        self._running: dict[Resource, Wakeable] = {}
        self._alarms: dict[Wakeup, asyncio.TimerHandle] = {}
        self.references = References()
        """Who is handled when objects that are not owned are changed."""

    @property
    def resources(self) -> Collection[Resource]:
        """What is handled or watched now."""
        return self._running.keys()

    def add(self, resource: Resource, controller: Wakeable) -> None:
        """From now on, the objects of the resource are handled by this controller."""
        self._running[resource] = controller

    def discard(self, resource: Resource, controller: Wakeable) -> None:
        """The controller is stopped. If there is another one for the resource by now, that one stays."""
        if self._running.get(resource) is controller:
            del self._running[resource]
            for wakeup in [item for item in (*self._alarms, *self.references) if item.resource == resource]:
                self.forget(wakeup)

    def list_owned(self, owner: Resource, handler: HandlerId) -> list[Resource]:
        """Get those resources for whose objects the handler is called."""
        found = ((item, self.get_children(item)) for item in self._running)
        return [item for item, children in found if children is not None and handler in children.owners.get(owner, ())]

    def get_children(self, resource: Resource) -> Children | None:
        """Get the owned objects of the resource; ``None`` if nobody asks for them."""
        controller = self._running.get(resource)
        return None if controller is None else controller.children

    def is_paused(self, resource: Resource) -> bool:
        """Tell if the objects of the resource are left to other operators now."""
        controller = self._running.get(resource)
        return controller is not None and controller.is_paused

    def enqueue(self, resource: Resource, key: str, handlers: Collection[HandlerId]) -> bool:
        """
        Have the object handled by these handlers as soon as possible, though it has not changed itself.

        ``key`` is its uid. Many requests for one object are one call. If the object is not handled here, nothing
        happens, and the result is false.
        """
        controller = self._running.get(resource)
        return controller is not None and controller.wake(key, handlers)

    def enqueue_later(self, wakeup: Wakeup, delay: float, context: Context) -> None:
        """Do the same in so many seconds; instead of what was planned before for this object and handler."""
        if (alarm := self._alarms.get(wakeup)) is not None:
            alarm.cancel()
        loop = asyncio.get_running_loop()
        self._alarms[wakeup] = loop.call_later(delay, self._on_time, wakeup, context=context)

    def _on_time(self, wakeup: Wakeup) -> None:
        del self._alarms[wakeup]
        self.enqueue(wakeup.resource, wakeup.key, {wakeup.handler})

    def enqueue_users(self, place: Place) -> None:
        """Have all those handled who refer to what is there."""
        for wakeup in self.references.list_users(place):
            self.enqueue(wakeup.resource, wakeup.key, {wakeup.handler})

    def forget(self, wakeup: Wakeup) -> None:
        """The object exists no more, or is not handled anymore."""
        self.references.put(wakeup, ())
        if (alarm := self._alarms.pop(wakeup, None)) is not None:
            alarm.cancel()


_current: ContextVar[Controllers] = ContextVar("current_controllers")


@contextlib.contextmanager
def offering_controllers(controllers: Controllers) -> Iterator[None]:
    """Let the tools in this context, and in the tasks & threads that are started from it, know these controllers."""
    token = _current.set(controllers)
    try:
        yield
    finally:
        _current.reset(token)


def get_current_controllers() -> Controllers:
    """Get the controllers of the current operator; none outside of operators."""
    return _current.get(Controllers())
