"""What the client tells its observer: of requests, streams, patches, and of the events that it has posted."""

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
"""In which a target is: ``silence`` is of a stream that brings nothing, which is no trouble if nothing happens."""


class ClientObserver:
    """The part of the observer that the client calls; see ``kopf._controller.observer``."""

    clock: Callable[[], float] = time.perf_counter
    """The time of what is told, in seconds since any moment."""

    def request_begun(self, method: str, target: str, server: str, headers: Headers) -> Headers:
        """
        An attempt of a request begins; streams are not told. Get the headers to be sent besides the credentials.

        The target is the path of the URL with the query; the server is its URL.
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
        It is over. There is no status if there was no response; the error is why, or what else has gone wrong.

        It has started at that time by the clock, with those headers.
        """

    def request_retried(self, method: str, target: str, error: Exception, delay: float) -> None:
        """A request has failed, and will be repeated in so many seconds. The error knows the server."""

    def stream_answered(self, server: str, status: int) -> None:
        """The server has begun to respond to a stream, which can last for hours."""

    def stream_failed(self, server: str, error: Exception) -> None:
        """The server has not responded to a stream."""

    def watch_interrupted(self, target: Target, phase: WatchPhase, error: Exception | None, delay: float) -> None:
        """
        A listing or a stream has ended, and will go on in so many seconds.

        There is no error if the server has ended it in order.
        """

    def object_patched(
        self, resource: Resource, before: KubeObject, after: KubeObject, subresource: str | None, changes: Any
    ) -> None:
        """One request of a patch is done. The changes are the merge-patch or the JSON-patch that was sent."""

    def event_posted(self, ref: ObjectReference, type: str, reason: str, message: str, time: float) -> None:
        """A Kubernetes event was created, or continued; it was reported at that time, in seconds since the epoch."""

    def event_dropped(self, cause: str) -> None:
        """
        A Kubernetes event is lost, which is told in any thread.

        The cause is ``limit`` if there were too many about the object, ``overflow`` if too many wait, ``error`` if it
        was refused.
        """


def is_same(before: ObjectMeta, after: ObjectMeta) -> bool:
    """Tell if a patch has changed nothing. The one that ends an object is answered with the version before it."""
    return before.resourceVersion == after.resourceVersion and (before.finalizers or []) == (after.finalizers or [])
