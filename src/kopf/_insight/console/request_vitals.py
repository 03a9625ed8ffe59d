"""
The vitals of the requests: what is watched since when, what was repeated.

The other requests are not followed: there are several for each change of an object, and what has become of them is on
the timelines anyway.
"""

from __future__ import annotations

from kopf._client.http.request_facts import RequestRetried
from kopf._controller.controller_facts import StreamClosed, StreamOpened
from kopf._facts.bus import Bus
from kopf._insight.console.history import WARNING, History
from kopf._insight.console.texts import cut, show_error
from kopf._values.resources import Resource


class Requests:
    """What is known of the requests. Their queries are not shown: there can be tokens of long listings."""

    def __init__(self, bus: Bus, history: History) -> None:
        self._history = history
        self._open: dict[StreamOpened, float] = {}
        self._repeated = 0
        bus.subscribe(StreamOpened, self._open_stream)
        bus.subscribe(StreamClosed, self._close_stream)
        bus.subscribe(RequestRetried, self._retry)

    @property
    def watched(self) -> set[Resource]:
        """What is watched now, by whomever."""
        return {fact.target.resource for fact in [*self._open]}

    def _open_stream(self, fact: StreamOpened) -> None:
        self._open[fact] = self._history.backlog.now

    def _close_stream(self, fact: StreamClosed) -> None:
        self._open.pop(fact.opened, None)

    def _retry(self, fact: RequestRetried) -> None:
        self._repeated += 1
        text = f"{fact.method} {fact.path.partition('?')[0]}: {show_error(fact.error)}; again in {fact.delay:g} s"
        self._history.add_own("request", cut(text), level=WARNING)

    def describe(self) -> dict[str, object]:
        """As it goes to the page."""
        now = self._history.backlog.now
        streams = [
            [fact.target.path, int(since * 1000), int((now - fact.heartbeat.silence) * 1000)]
            for fact, since in [*self._open.items()]
        ]
        return {"streams": sorted(streams, key=str), "repeated": self._repeated}
