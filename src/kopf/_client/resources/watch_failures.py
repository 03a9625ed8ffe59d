"""
The failures of one watcher: counts them, decides on the pauses after them, and tells when to list everything anew.

It does no I/O and never waits.
"""

from __future__ import annotations

import random

from kopf._client.errors import APIError, APIGoneError, APINetworkError
from kopf._client.http.retry_delays import get_delay
from kopf._settings.settings import OperatorSettings

MAX_BACKOFF = 30.0
"""The longest pause between attempts when they fail in a row, in seconds."""

MIN_BACKOFF = 0.1
"""The shortest pause after a failure, in seconds, even if the configured one is shorter."""

MAX_BROKEN_STREAMS = 3
"""The number of streams in a row that may break at the same version; then, everything is listed anew."""


_QUIET_PART = 0.9
"""The share of the longest silence after which a server without bookmarks must end the stream."""


class BrokenStreamError(Exception):
    """The stream contains something unusable, e.g. a garbled line or an error, and must be reopened."""


class WatchFailures:
    """Counts the failures in a row. All delays are in seconds."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._broken_streams = 0
        self._is_quiet = False
        """Whether the server seems to send no bookmarks."""
        self.is_productive = False
        """Whether the current attempt has brought anything. Then it is no failure, regardless of its end."""

    def begin(self) -> None:
        """Begin another attempt to list or to watch."""
        self.is_productive = False

    def note_progress(self) -> None:
        """Note that the version has changed: something has come from the stream."""
        self.is_productive = True
        self._broken_streams = 0
        self._is_quiet = False

    def accept_end(self) -> float:
        """Accept the normal end of a stream, which happens every few minutes. Return the pause, in seconds."""
        if self.is_productive:
            self._failures = 0
            return self._settings.watching.reconnect_backoff
        self._failures += 1
        return self._get_backoff()

    def accept_failure(self, error: Exception) -> float:
        """Accept a failure. Return the pause, in seconds, also as the server demands it."""
        self._failures = 0 if self.is_productive else self._failures + 1
        delay = self._get_backoff()
        if isinstance(error, APIError | APINetworkError):
            enforce = self._settings.networking.enforce_retry_after
            delay = get_delay(error, delay, enforce_retry_after=enforce) or delay
        return delay

    def accept_silence(self) -> bool:
        """Accept a long silence. Return whether it can be normal: perhaps, nothing has happened."""
        was_quiet, self._is_quiet = self._is_quiet, True
        return not was_quiet

    @property
    def server_timeout(self) -> float | None:
        """
        The time after which the server must end the stream in order, in seconds; ``None`` if it is not requested.

        This distinguishes quiet streams from broken ones. It is cheap: the next stream uses the same connection.
        """
        asked, limit = self._settings.watching.server_timeout, self._settings.watching.inactivity_timeout
        if not self._is_quiet or limit is None:
            return asked
        quiet = max(1, int(limit * _QUIET_PART))
        return quiet if asked is None else min(asked, quiet)

    def demands_listing(self, error: Exception) -> bool:
        """Count the failure of a stream. Return whether watching cannot continue, as after 410 Gone: list anew."""
        self._broken_streams += isinstance(error, BrokenStreamError)
        if isinstance(error, APIGoneError) or self._broken_streams >= MAX_BROKEN_STREAMS:
            self._broken_streams = 0
            return True
        return False

    def _get_backoff(self) -> float:
        """Get a pause that grows with every failure in a row, and differs between watchers."""
        base = max(self._settings.watching.reconnect_backoff, MIN_BACKOFF)
        delay = min(base * 2.0 ** min(self._failures, 16), max(base, MAX_BACKOFF))
        return round(delay * random.uniform(0.9, 1.1), 3)
