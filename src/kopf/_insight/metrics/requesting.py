"""
The metrics of requests to the API, as client-go has them: the streams are counted, too, but have no duration.
"""

from __future__ import annotations

import asyncio
import time
import urllib.parse
from collections.abc import Callable, Sequence

from kopf._client.errors import APIError
from kopf._client.http.request_facts import RequestBegun, RequestEnded, RequestRetried, ResponseBegun
from kopf._facts.bus import Bus
from kopf._insight.metrics.families import Counter, Family, Histogram

_NO_RESPONSE = "<error>"


class RequestMetrics:
    """Counts all requests of one operator to the API."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun: dict[RequestBegun, float] = {}
        self._hosts: dict[str, str] = {}
        self._latest_host = ""  # that of the request which is going to be repeated: it is said at once
        self._requests = Counter("rest_client_requests", "Requests to the API.", ("code", "method", "host"))
        self._retries = Counter(
            "rest_client_request_retries", "Requests that have failed, and are repeated.", ("code", "verb", "host")
        )
        self._durations = Histogram(
            "rest_client_request_duration_seconds", "How long the requests take, without streams.", ("verb", "host")
        )
        bus.subscribe(RequestBegun, self._on_begin)
        bus.subscribe(ResponseBegun, self._on_response)
        bus.subscribe(RequestEnded, self._on_end)
        bus.subscribe(RequestRetried, self._on_retry)

    def _on_begin(self, fact: RequestBegun) -> None:
        if not fact.is_stream:
            self._begun[fact] = self._clock()

    def _on_response(self, fact: ResponseBegun) -> None:
        if fact.request.is_stream:  # it can be a day until it ends
            self._requests.add(str(fact.status), fact.request.method, self._get_host(fact.request))

    def _on_end(self, fact: RequestEnded) -> None:
        request = fact.request
        since = self._begun.pop(request, None)
        if fact.status is None and isinstance(fact.error, asyncio.CancelledError | GeneratorExit):
            return
        host = self._get_host(request)
        if since is not None or fact.status is None:
            code = _NO_RESPONSE if fact.status is None else str(fact.status)
            self._requests.add(code, request.method, host)
        if since is not None:
            self._durations.observe(self._clock() - since, request.method, host)

    def _on_retry(self, fact: RequestRetried) -> None:
        code = str(fact.error.status) if isinstance(fact.error, APIError) else _NO_RESPONSE
        self._retries.add(code, fact.method, self._latest_host)

    def _get_host(self, request: RequestBegun) -> str:
        host = self._hosts.get(request.server)
        if host is None:
            host = self._hosts[request.server] = urllib.parse.urlsplit(request.server).netloc.rpartition("@")[2]
        self._latest_host = host
        return host

    def get_families(self) -> Sequence[Family]:
        """Get all that is known."""
        return self._requests, self._retries, self._durations
