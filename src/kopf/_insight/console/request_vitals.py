"""The vitals of the requests: which streams are open, how many requests were made, failed, repeated."""

from __future__ import annotations

import time

from kopf._client.http.request_facts import RequestBegun, RequestEnded, RequestRetried
from kopf._facts.bus import Bus
from kopf._insight.console.history import WARNING, History
from kopf._insight.console.texts import cut, show_error

_MAX_OPEN = 1000


class Requests:
    """What is known of the requests. Their queries are not shown: there can be tokens of long listings."""

    def __init__(self, bus: Bus, history: History) -> None:
        self._history = history
        self._open: dict[int, tuple[str, float]] = {}
        self._made = self._failed = self._repeated = 0
        bus.subscribe(RequestBegun, self._begin)
        bus.subscribe(RequestEnded, self._end)
        bus.subscribe(RequestRetried, self._retry)

    def _begin(self, fact: RequestBegun) -> None:
        self._made += 1
        if fact.is_stream and len(self._open) < _MAX_OPEN:
            self._open[id(fact)] = fact.path.partition("?")[0], time.time()

    def _end(self, fact: RequestEnded) -> None:
        if fact.request.is_stream:
            self._open.pop(id(fact.request), None)
        if fact.error is not None or (fact.status is not None and fact.status >= 400):
            self._failed += 1

    def _retry(self, fact: RequestRetried) -> None:
        self._repeated += 1
        text = f"{fact.method} {fact.path.partition('?')[0]}: {show_error(fact.error)}; again in {fact.delay:g} s"
        self._history.add(self._history.operator, "request", cut(text), level=WARNING)

    def describe(self) -> dict[str, object]:
        """As it goes to the page."""
        return {
            "streams": sorted(([path, int(since * 1000)] for path, since in [*self._open.values()]), key=str),
            "requests": {"made": self._made, "failed": self._failed, "repeated": self._repeated},
        }
