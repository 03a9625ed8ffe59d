"""
Reachability: whether the server answers at all. If it does not, that is said for all requests & streams at once.

Each of them has its own attempts & delays, and would say the same again and again. So it is said when it begins, once a
minute with the number of failures while it lasts, and when it is over. What the others say of that, is for debugging.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging

from kopf._client.auth.credentials import redact
from kopf._client.http.transport import UnreachableError

logger = logging.getLogger(__name__)

REMINDER_INTERVAL = 60.0
"""How often it is repeated as long as the server does not answer, in seconds."""

BREAKS_INTERVAL = 5.0
"""For how long after one broken stream the others are not mentioned, in seconds: they break together."""

_UNREACHABLE = (UnreachableError, TimeoutError)


@dataclasses.dataclass
class _Outage:
    since: float
    said: float
    failures: int = 0


class Reachability:
    """What is known of the servers of one operator; there is one of them, as a rule."""

    def __init__(self) -> None:
        self._outages: dict[str, _Outage] = {}
        self._broken_at: float | None = None

    def note_failure(self, server: str, cause: Exception, error: Exception) -> bool:
        """A request has got no response, as both errors say; tell if nothing is to be added to what is said here."""
        now = asyncio.get_running_loop().time()
        outage = self._outages.get(server)
        if outage is None and not isinstance(cause, _UNREACHABLE):
            return False
        if outage is None:
            outage = self._outages[server] = _Outage(since=now, said=now)
            text = "The server %s cannot be reached, and is asked again until it can: %s"
            logger.warning(text, redact(server), error)
        outage.failures += 1
        if now - outage.said >= REMINDER_INTERVAL:
            outage.said = now
            logger.warning(
                "The server %s cannot be reached for %s; %d requests have failed. The last error: %s",
                redact(server),
                _format_duration(now - outage.since),
                outage.failures,
                error,
            )
        return True

    def note_break(self, server: str) -> bool:
        """An open stream has broken; tell if it is one of many."""
        now = asyncio.get_running_loop().time()
        is_one_of_many = self._broken_at is not None and now - self._broken_at < BREAKS_INTERVAL
        self._broken_at = now
        return is_one_of_many or server in self._outages

    def note_response(self, server: str) -> None:
        """The server has answered, whatever it was."""
        if self._outages and (outage := self._outages.pop(server, None)) is not None:
            duration = _format_duration(asyncio.get_running_loop().time() - outage.since)
            logger.info(
                "The server %s can be reached again after %s; %d requests have failed.",
                redact(server),
                duration,
                outage.failures,
            )


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
