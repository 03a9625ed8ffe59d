"""
The survey of the work: which objects wait for a worker, or are with one.

It is asked of the queues when somebody looks. Most of the work is done between two looks, so it takes nothing.
"""

from __future__ import annotations

from kopf._controller.observer import ControllerView, Observer
from kopf._insight.console.history import History
from kopf._values.resources import Resource


class WorkSurvey(Observer):
    """All controllers, and what their queues had in them at the latest survey."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._controllers: dict[Resource, ControllerView] = {}
        self._works: dict[Resource, dict[str, str]] = {}
        history.survey = self.look

    def controller_started(self, controller: ControllerView) -> None:
        self._controllers[controller.resource] = controller
        self._works.setdefault(controller.resource, {})

    def controller_stopped(self, controller: ControllerView) -> None:
        if self._controllers.get(controller.resource) is controller:
            del self._controllers[controller.resource]

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


def _list_works(controller: ControllerView) -> dict[str, str]:
    """The lists are copied by single operations of Python, which other threads do not interrupt."""
    queue = controller.queue
    if not queue.waiting and not queue.active:
        return {}
    return {**dict.fromkeys([*queue.waiting], "queued"), **dict.fromkeys([*queue.active], "handling")}
