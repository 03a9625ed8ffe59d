"""
The traffic: what comes on the streams, how late; what waits in the queues, for how long; what is interrupted or
repeated.

The other requests are not followed: there are several for each change of an object, and what has become of them is on
the timelines anyway. Who is worked on, is asked of the queues when somebody looks: it is mostly done between two looks.
"""

from __future__ import annotations

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
    What is known of the streams, the queues, and the repeated requests.

    The queries of requests are not shown: there can be tokens of long listings.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._open: dict[WatchedStream, float] = {}
        self._repeated = 0
        self._traffic: dict[Resource, dict[str, Any]] = {}
        """What has come on the streams of each resource, and gone through its queue; as it goes to the page."""
        self._controllers: dict[Resource, ControllerView] = {}
        self._works: dict[Resource, dict[str, str]] = {}
        """What the queues had in them at the latest survey."""
        history.survey = self.survey

    def note_event(self, resource: Resource, lag: float | None, now: float) -> None:
        """An event has come, so much later than our write that has caused it, if it was ours."""
        traffic = self._get(resource)
        traffic["events"] += 1
        traffic["lastEvent"] = int(now * 1000)
        if lag is not None:
            average = lag if traffic["lag"] is None else traffic["lag"]
            traffic["lag"] = average + _SMOOTHING * (lag - average)

    def note_pass(self, resource: Resource, waited: float) -> None:
        """A worker has looked at an object so long after its event; it is negative if that is not what it was for."""
        traffic = self._get(resource)
        traffic["done"] += 1
        if waited >= 0:
            traffic["wait"] += _SMOOTHING * (waited - traffic["wait"])
            traffic["worstWait"] = max(traffic["worstWait"], waited)

    def _get(self, resource: Resource) -> dict[str, Any]:
        return self._traffic.get(resource) or self._traffic.setdefault(resource, {**_NO_TRAFFIC})

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
        traffic = self._get(target.resource)
        traffic["interruptions"] += 1
        traffic["interruption"] = _describe_interruption(phase, error)
        if error is not None and phase != "silence":
            what = "listing" if phase == "listing" else "stream"
            text = f"the {what} of {target.resource!r}: {traffic['interruption']}; again in {delay:g} s"
            self._history.add_own("stream", cut(text), level=WARNING)

    def describe(self) -> dict[str, object]:
        """As it goes to the page. It is called in the thread of the console."""
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
        """Note what has changed since the latest survey, in any thread."""
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
    """The lists are copied by single operations of Python, which other threads do not interrupt."""
    queue = controller.queue
    if not queue.waiting and not queue.active:
        return {}
    return {**dict.fromkeys([*queue.waiting], "queued"), **dict.fromkeys([*queue.active], "handling")}
