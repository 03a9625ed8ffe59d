"""
The activity of one object in its controller right now, with its daemons & timers.

It is read in the event loop of the operator. Nothing is changed or kept.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._controller.background.daemons import DaemonRun
from kopf._controller.background.runs import BackgroundRun
from kopf._controller.background.stop_signals import DaemonStoppingReason
from kopf._controller.changes.object_memory import Carried, ObjectMemory
from kopf._controller.controller import Controller
from kopf._controller.object_state import ObjectState
from kopf._insight.explaining.explanation import RunInfo, StateInfo, StateName
from kopf._insight.explaining.redacted_texts import show_time
from kopf._insight.inspecting.decision_journal import DecisionJournal
from kopf._values.ids import HandlerId

_REASONS: Mapping[DaemonStoppingReason, str] = {
    DaemonStoppingReason.RESOURCE_DELETED: "the object is deleted",
    DaemonStoppingReason.OPERATOR_EXITING: "the operator exits",
    DaemonStoppingReason.RESOURCE_HANDED_OVER: "the object is handed over to another replica",
    DaemonStoppingReason.OPERATOR_PAUSING: "the operator is paused",
    DaemonStoppingReason.FILTERS_MISMATCH: "the object does not match the filters",
    DaemonStoppingReason.DONE: "it has exited by itself, and is not started again until the operator restarts",
}
"""The reasons why a daemon is stopped or stopping; the first one that applies is shown."""


class ObjectActivity:
    """The activity at the moment when this is made."""

    def __init__(self, controller: Controller, key: str, journal: DecisionJournal) -> None:
        self._controller = controller
        self._key = key
        self._journal = journal
        tracked = controller.objects.get(key)
        self._state = None if tracked is None else tracked.state
        self._background = None if tracked is None else tracked.memory.background
        self.snapshot = (Carried(), ObjectMemory()) if tracked is None else tracked.take_snapshot()
        """The memory of the object between the passes over it."""
        self.running = journal.get_running(controller.scope.resource, key)
        """The running attempts, by the ids of their handlers."""
        runs = () if self._background is None else self._background.runs
        self._handlers = [id for id in self.running if id not in runs]
        """The running handlers, except for daemons & timers, which run aside."""

    def _to_time(self, when: float | None) -> str | None:
        """Convert the time of the event loop to the time of day."""
        if when is None:
            return None
        now = self._controller.scope.runtime.clock.now()
        return show_time(now + datetime.timedelta(seconds=when - asyncio.get_running_loop().time()))

    def describe_state(self) -> StateInfo:
        """Describe the state of the object in the controller."""
        state, queue = self._state, self._controller.queue
        name, text, since = self._choose_state()
        position = queue.get_position(self._key)
        is_timed = state is not None and name != "paused" and not queue.is_active(self._key)
        return StateInfo(
            name=name,
            text=text,
            position=None if position is None else position + 1,
            next=self._to_time(state.alarm) if state is not None and is_timed else None,
            handler=", ".join(self._handlers) or None,
            since=since,
            errors=0 if state is None else state.memory.errors,
            unsaved=None if state is None else _describe_unsaved(state),
        )

    def _choose_state(self) -> tuple[StateName, str, str | None]:
        state, queue, handlers = self._state, self._controller.queue, self._handlers
        runtime = self._controller.scope.runtime
        if handlers:
            since = min(self.running[key]["at"] for key in handlers)
            return "handling", f"is being handled by {', '.join(handlers)}", since
        if queue.is_active(self._key):
            return "handling", "is being handled: looked at, or saved", None
        if runtime.share.is_foreign(self._key):
            return "idle", "is not handled by this replica", None
        if runtime.pause.is_on:
            return "paused", "is not handled, as the operator is paused", None
        if queue.is_closed:
            return "paused", "is not handled, as the operator exits", None
        if not runtime.index_readiness.is_open:
            return "queued", "waits until the indices are filled", None
        if (position := queue.get_position(self._key)) is not None:
            return "queued", f"waits in the queue, number {position + 1} of {len(queue.waiting)}", None
        if state is not None and state.alarm is not None:
            return "waiting", _describe_waiting(state), None
        if self._background is not None and self._background.has_running():
            return "running", "is handled; its daemons & timers run", None
        return "idle", "is handled: there is nothing to do", None

    def describe_runs(self) -> Mapping[str, RunInfo]:
        """Describe the daemons & timers, by the ids of their handlers."""
        runs = {} if self._background is None else self._background.runs
        return {id: self._describe_run(run) for id, run in runs.items()}

    def _describe_run(self, run: BackgroundRun[Any]) -> RunInfo:
        key = HandlerId(run.handler.id)
        running = self.running.get(key)
        info = RunInfo(
            state="waiting",
            text="waits",
            attempts=run.retries.count,
            since=None if running is None else running["at"],
            next=None if running is not None else self._to_time(run.next_call),
            error=self._journal.get_error(self._controller.scope.resource, self._key, key),
        )
        why = next((text for reason, text in _REASONS.items() if reason in (run.stopper.reason or _NONE)), "")
        if not run.is_running:
            info["state"], info["text"] = "stopped", f"is stopped: {why}"
        elif run.stopper.is_set:
            info["state"], info["text"] = "stopping", f"is asked to exit, and still runs: {why}"
        elif running is not None:
            info["state"], info["text"] = "running", "runs"
        elif info["next"] is None:
            is_daemon = isinstance(run, DaemonRun)
            info["text"] = "is being started" if is_daemon else "runs next when the object has changed and calmed down"
        elif run.retries.count:
            info["text"] = "has failed, and is tried again"
        else:
            info["text"] = "waits for its time"
        return info


_NONE = DaemonStoppingReason(0)


def _describe_waiting(state: ObjectState) -> str:
    if state.retry_at is None:
        return "waits for our own change of it to come back from the cluster"
    if state.memory.errors:
        return f"is left alone after {state.memory.errors} errors in a row: of the API, callbacks, or the framework"
    return "waits for the next attempts of its handlers"


def _describe_unsaved(state: ObjectState) -> str | None:
    unsaved = state.memory.unsaved
    if unsaved is None:
        return None
    handlers: Sequence[str] = [*unsaved.states]
    who = f" by {', '.join(handlers)}" if handlers else ""
    why = "the API refuses them" if unsaved.is_refused else "they could not be written"
    return f"the results{who} for the {unsaved.reason.value} are not on the object yet, because {why}"
