"""
Connections: who is connected, how far they have come, and who goes if there are too many.

A connection is silent if it is its client's turn: to finish the handshake, the request, or the reading of the response,
or to send the next request. Silent connections are closed in time. If there are too many of all, a silent one is closed
for each new one: the oldest one of the largest group, where the groups are the stages. Whichever stage the attackers
fill, those in the other stages are safe; so are those in the same stage who are faster. The connections
that are not silent are never closed: if all are such, the new ones have to wait.

There are no sockets and no clocks here: connections are anything hashable, and the time is any growing number.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


class Stage(enum.IntEnum):
    """How far the connection has come."""

    MUTE = 0
    """Nothing has come from there: it costs us nothing but a socket."""

    GREETING = 1
    """Something has come, but not the whole TLS handshake."""

    STRANGER = 2
    """The first headers are not complete."""

    SENDER = 3
    """The first headers are complete, the body is not."""

    REGULAR = 4
    """It was served before."""


class ConnectionTable(Generic[C]):
    """All open connections of one server; new ones are ``MUTE``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """How many of them to keep."""
        self._stages: dict[C, Stage] = {}
        # Those that are silent, with their deadlines; ordered by the time when they have come to their stages.
        self._silent: tuple[dict[C, float], ...] = tuple({} for _ in Stage)

    @property
    def is_full(self) -> bool:
        """Whether one has to go before another one comes."""
        return len(self._stages) >= self.limit

    @property
    def is_busy(self) -> bool:
        """Whether nobody can come, as nobody can go: with all of them, it is our turn."""
        return self.is_full and self.find_evictable() is None

    def add(self, connection: C, deadline: float) -> None:
        """Take notice of a new connection, which is to say something until the deadline."""
        self._stages[connection] = Stage.MUTE
        self._silent[Stage.MUTE][connection] = deadline

    def remove(self, connection: C) -> None:
        """Forget the connection, if it is known."""
        stage = self._stages.pop(connection, None)
        if stage is not None:
            self._silent[stage].pop(connection, None)

    def advance(self, connection: C, stage: Stage) -> bool:
        """Move the silent connection to another stage, with no more time; tell if it was not too late for that."""
        if connection not in self._stages:
            return False
        deadline = self._silent[self._stages[connection]].pop(connection)
        self._stages[connection] = stage
        self._silent[stage][connection] = deadline
        return True

    def silence(self, connection: C, stage: Stage, deadline: float) -> None:
        """Give the connection, if it is known, its turn until the deadline; its stage can become later, not earlier."""
        if connection in self._stages:
            self.engage(connection)
            stage = self._stages[connection] = max(stage, self._stages[connection])
            self._silent[stage][connection] = deadline

    def engage(self, connection: C) -> None:
        """Take the turn, if the connection is known: it is not closed, however long it lasts."""
        if connection in self._stages:
            self._silent[self._stages[connection]].pop(connection, None)

    def list_mute(self) -> list[C]:
        """List the connections that have sent nothing."""
        return [*self._silent[Stage.MUTE]]

    def find_evictable(self) -> C | None:
        """Choose who goes for the sake of the others; ``None`` if nobody is silent."""
        largest = max(self._silent, key=lambda group: len(group))
        return next(iter(largest), None)

    def list_expired(self, now: float) -> list[C]:
        """List the silent connections whose time is over."""
        return [connection for group in self._silent for connection, deadline in group.items() if deadline <= now]

    def get_deadline(self) -> float | None:
        """When the next silent connection is to be closed; ``None`` if there are none."""
        return min((deadline for group in self._silent for deadline in group.values()), default=None)
