"""
The table of connections: the stage of each, and the choice of the one to close if there are too many.

A connection is silent if the server waits for the client: to finish the handshake, the request, or the reading of the
response, or to send the next request. Silent connections are closed after a time limit. If there are too many
connections, each new one evicts a silent one: the oldest in the largest group, where the groups are the stages. If
attackers fill a stage, clients in the other stages are safe, and so are faster clients in the same stage. Connections
that are not silent are never closed: if none is silent, the new ones wait.

This module has neither sockets nor clocks: connections are anything hashable, and the time is any growing number.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


class Stage(enum.IntEnum):
    """The progress of a connection."""

    MUTE = 0
    """The client has sent nothing: it costs nothing but a socket."""

    GREETING = 1
    """Something has come, but the TLS handshake is not complete."""

    STRANGER = 2
    """The first headers are not complete."""

    SENDER = 3
    """The first headers are complete, the body is not."""

    REGULAR = 4
    """The server has responded to it before."""


class ConnectionTable(Generic[C]):
    """All open connections of one server; new ones are ``MUTE``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """The largest number of connections."""
        self._stages: dict[C, Stage] = {}
        # The silent ones with their deadlines, ordered by the time when they reached their stages.
        self._silent: tuple[dict[C, float], ...] = tuple({} for _ in Stage)

    @property
    def is_full(self) -> bool:
        """Whether a new connection must evict another one."""
        return len(self._stages) >= self.limit

    @property
    def is_busy(self) -> bool:
        """Whether no new connection fits, as no other one is silent: the server works for all."""
        return self.is_full and self.find_evictable() is None

    def add(self, connection: C, deadline: float) -> None:
        """Add a new connection, which must send something before the deadline."""
        self._stages[connection] = Stage.MUTE
        self._silent[Stage.MUTE][connection] = deadline

    def remove(self, connection: C) -> None:
        """Forget the connection, if it is known."""
        stage = self._stages.pop(connection, None)
        if stage is not None:
            self._silent[stage].pop(connection, None)

    def advance(self, connection: C, stage: Stage) -> bool:
        """Move a silent connection to another stage with the same deadline. Return false if it is gone already."""
        if connection not in self._stages:
            return False
        deadline = self._silent[self._stages[connection]].pop(connection)
        self._stages[connection] = stage
        self._silent[stage][connection] = deadline
        return True

    def silence(self, connection: C, stage: Stage, deadline: float) -> None:
        """Wait for the connection until the deadline, if it is in the table. Its stage never goes back."""
        if connection in self._stages:
            self.engage(connection)
            stage = self._stages[connection] = max(stage, self._stages[connection])
            self._silent[stage][connection] = deadline

    def engage(self, connection: C) -> None:
        """Mark the connection as not silent, if it is in the table: it is not closed, however long it lasts."""
        if connection in self._stages:
            self._silent[self._stages[connection]].pop(connection, None)

    def list_mute(self) -> list[C]:
        """List the connections that have sent nothing."""
        return [*self._silent[Stage.MUTE]]

    def find_evictable(self) -> C | None:
        """Choose the connection to evict; ``None`` if none is silent."""
        largest = max(self._silent, key=lambda group: len(group))
        return next(iter(largest), None)

    def list_expired(self, now: float) -> list[C]:
        """List the silent connections that have missed their deadlines."""
        return [connection for group in self._silent for connection, deadline in group.items() if deadline <= now]

    def get_deadline(self) -> float | None:
        """Get the nearest deadline of a silent connection; ``None`` if there are none."""
        return min((deadline for group in self._silent for deadline in group.values()), default=None)
