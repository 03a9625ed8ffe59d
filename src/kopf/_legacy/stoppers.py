"""The signal to stop a daemon, for those who call their daemons themselves, e.g. in tests."""

from __future__ import annotations

from kopf._controller.background import stopping
from kopf._controller.background.stopping import (
    AsyncDaemonStopperChecker,
    DaemonStoppingReason,
    SyncDaemonStopperChecker,
)


class DaemonStopper:
    """Its waiters are what daemons get as ``stopped``."""

    def __init__(self) -> None:
        self._stopper = stopping.DaemonStopper()
        self.sync_waiter = SyncDaemonStopperChecker(self._stopper)
        self.async_waiter = AsyncDaemonStopperChecker(self._stopper)

    @property
    def reason(self) -> DaemonStoppingReason | None:
        """Why the daemon is asked to exit; ``None`` if it is not, or nobody knows."""
        return self._stopper.reason or None

    def is_set(self, reason: DaemonStoppingReason | None = None) -> bool:
        """Tell if the daemon is asked to exit: at all, or for that reason."""
        return self._stopper.is_set if reason is None else bool(self.reason and reason in self.reason)

    def set(self, reason: DaemonStoppingReason | None = None) -> None:
        """Ask the daemon to exit. Several reasons are combined."""
        self._stopper.set(DaemonStoppingReason(0) if reason is None else reason)
