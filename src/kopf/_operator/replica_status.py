"""The status of this replica, for those who are asked about the operator."""

from __future__ import annotations

import asyncio

from kopf._controller.observer import Observer
from kopf._values.replica_state import ReplicaState


class ReplicaStatus(Observer):
    """Remembers what the replica is."""

    def __init__(self) -> None:
        self._state: ReplicaState | None = None
        self.is_known = asyncio.Event()

    def share_changed(self, state: ReplicaState) -> None:
        self._state = state
        self.is_known.set()

    def get(self) -> ReplicaState | None:
        """Get what it is; in any thread. ``None`` if it has not joined the others yet."""
        return self._state
