"""
The survey of the work: which objects wait for a worker, or are with one.

It is asked of the queues when somebody looks. Most of the work is done between two looks, so it takes nothing.
"""

from __future__ import annotations

from kopf._controller.controller import Controller
from kopf._controller.controller_facts import ControllerStarted, ControllerStopped
from kopf._facts.bus import Bus
from kopf._insight.console.history import History
from kopf._values.resources import Resource


class WorkSurvey:
    """All controllers, and what their queues had in them at the latest survey."""

    def __init__(self, bus: Bus, history: History) -> None:
        self._history = history
        self._controllers: dict[Resource, Controller] = {}
        self._works: dict[Resource, dict[str, str]] = {}
        bus.subscribe(ControllerStarted, self._start)
        bus.subscribe(ControllerStopped, self._stop)
        history.survey = self.look

    def _start(self, fact: ControllerStarted) -> None:
        self._controllers[fact.resource] = fact.controller
        self._works.setdefault(fact.resource, {})

    def _stop(self, fact: ControllerStopped) -> None:
        if self._controllers.get(fact.resource) is fact.controller:
            del self._controllers[fact.resource]

    def look(self) -> None:
        """Note what has changed since the latest survey, in any thread."""
        with self._history.backlog.lock:
            for resource, before in [*self._works.items()]:
                controller = self._controllers.get(resource)
                works = {} if controller is None else _list_works(controller)
                if works or before:
                    self._works[resource] = works
                    self._note(resource, before, works)

    def _note(self, resource: Resource, before: dict[str, str], works: dict[str, str]) -> None:
        for key in before.keys() | works.keys():
            work = works.get(key, "")
            record = self._history.find(resource, key) if before.get(key, "") != work else None
            if record is not None and record.work != work:
                self._history.set_work(record, work)


def _list_works(controller: Controller) -> dict[str, str]:
    """The lists are copied by single operations of Python, which other threads do not interrupt."""
    queue = controller.queue
    if not queue.waiting and not queue.active:
        return {}
    return {**dict.fromkeys([*queue.waiting], "queued"), **dict.fromkeys([*queue.active], "handling")}
