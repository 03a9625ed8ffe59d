"""
The facts of the controller: the way of an object from its event to the patch.

An object is observed, queued, taken by a worker; it is looked at once or more by the worker, see the facts of looks.
The facts that refer to nothing which could refer to them (``gc=False``) are spared from the collector of garbage.
"""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import Any

from kopf._client.resources.targets import Target
from kopf._facts.bus import Fact
from kopf._health.liveness import Heartbeat
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource


class ControllerStarted(Fact, frozen=True, eq=False):
    """The objects of a resource are handled from now on."""

    resource: Resource
    controller: Any
    """The :class:`Controller`, to be asked about its state: its type is of a floor above."""


class ControllerStopped(Fact, frozen=True, eq=False):
    """The objects of the resource are not handled anymore by this controller."""

    resource: Resource
    controller: Any


class StreamOpened(Fact, frozen=True, eq=False):
    """A target is going to be listed and watched, for as long as that is permitted and wanted."""

    target: Target
    heartbeat: Heartbeat
    """When there was any sign of life from there."""
    known: Sized
    """What is known of its objects."""


class StreamClosed(Fact, frozen=True, eq=False):
    """The target is not watched anymore, or not for now."""

    opened: StreamOpened


class ObjectObserved(Fact, frozen=True, eq=False, gc=False):
    """The state of an object has come on the stream, or from a listing."""

    is_frequent = True
    resource: Resource
    key: str
    type: str | None
    """``ADDED``, ``MODIFIED``, ``DELETED``; ``None`` if it is from a listing."""
    obj: KubeObject
    at: float


class ObjectQueued(Fact, frozen=True, eq=False, gc=False):
    """There is something to do for an object that was neither waiting nor worked on."""

    is_frequent = True
    resource: Resource
    key: str
    at: float


class WorkBegun(Fact, frozen=True, eq=False, gc=False):
    """A worker has taken the object."""

    is_frequent = True
    resource: Resource
    key: str
    at: float


class WorkEnded(Fact, frozen=True, eq=False, gc=False):
    """The worker has done all that was to be done for the object now."""

    is_frequent = True
    resource: Resource
    key: str
    at: float


class PauseChanged(Fact, frozen=True, eq=False):
    """The operator has given way to others, or goes on."""

    reasons: Collection[str]
    """Why it is paused, for humans; empty if it goes on."""
    pause: Any
    """The :class:`Pause`, to be asked about the reasons later: they can change while it is on."""
