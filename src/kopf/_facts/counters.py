"""
Counters: what is told most, told directly to the one who counts it, with bare values: no records are made for that.

They are there for as long as the metrics are. Unlike listeners, they are not guarded: they have nothing but plain
numbers and dictionaries, where nothing can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Container


class Counters:
    """What is to be called when something has happened. The types of the values are of the floors above."""

    __slots__ = ("attempt", "awaited", "echo", "patch", "request")

    def __init__(
        self,
        *,
        attempt: Callable[..., None],
        request: Callable[..., None],
        patch: Callable[..., None],
        echo: Callable[..., None],
        awaited: Container[str],
    ) -> None:
        self.attempt = attempt
        """
        An attempt of a handler is over: the handler, the cause, the outcome (``None`` if it was cancelled), and the
        duration in seconds.
        """
        self.request = request
        """
        A request is over: the method, the URL of the server, the status, and the duration in seconds; ``None`` for
        streams. If the status is ``None``, its error is the one that is underway then.
        """
        self.patch = patch
        """A request of a patch is done: the resource, the object before it, and after it."""
        self.echo = echo
        """A version of an object that is awaited has come on the stream: the version."""
        self.awaited = awaited
        """Those versions that own writes have made."""
