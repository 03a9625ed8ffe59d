"""
The vitals of the requests: what is watched since when, what was repeated.

The other requests are not followed: there are several for each change of an object, and what has become of them is on
the timelines anyway.
"""

from __future__ import annotations

from kopf._controller.observer import Observer, WatchedStream
from kopf._insight.console.history import WARNING, History
from kopf._insight.console.texts import cut, show_error
from kopf._values.resources import Resource


class Requests(Observer):
    """What is known of the requests. Their queries are not shown: there can be tokens of long listings."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._open: dict[WatchedStream, float] = {}
        self._repeated = 0

    @property
    def watched(self) -> set[Resource]:
        """What is watched now, by whomever."""
        return {stream.target.resource for stream in [*self._open]}

    def stream_opened(self, stream: WatchedStream) -> None:
        self._open[stream] = self._history.backlog.now

    def stream_closed(self, stream: WatchedStream) -> None:
        self._open.pop(stream, None)

    def request_retried(self, method: str, target: str, error: Exception, delay: float) -> None:
        self._repeated += 1
        text = f"{method} {target.partition('?')[0]}: {show_error(error)}; again in {delay:g} s"
        self._history.add_own("request", cut(text), level=WARNING)

    def describe(self) -> dict[str, object]:
        """As it goes to the page."""
        now = self._history.backlog.now
        streams = [
            [stream.target.path, int(since * 1000), int((now - stream.heartbeat.silence) * 1000)]
            for stream, since in [*self._open.items()]
        ]
        return {"streams": sorted(streams, key=str), "repeated": self._repeated}
