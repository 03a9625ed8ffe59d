"""
Own writes: telling the echoes of our own patches and stale states from the news.

A response to a patch carries the new state, so the handling goes on from it at once. The same and older states will
come on the watch stream later. Resource versions of one resource are comparable since Kubernetes 1.35
(KEP-5504); with older servers, only the equality is used: everything before the echo is presumed to be stale.
"""

from __future__ import annotations

from kopf._values.resources import is_newer


class OwnWrites:
    """Tracks the versions of one object: those seen on the stream, and the one that our last write has made."""

    __slots__ = ("_last_seen", "_seen", "comparable", "expected")

    def __init__(self, comparable: bool) -> None:
        self.comparable = comparable
        """Whether the server guarantees that resource versions can be compared."""
        self.expected: str | None = None
        """The version that our last write has made, until it comes back."""
        self._last_seen = ""
        self._seen: set[str] | None = None
        """All versions that have come since a write could be sent, if only their equality says anything."""

    def start(self) -> None:
        """A write can be sent from now on. Its echo can come even earlier than its response."""
        self._seen = None

    def finish(self, version: str, *, previous: str) -> None:
        """The write has made this version out of the previous one (the same one if nothing has changed)."""
        if version == previous:
            return  # but an earlier write could have not come back yet
        is_seen = not is_newer(version, self._last_seen) if self.comparable else version in (self._seen or ())
        self.expected = None if is_seen else version

    def is_news(self, version: str) -> bool:
        """Take a version from the stream; tell if it is newer than all that we know."""
        self._last_seen = version
        if self.expected is None:
            if not self.comparable:
                self._seen = set() if self._seen is None else self._seen
                self._seen.add(version)
            return True
        if version == self.expected:
            self.expected = None
            return False
        if self.comparable and is_newer(version, self.expected):
            self.expected = None
            return True
        return False

    def is_superseded(self, version: str, latest: str) -> bool:
        """
        Tell if a waiting state is not newer than the state that came with the response to our write.

        If the versions are not comparable: as long as the echo has not come, nothing newer could come either.
        """
        return version == latest or (not is_newer(version, latest) if self.comparable else self.expected is not None)

    def give_up(self) -> None:
        """Stop waiting for the echo: trust the stream again."""
        self.expected = None
