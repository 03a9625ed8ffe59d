"""The signal to stop a daemon, for code that calls daemons itself, e.g. in tests."""

from __future__ import annotations

from kopf._controller.background import stop_signals
from kopf._controller.background.stop_signals import (
    AsyncDaemonStopperChecker,
    DaemonStoppingReason,
    SyncDaemonStopperChecker,
)


class DaemonStopper:
    """The signal to stop a daemon. Daemons get one of its waiters as ``stopped``."""

    def __init__(self) -> None:
        self._stopper = stop_signals.DaemonStopper()
        self.sync_waiter = SyncDaemonStopperChecker(self._stopper)
        self.async_waiter = AsyncDaemonStopperChecker(self._stopper)

    @property
    def reason(self) -> DaemonStoppingReason | None:
        """The reasons to exit; ``None`` if there are none or they are unknown."""
        return self._stopper.reason or None

    def is_set(self, reason: DaemonStoppingReason | None = None) -> bool:
        """Tell if the daemon must exit: for any reason, or for this reason."""
        return self._stopper.is_set if reason is None else bool(self.reason and reason in self.reason)

    def set(self, reason: DaemonStoppingReason | None = None) -> None:
        """Ask the daemon to exit. Repeated calls combine their reasons."""
        self._stopper.set(DaemonStoppingReason(0) if reason is None else reason)
