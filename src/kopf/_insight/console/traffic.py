"""
The traffic: the events of the streams and their lags, the queues and their waiting times, interruptions, retries.

Other requests are not followed: there are several for each change of an object, and their results are on the timelines.
The queues are read only when a page needs them: most objects are handled between two readings.
"""

from __future__ import annotations

import collections
from typing import Any

from kopf._client.client_observer import WatchPhase
from kopf._client.resources.targets import Target
from kopf._controller.observer import ControllerView, Observer, WatchedStream
from kopf._insight.console.history import WARNING, History
from kopf._insight.console.texts import cut, show_error
from kopf._values.resources import Resource

_SMOOTHING = 0.1
"""How much the latest value weighs in the averages."""


_NO_TRAFFIC: dict[str, Any] = {
    "events": 0,
    "lastEvent": 0,
    "lag": None,  # how late our own writes come back, in seconds, on average; if there were any
    "done": 0,
    "wait": 0.0,  # how long objects wait for a worker, in seconds, on average
    "worstWait": 0.0,
    "interruptions": 0,
    "interruption": "",
}


class Traffic(Observer):
    """
    The state of the streams and the queues, and the count of repeated requests.

    The queries of requests are not shown, as they can contain tokens of long listings.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._open: dict[WatchedStream, float] = {}
        self._repeated = 0
        self._traffic: dict[Resource, dict[str, Any]] = collections.defaultdict(_NO_TRAFFIC.copy)
        """The counters of the stream and the queue of each resource, for the page."""
        self._controllers: dict[Resource, ControllerView] = {}
        self._works: dict[Resource, dict[str, str]] = {}
        """The content of the queues at the latest survey."""
        history.survey = self.survey

    def note_event(self, resource: Resource, lag: float | None, now: float) -> None:
        """Count an event, and its lag in seconds if it is of our own write."""
        traffic = self._traffic[resource]
        traffic["events"] += 1
        traffic["lastEvent"] = int(now * 1000)
        if lag is not None:
            average = lag if traffic["lag"] is None else traffic["lag"]
            traffic["lag"] = average + _SMOOTHING * (lag - average)

    def note_pass(self, resource: Resource, waited: float) -> None:
        """Count a pass, and for how many seconds its event has waited; negative if it was not for an event."""
        traffic = self._traffic[resource]
        traffic["done"] += 1
        if waited >= 0:
            traffic["wait"] += _SMOOTHING * (waited - traffic["wait"])
            traffic["worstWait"] = max(traffic["worstWait"], waited)

    def controller_started(self, controller: ControllerView) -> None:
        resource = controller.resource
        self._controllers[resource] = controller
        self._works.setdefault(resource, {})
        self._history.get_kind(resource)
        self._history.add_own("stream", f"{resource!r} is served")

    def controller_stopped(self, controller: ControllerView) -> None:
        resource = controller.resource
        if self._controllers.get(resource) is controller:
            del self._controllers[resource]
            self._history.add_own("stream", f"{resource!r} is not served anymore")

    def stream_opened(self, stream: WatchedStream) -> None:
        self._open[stream] = self._history.backlog.now

    def stream_closed(self, stream: WatchedStream) -> None:
        self._open.pop(stream, None)

    def request_retried(self, method: str, target: str, error: Exception, delay: float) -> None:
        self._repeated += 1
        text = f"{method} {target.partition('?')[0]}: {show_error(error)}; again in {delay:g} s"
        self._history.add_own("request", cut(text), level=WARNING)

    def watch_interrupted(self, target: Target, phase: WatchPhase, error: Exception | None, delay: float) -> None:
        traffic = self._traffic[target.resource]
        traffic["interruptions"] += 1
        traffic["interruption"] = _describe_interruption(phase, error)
        if error is not None and phase != "silence":
            what = "listing" if phase == "listing" else "stream"
            text = f"the {what} of {target.resource!r}: {traffic['interruption']}; again in {delay:g} s"
            self._history.add_own("stream", cut(text), level=WARNING)

    def describe(self) -> dict[str, object]:
        """Make the content of the panel. It is called in the thread of the console."""
        now, streams = self._history.backlog.now, [*self._open.items()]
        watched = {stream.target.resource for stream, _ in streams}
        resources = self._traffic.keys() | self._controllers.keys() | watched
        opened = [
            [stream.target.path, int(since * 1000), int((now - stream.heartbeat.silence) * 1000)]
            for stream, since in streams
        ]
        return {
            "queues": [
                _describe_queue(
                    item,
                    self._traffic.get(item, _NO_TRAFFIC),
                    self._controllers.get(item),
                    is_watched=item in watched,
                )
                for item in resources
            ],
            "streams": sorted(opened, key=str),
            "repeated": self._repeated,
        }

    def survey(self) -> None:
        """Update which objects are queued or handled, in any thread."""
        with self._history.backlog.lock:
            for resource, before in [*self._works.items()]:
                controller = self._controllers.get(resource)
                works = {} if controller is None else _list_works(controller)
                if works or before:
                    self._works[resource] = works
                    for key in [key for key in {**before, **works} if before.get(key) != works.get(key)]:
                        record, work = self._history.find(resource, key), works.get(key, "")
                        if record is not None and record.work != work:
                            self._history.set_work(record, work)


def _describe_queue(
    resource: Resource, traffic: dict[str, Any], controller: ControllerView | None, *, is_watched: bool
) -> dict[str, object]:
    return {
        **traffic,
        "resource": repr(resource),
        "use": "objects" if controller is not None or traffic["events"] else "operator",
        "watched": is_watched or controller is not None,
        "waiting": 0 if controller is None else len(controller.queue.waiting),
        "unfinished": 0 if controller is None else controller.count_unfinished(),
    }


def _describe_interruption(phase: WatchPhase, error: Exception | None) -> str:
    if error is None:
        return "the server has ended it"
    return "nothing has come for long, so it was opened anew" if phase == "silence" else show_error(error)


def _list_works(controller: ControllerView) -> dict[str, str]:
    """List the objects in the queue. Single operations of Python copy it: other threads do not interrupt these."""
    queue = controller.queue
    if not queue.waiting and not queue.active:
        return {}
    return {**dict.fromkeys([*queue.waiting], "queued"), **dict.fromkeys([*queue.active], "handling")}
