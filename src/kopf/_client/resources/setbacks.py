"""
Setbacks of one watcher: how many in a row, how long to wait after them, and when it makes no sense to go on as before.

No I/O, no waiting.
"""

from __future__ import annotations

import random

from kopf._client.errors import APIError, APIGoneError, APINetworkError
from kopf._client.http.retries import get_delay
from kopf._settings.settings import OperatorSettings

MAX_BACKOFF = 30.0
"""The longest pause between attempts when they fail in a row, in seconds."""

MIN_BACKOFF = 0.1
"""The shortest pause after a failure, in seconds, even if the configured one is shorter."""

MAX_BROKEN_STREAMS = 3
"""How many streams in a row may break at the same version until everything is listed anew."""


_QUIET_PART = 0.9
"""After which part of the longest silence a server that sends no bookmarks is to end the stream."""


class BrokenStreamError(Exception):
    """The stream has something unusable, e.g. a garbled line or an error: it is to be reopened."""


class Setbacks:
    """Counts the failures in a row. All delays are in seconds."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._broken_streams = 0
        self._is_quiet = False
        """Whether the server is not known to send bookmarks."""
        self.is_productive = False
        """Whether the current attempt has brought anything: then, it is not a failure, however it ends."""

    def begin(self) -> None:
        """Begin another attempt to list or to watch."""
        self.is_productive = False

    def note_progress(self) -> None:
        """The version has moved: something has come from the stream."""
        self.is_productive = True
        self._broken_streams = 0
        self._is_quiet = False

    def accept_end(self) -> float:
        """Get over the normal end of a stream, as servers do every several minutes. Give the pause."""
        if self.is_productive:
            self._failures = 0
            return self._settings.watching.reconnect_backoff
        self._failures += 1
        return self._get_backoff()

    def accept_failure(self, error: Exception) -> float:
        """Get over a failure. Give the pause, as the server asks for it if it does."""
        self._failures = 0 if self.is_productive else self._failures + 1
        delay = self._get_backoff()
        if isinstance(error, APIError | APINetworkError):
            enforce = self._settings.networking.enforce_retry_after
            delay = get_delay(error, delay, enforce_retry_after=enforce) or delay
        return delay

    def accept_silence(self) -> bool:
        """Tell if it is no trouble that nothing has come for long: maybe there is nothing to say."""
        was_quiet, self._is_quiet = self._is_quiet, True
        return not was_quiet

    @property
    def server_timeout(self) -> float | None:
        """
        When the server is to end the stream in order, if that is to be asked for.

        By that, quiet streams are told from broken ones, and cheaply: the next one goes on by the same connection.
        """
        asked, limit = self._settings.watching.server_timeout, self._settings.watching.inactivity_timeout
        if not self._is_quiet or limit is None:
            return asked
        quiet = max(1, int(limit * _QUIET_PART))
        return quiet if asked is None else min(asked, quiet)

    def is_final(self, error: Exception) -> bool:
        """Tell if there is nothing to be watched from the same version after the failure of a stream; count it."""
        self._broken_streams += isinstance(error, BrokenStreamError)
        if isinstance(error, APIGoneError) or self._broken_streams >= MAX_BROKEN_STREAMS:
            self._broken_streams = 0
            return True
        return False

    def _get_backoff(self) -> float:
        """Make the pauses longer with every failure in a row, and different for different watchers."""
        base = max(self._settings.watching.reconnect_backoff, MIN_BACKOFF)
        delay = min(base * 2.0 ** min(self._failures, 16), max(base, MAX_BACKOFF))
        return round(delay * random.uniform(0.9, 1.1), 3)
