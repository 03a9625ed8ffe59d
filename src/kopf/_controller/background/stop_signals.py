"""
Stopping: how Kopf asks daemons and timers to exit, and how they check for this.

A daemon gets its checker as the ``stopped`` kwarg: a synchronous or an asynchronous one, as its function is.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import threading

from kopf._handlers.time_source import time_source


class DaemonStoppingReason(enum.Flag):
    """Why a daemon must exit, and how far the stopping has gone; a combination of flags."""

    DONE = enum.auto()
    """The function has exited by itself."""
    FILTERS_MISMATCH = enum.auto()
    """The object no longer matches the filters of the handler."""
    RESOURCE_DELETED = enum.auto()
    """The object is in deletion, or is gone."""
    OPERATOR_PAUSING = enum.auto()
    """The operator pauses, because another one has a higher priority."""
    OPERATOR_EXITING = enum.auto()
    """The operator exits."""
    DAEMON_SIGNALLED = enum.auto()
    """The daemon has been asked to stop, by the ``stopped`` argument."""
    DAEMON_CANCELLED = enum.auto()
    """The daemon did not stop in ``cancellation_backoff``, and has been cancelled."""
    DAEMON_ABANDONED = enum.auto()
    """The daemon did not stop in ``cancellation_timeout`` either, and Kopf no longer waits for it."""
    RESOURCE_HANDED_OVER = enum.auto()
    """Another replica of the operator handles the object from now on."""


class DaemonStopper:
    """The signal to stop: set in the event loop of the operator, for one or several reasons, and never unset."""

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
        """Ask to stop, or add a reason."""
        self.reason = reason if self.reason is None else self.reason | reason
        if self._async_event is not None:
            self._async_event.set()
        if self._sync_event is not None:
            self._sync_event.set()

    @property
    def async_event(self) -> asyncio.Event:
        """The event for waiting in the event loop."""
        if self._async_event is None:
            self._async_event = asyncio.Event()
            if self.is_set:
                self._async_event.set()
        return self._async_event

    @property
    def sync_event(self) -> threading.Event:
        """
        The event for waiting in threads; a thread can make it, too.

        If the event loop sets the signal meanwhile, either the event loop sees the event, or this thread the reason.
        """
        if self._sync_event is None:
            self._sync_event = time_source.get().make_event()
            if self.is_set:
                self._sync_event.set()
        return self._sync_event


class DaemonStopped:
    """The ``stopped`` kwarg of daemons: true if it is time to exit."""

    def __init__(self, stopper: DaemonStopper) -> None:
        self._stopper = stopper

    def __bool__(self) -> bool:
        return self._stopper.is_set

    def is_set(self) -> bool:
        """Tell if the daemon must exit."""
        return self._stopper.is_set

    @property
    def reason(self) -> DaemonStoppingReason | None:
        """Why the daemon must exit; ``None`` if it need not."""
        return self._stopper.reason


class SyncDaemonStopperChecker(DaemonStopped):
    """The ``stopped`` kwarg of daemons that are regular functions."""

    def wait(self, timeout: float | None = None) -> bool:
        """
        Sleep for ``timeout`` seconds (by default, forever), but only until the daemon must exit.

        Returns whether the daemon must exit.
        """
        return self._stopper.sync_event.wait(timeout)


class AsyncDaemonStopperChecker(DaemonStopped):
    """The ``stopped`` kwarg of daemons that are coroutine functions."""

    async def wait(self, timeout: float | None = None) -> bool:
        """
        Sleep for ``timeout`` seconds (by default, forever), but only until the daemon must exit.

        Returns whether the daemon must exit.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._stopper.async_event.wait()
        return self._stopper.is_set


Stopped = AsyncDaemonStopperChecker
"""The type of the ``stopped`` kwarg for coroutine functions: ``await stopped.wait(60)``."""
SyncStopped = SyncDaemonStopperChecker
"""The type of the ``stopped`` kwarg for regular functions: ``stopped.wait(60)``."""
