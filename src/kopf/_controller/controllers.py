"""
Controllers: those of all resources that are handled now, for whoever wants an object of another resource handled.

A change of an owned object is a reason to look at its owner. Both are handled by controllers that know nothing of each
other, and are started and stopped as their resources come and go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from typing import Protocol

from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource


class Wakeable(Protocol):
    """A controller, for the others."""

    def wake(self, key: str, handlers: Collection[HandlerId]) -> bool:
        """Call these handlers for the object, though it has not changed; tell if such an object is known."""

    def find_child(self, namespace: str | None, name: str) -> KubeObject | None:
        """Get the latest state of an owned object, if it is known."""

    def note_child(self, obj: KubeObject) -> None:
        """Take in the state of an object that was just written."""


class Controllers:
    """The running controllers of an operator by their resources: at most one for each."""

    def __init__(self) -> None:
        self._running: dict[Resource, Wakeable] = {}

    def add(self, resource: Resource, controller: Wakeable) -> None:
        """From now on, the objects of the resource are handled by this controller."""
        self._running[resource] = controller

    def discard(self, resource: Resource, controller: Wakeable) -> None:
        """The controller is stopped. If there is another one for the resource by now, that one stays."""
        if self._running.get(resource) is controller:
            del self._running[resource]

    def find_child(self, resource: Resource, namespace: str | None, name: str) -> KubeObject | None:
        """Get the latest state of an object that is owned by those who are handled here; ``None`` if it is unknown."""
        controller = self._running.get(resource)
        return None if controller is None else controller.find_child(namespace, name)

    def note_child(self, resource: Resource, obj: KubeObject) -> None:
        """The object was just written: its state is newer than what has come by the stream until now."""
        if (controller := self._running.get(resource)) is not None:
            controller.note_child(obj)

    def enqueue(self, resource: Resource, key: str, handlers: Collection[HandlerId]) -> bool:
        """
        Have the object handled by these handlers as soon as possible, though it has not changed itself.

        ``key`` is its uid. Many requests for one object are one call. If the object is not handled here, nothing
        happens, and the result is false.
        """
        controller = self._running.get(resource)
        return controller is not None and controller.wake(key, handlers)


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
