"""
Liveness: the signs of life of the operator's parts, noted as they work, and looked at when the health is asked for.

They are written in the event loop of the operator, and can be read from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kopf._settings.settings import OperatorSettings

_TOLERATED_FAILURES = 2
"""How many failures in a row of a supervised task are not a problem yet: it can be bad luck."""


_MAX_IDENTITY_LENGTH = 300


class Heartbeat:
    """Beats whenever something comes from a watch stream, be it only a bookmark."""

    __slots__ = ("_loop", "name", "seen")

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self.seen = self._loop.time()

    def beat(self) -> None:
        """Note a sign of life."""
        self.seen = self._loop.time()

    @property
    def silence(self) -> float:
        """How long ago the last one was, in seconds."""
        return max(0.0, self._loop.time() - self.seen)


class Senior(NamedTuple):
    """Another operator in favour of which this one is paused."""

    identity: str
    priority: int
    lifetime: float
    """For how long it is considered alive since it was seen, in seconds; as limited."""
    is_limited: bool
    deadline: float
    """When it is considered dead, by the clock of the event loop."""


class Liveness:
    """The signs of life of one operator."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._heartbeats: set[Heartbeat] = set()
        self._failures: dict[str, tuple[str, str]] = {}
        self._seniors: dict[str, Sequence[Senior]] = {}

    @contextlib.contextmanager
    def watching(self, name: str) -> Iterator[Heartbeat]:
        """Expect signs of life from a stream as long as the block lasts; denied & finished streams are not expected."""
        heartbeat = Heartbeat(name)
        self._heartbeats.add(heartbeat)
        try:
            yield heartbeat
        finally:
            self._heartbeats.discard(heartbeat)

    def note_failure(self, name: str, failures: int, error: str) -> None:
        """Note that a supervised task has failed, and how many times in a row by now."""
        if failures > _TOLERATED_FAILURES:
            self._failures[name] = (f"The {name} has failed {failures} times in a row", error)

    def note_recovery(self, name: str) -> None:
        """Note that a supervised task works well, or is not needed anymore."""
        self._failures.pop(name, None)

    def note_seniors(self, place: str, seniors: Sequence[Senior]) -> None:
        """Note in whose favour the operator is paused by that peering; of nobody's if it is not."""
        if seniors:
            self._seniors[place] = seniors
        else:
            self._seniors.pop(place, None)

    def describe_seniors(self) -> list[dict[str, Any]]:
        """Describe those in whose favour the operator is paused, and for how long at most if they vanish."""
        now = self._loop.time()
        return [
            {
                "peering": place,
                "identity": senior.identity[:_MAX_IDENTITY_LENGTH],
                "priority": senior.priority,
                "lifetime": senior.lifetime,
                **({"limited": True} if senior.is_limited else {}),
                "remaining": max(0, math.ceil(senior.deadline - now)),
            }
            for place, seniors in list(self._seniors.items())
            for senior in seniors
        ]

    def find_problems(self, settings: OperatorSettings) -> list[str]:
        """Describe everything that is wrong; nothing if the operator is healthy."""
        is_shown = settings.health.show_errors
        problems = [
            f"{text}: {error if is_shown else 'see the log of the operator.'}"
            for text, error in list(self._failures.values())
        ]
        limit, inactivity = settings.health.stream_timeout, settings.watching.inactivity_timeout
        if limit is not None and inactivity is not None:
            # Not all servers send bookmarks: then, it is normal that a stream is silent until it is reopened.
            limit, now = max(limit, 2 * inactivity), self._loop.time()
            for heartbeat in list(self._heartbeats):
                silence = now - heartbeat.seen
                if silence > limit:
                    problems.append(
                        f"The watch-stream for {heartbeat.name} is stale, with nothing for {silence:.0f} s."
                    )
        return problems
