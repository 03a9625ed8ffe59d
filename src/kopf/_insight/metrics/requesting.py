"""
The metrics of requests to the API, as client-go has them: the streams are counted, too, but have no duration.
"""

from __future__ import annotations

import asyncio
import sys
import urllib.parse
from collections.abc import Sequence

from kopf._client.errors import APIError
from kopf._client.http.request_facts import RequestRetried, StreamAnswered
from kopf._facts.bus import Bus
from kopf._insight.metrics.families import Cell, Count, Counter, Family, Histogram

_NO_RESPONSE = "<error>"


class RequestMetrics:
    """Counts all requests of one operator to the API."""

    def __init__(self, bus: Bus) -> None:
        self._hosts: dict[str, str] = {}
        self._usual: dict[tuple[str, str, int], tuple[Count, Cell]] = {}
        """By servers, methods and statuses: what to count for those that have got a response."""
        self._latest_server = ""  # that of the request which is going to be repeated: it is said at once
        self._requests = Counter("rest_client_requests", "Requests to the API.", ("code", "method", "host"))
        self._retries = Counter(
            "rest_client_request_retries", "Requests that have failed, and are repeated.", ("code", "verb", "host")
        )
        self._durations = Histogram(
            "rest_client_request_duration_seconds", "How long the requests take, without streams.", ("verb", "host")
        )
        bus.subscribe(StreamAnswered, self._on_stream)
        bus.subscribe(RequestRetried, self._on_retry)

    def _on_stream(self, fact: StreamAnswered) -> None:
        """It is counted right now, as it can be a day until it ends."""
        self._requests.add(str(fact.status), fact.request.method, self._get_host(fact.request.server))

    def count(self, method: str, server: str, status: int | None, duration: float | None) -> None:
        """A request is over. A stream has no duration: its response is counted already, if there was any."""
        self._latest_server = server
        if status is None:
            if not isinstance(sys.exception(), asyncio.CancelledError | GeneratorExit):
                self._count_failure(server, method, duration)
        elif duration is not None:
            key = server, method, status
            count, durations = self._usual.get(key) or self._make_usual(*key)
            count.value += 1
            durations.observe(duration)

    def _make_usual(self, server: str, method: str, status: int) -> tuple[Count, Cell]:
        host = self._get_host(server)
        usual = self._requests.get(str(status), method, host), self._durations.get(method, host)
        self._usual[server, method, status] = usual
        return usual

    def _count_failure(self, server: str, method: str, duration: float | None) -> None:
        host = self._get_host(server)
        self._requests.add(_NO_RESPONSE, method, host)
        if duration is not None:  # it is not a stream
            self._durations.observe(duration, method, host)

    def _on_retry(self, fact: RequestRetried) -> None:
        code = str(fact.error.status) if isinstance(fact.error, APIError) else _NO_RESPONSE
        self._retries.add(code, fact.method, self._get_host(self._latest_server))

    def _get_host(self, server: str) -> str:
        host = self._hosts.get(server)
        if host is None:
            host = self._hosts[server] = urllib.parse.urlsplit(server).netloc.rpartition("@")[2]
        return host

    def get_families(self) -> Sequence[Family]:
        """Get all that is known."""
        return self._requests, self._retries, self._durations
