"""The status of this replica, for the health and the readiness summary."""

from __future__ import annotations

import asyncio

from kopf._controller.observer import Observer
from kopf._values.replica_state import ReplicaState


class ReplicaStatus(Observer):
    """Remembers the latest state of the replica."""

    def __init__(self) -> None:
        self._state: ReplicaState | None = None
        self.is_known = asyncio.Event()

    def share_changed(self, state: ReplicaState) -> None:
        self._state = state
        self.is_known.set()

    def get(self) -> ReplicaState | None:
        """Return the state, in any thread; ``None`` if the replica has not joined the others yet."""
        return self._state
