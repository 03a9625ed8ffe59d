"""The observer of the client: of its requests, streams, patches, and posted events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from kopf._client.resources.targets import Target
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.references import ObjectReference
from kopf._values.resources import Resource

Headers = Mapping[str, str] | None

WatchPhase = Literal["listing", "watching", "silence"]
"""The phase of a target; ``silence`` is a stream that brings nothing, which is normal if nothing happens."""


class ClientObserver:
    """The part of the observer that the client calls; see ``kopf._controller.observer``."""

    clock: Callable[[], float] = time.perf_counter
    """The clock of the notifications, in seconds since any moment."""

    def request_begun(self, method: str, target: str, server: str, headers: Headers) -> Headers:
        """
        Notice the start of an attempt of a request, but not of a stream. Return the headers to send besides the
        credentials.

        ``target`` is the path with the query; ``server`` is the URL of the server.
        """
        return headers

    def request_ended(
        self,
        method: str,
        server: str,
        status: int | None,
        error: BaseException | None,
        started: float,
        headers: Headers,
    ) -> None:
        """
        Notice the end of an attempt. Without a response, there is no status; the error tells the reason.

        ``started`` is the time of its start by the clock; ``headers`` are the sent ones.
        """

    def request_retried(self, method: str, target: str, error: Exception, delay: float) -> None:
        """Notice a failed request that will be repeated in ``delay`` seconds. The error knows the server."""

    def stream_answered(self, server: str, status: int) -> None:
        """Notice that the server has begun to respond to a stream, which can last for hours."""

    def stream_failed(self, server: str, error: Exception) -> None:
        """Notice that the server has not responded to a stream."""

    def watch_interrupted(self, target: Target, phase: WatchPhase, error: Exception | None, delay: float) -> None:
        """
        Notice the end of a listing or a stream, which will continue in ``delay`` seconds.

        There is no error if the server has ended it in order.
        """

    def object_patched(
        self, resource: Resource, before: KubeObject, after: KubeObject, subresource: str | None, changes: Any
    ) -> None:
        """Notice one request of a patch. The changes are the sent merge-patch or JSON-patch."""

    def event_posted(self, ref: ObjectReference, type: str, reason: str, message: str, time: float) -> None:
        """Notice a Kubernetes event that was created or updated. ``time`` is its report, in seconds since the epoch."""

    def event_dropped(self, cause: str) -> None:
        """
        Notice a lost Kubernetes event, in any thread.

        The cause is ``limit`` for too many events about an object, ``overflow`` for too many waiting ones, and
        ``error`` for a refused request.
        """


def is_same(before: ObjectMeta, after: ObjectMeta) -> bool:
    """Tell if a patch has changed nothing. The response to a patch that ends an object has the old version."""
    return before.resourceVersion == after.resourceVersion and (before.finalizers or []) == (after.finalizers or [])
