"""
The metrics of requests to the API, as client-go has them: the streams are counted, too, but have no duration.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Callable, Sequence

from kopf._client.client_observer import Headers
from kopf._client.errors import APIError, APINetworkError
from kopf._controller.observer import Observer
from kopf._insight.metrics.families import Cell, Count, Counter, Family, Histogram

_NO_RESPONSE = "<error>"


class RequestMetrics(Observer):
    """Counts all requests of one operator to the API."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._hosts: dict[str, str] = {}
        self._usual: dict[tuple[str, str, int], tuple[Count, Cell]] = {}
        """By servers, methods and statuses: what to count for those that have got a response."""
        self._requests = Counter("rest_client_requests", "Requests to the API.", ("code", "method", "host"))
        self._retries = Counter(
            "rest_client_request_retries", "Requests that have failed, and are repeated.", ("code", "verb", "host")
        )
        self._durations = Histogram(
            "rest_client_request_duration_seconds", "How long the requests take, without streams.", ("verb", "host")
        )

    def stream_answered(self, server: str, status: int) -> None:
        """It is counted right now, as it can be a day until it ends."""
        self._requests.add(str(status), "GET", self._get_host(server))

    def stream_failed(self, server: str, error: Exception) -> None:
        self._requests.add(_NO_RESPONSE, "GET", self._get_host(server))

    def request_ended(
        self,
        method: str,
        server: str,
        status: int | None,
        error: BaseException | None,
        started: float,
        headers: Headers,
    ) -> None:
        if status is not None:
            key = server, method, status
            count, durations = self._usual.get(key) or self._make_usual(*key)
            count.value += 1
            durations.observe(self.clock() - started)
        elif not isinstance(error, asyncio.CancelledError):
            host = self._get_host(server)
            self._requests.add(_NO_RESPONSE, method, host)
            self._durations.observe(self.clock() - started, method, host)

    def _make_usual(self, server: str, method: str, status: int) -> tuple[Count, Cell]:
        host = self._get_host(server)
        usual = self._requests.get(str(status), method, host), self._durations.get(method, host)
        self._usual[server, method, status] = usual
        return usual

    def request_retried(self, method: str, target: str, error: Exception, delay: float) -> None:
        code = str(error.status) if isinstance(error, APIError) else _NO_RESPONSE
        server = error.server if isinstance(error, APIError | APINetworkError) else ""
        self._retries.add(code, method, self._get_host(server))

    def _get_host(self, server: str) -> str:
        host = self._hosts.get(server)
        if host is None:
            host = self._hosts[server] = urllib.parse.urlsplit(server).netloc.rpartition("@")[2]
        return host

    def get_families(self) -> Sequence[Family]:
        """Get all that is known."""
        return self._requests, self._retries, self._durations
