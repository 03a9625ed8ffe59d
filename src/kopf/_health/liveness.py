"""
Liveness: the signs of life from the parts of the operator, which the health reports on request.

The event loop of the operator writes them. Any thread can read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kopf._settings.settings import OperatorSettings

_TOLERATED_FAILURES = 2
"""The number of failures in a row of a supervised task that are not a problem yet: they can be bad luck."""


_MAX_IDENTITY_LENGTH = 300


class Heartbeat:
    """Beats whenever anything comes from a watch stream, even a bookmark."""

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
        """The time since the last sign of life, in seconds."""
        return max(0.0, self._loop.time() - self.seen)


class Senior(NamedTuple):
    """Another operator, in favour of which this one is paused."""

    identity: str
    priority: int
    lifetime: float
    """The time for which it counts as alive after its last sign of life, in seconds, as limited."""
    is_limited: bool
    deadline: float
    """The time when it counts as dead, by the clock of the event loop."""


class Liveness:
    """The signs of life of one operator."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._heartbeats: set[Heartbeat] = set()
        self._failures: dict[str, tuple[str, str]] = {}
        self._seniors: dict[str, Sequence[Senior]] = {}

    @contextlib.contextmanager
    def watching(self, name: str) -> Iterator[Heartbeat]:
        """Expect signs of life from a stream during the block. Nothing is expected of denied and finished streams."""
        heartbeat = Heartbeat(name)
        self._heartbeats.add(heartbeat)
        try:
            yield heartbeat
        finally:
            self._heartbeats.discard(heartbeat)

    def note_failure(self, name: str, failures: int, error: str) -> None:
        """Note that a supervised task has failed, so many times in a row by now."""
        if failures > _TOLERATED_FAILURES:
            self._failures[name] = (f"The {name} has failed {failures} times in a row", error)

    def note_recovery(self, name: str) -> None:
        """Note that a supervised task works, or is no longer needed."""
        self._failures.pop(name, None)

    def note_seniors(self, place: str, seniors: Sequence[Senior]) -> None:
        """Note the operators in whose favour that peering pauses this one; none if it does not."""
        self._seniors[place] = seniors

    def describe_seniors(self) -> list[dict[str, Any]]:
        """Describe the operators in whose favour this one is paused, and the longest pause if they vanish."""
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
        """Describe all problems; none if the operator is healthy."""
        is_shown = settings.health.show_errors
        problems = [
            f"{text}: {error if is_shown else 'see the log of the operator.'}"
            for text, error in list(self._failures.values())
        ]
        limit, inactivity = settings.health.stream_timeout, settings.watching.inactivity_timeout
        if limit is not None and inactivity is not None:
            # Not all servers send bookmarks: then, streams can be silent until they are reopened.
            limit, now = max(limit, 2 * inactivity), self._loop.time()
            for heartbeat in list(self._heartbeats):
                silence = now - heartbeat.seen
                if silence > limit:
                    problems.append(
                        f"The watch-stream for {heartbeat.name} is stale, with nothing for {silence:.0f} s."
                    )
        return problems
