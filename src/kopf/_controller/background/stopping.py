"""
Stopping: how the functions that run in the background are told to exit, and how they ask about that.

A daemon gets its checker as the ``stopped`` kwarg: of the kind that fits the function, synchronous or asynchronous.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import threading

from kopf._handlers.time_source import time_source


class DaemonStoppingReason(enum.Flag):
    """Why a daemon is to exit, and how far the stopping has gone; several reasons can be combined."""

    DONE = enum.auto()
    FILTERS_MISMATCH = enum.auto()
    RESOURCE_DELETED = enum.auto()
    OPERATOR_PAUSING = enum.auto()
    OPERATOR_EXITING = enum.auto()
    DAEMON_SIGNALLED = enum.auto()
    DAEMON_CANCELLED = enum.auto()
    DAEMON_ABANDONED = enum.auto()
    RESOURCE_HANDED_OVER = enum.auto()


class DaemonStopper:
    """The signal to stop: set once, from the event loop of the operator, for one or several reasons."""

    __slots__ = ("_async_event", "_sync_event", "reason")

    def __init__(self) -> None:
        self.reason: DaemonStoppingReason | None = None
        self._async_event: asyncio.Event | None = None
        self._sync_event: threading.Event | None = None

    @property
    def is_set(self) -> bool:
        """Whether the daemon is asked to stop."""
        return self.reason is not None

    def set(self, reason: DaemonStoppingReason) -> None:
        """Ask to stop, or add one more reason to that."""
        self.reason = reason if self.reason is None else self.reason | reason
        if self._async_event is not None:
            self._async_event.set()
        if self._sync_event is not None:
            self._sync_event.set()

    @property
    def async_event(self) -> asyncio.Event:
        """The event for those who wait in the event loop."""
        if self._async_event is None:
            self._async_event = asyncio.Event()
            if self.is_set:
                self._async_event.set()
        return self._async_event

    @property
    def sync_event(self) -> threading.Event:
        """
        The event for those who wait in threads; it can be made there, too.

        If it is set meanwhile by the event loop, either that one sees the event, or this one sees the reason.
        """
        if self._sync_event is None:
            self._sync_event = time_source.get().make_event()
            if self.is_set:
                self._sync_event.set()
        return self._sync_event


class DaemonStopped:
    """The ``stopped`` kwarg of daemons: whether it is time to exit. It can be used as a boolean value."""

    def __init__(self, stopper: DaemonStopper) -> None:
        self._stopper = stopper

    def __bool__(self) -> bool:
        return self._stopper.is_set

    def is_set(self) -> bool:
        """Tell if the daemon is asked to exit."""
        return self._stopper.is_set

    @property
    def reason(self) -> DaemonStoppingReason | None:
        """Why it is asked to exit; ``None`` if it is not."""
        return self._stopper.reason


class SyncDaemonStopperChecker(DaemonStopped):
    """The ``stopped`` kwarg of daemons which are regular functions."""

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep for some time (seconds), or until the daemon is asked to exit; tell if it is."""
        return self._stopper.sync_event.wait(timeout)


class AsyncDaemonStopperChecker(DaemonStopped):
    """The ``stopped`` kwarg of daemons which are coroutine functions."""

    async def wait(self, timeout: float | None = None) -> bool:
        """Sleep for some time (seconds), or until the daemon is asked to exit; tell if it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._stopper.async_event.wait()
        return self._stopper.is_set


Stopped = AsyncDaemonStopperChecker
"""The type of the ``stopped`` kwarg for coroutine functions: ``await stopped.wait(60)``."""
SyncStopped = SyncDaemonStopperChecker
"""The type of the ``stopped`` kwarg for regular functions: ``stopped.wait(60)``."""
