"""
Reachability: whether the server responds at all. If it does not, the logs say so once for all requests and streams.

Each request has its own attempts and delays, and would log the same again and again. So, an outage is logged when it
begins, then once a minute with the number of failures, and when it ends. The messages of single requests are only for
debugging.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging

from kopf._client.auth.credentials import redact
from kopf._client.http.transport import UnreachableError

logger = logging.getLogger(__name__)

REMINDER_INTERVAL = 60.0
"""The pause between reminders of an outage, in seconds."""

BREAKS_INTERVAL = 5.0
"""The time after a broken stream when others are not mentioned, in seconds: they break together."""

_UNREACHABLE = (UnreachableError, TimeoutError)


@dataclasses.dataclass
class _Outage:
    since: float
    said: float
    failures: int = 0


class Reachability:
    """The outages of the servers of one operator; as a rule, there is one server."""

    def __init__(self) -> None:
        self._outages: dict[str, _Outage] = {}
        self._broken_at: float | None = None

    def note_failure(self, server: str, cause: Exception, error: Exception) -> bool:
        """Note a request without a response, as both errors say. Return whether the logs tell of it already."""
        now = asyncio.get_running_loop().time()
        outage = self._outages.get(server)
        if outage is None and not isinstance(cause, _UNREACHABLE):
            return False
        if outage is None:
            outage = self._outages[server] = _Outage(since=now, said=now)
            text = "The server %s is unreachable, and Kopf keeps trying: %s"
            logger.warning(text, redact(server), error)
        outage.failures += 1
        if now - outage.said >= REMINDER_INTERVAL:
            outage.said = now
            logger.warning(
                "The server %s has been unreachable for %s; %d requests have failed. The last error: %s",
                redact(server),
                _format_duration(now - outage.since),
                outage.failures,
                error,
            )
        return True

    def note_break(self, server: str) -> bool:
        """Note a broken stream. Return whether it is one of many."""
        now = asyncio.get_running_loop().time()
        is_one_of_many = self._broken_at is not None and now - self._broken_at < BREAKS_INTERVAL
        self._broken_at = now
        return is_one_of_many or server in self._outages

    def note_response(self, server: str) -> None:
        """Note that the server has responded in any way."""
        if self._outages and (outage := self._outages.pop(server, None)) is not None:
            duration = _format_duration(asyncio.get_running_loop().time() - outage.since)
            logger.info(
                "The server %s is reachable again after %s; %d requests have failed.",
                redact(server),
                duration,
                outage.failures,
            )


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
