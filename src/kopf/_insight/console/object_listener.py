"""
The listener for objects: turns the facts of their handling into their states and timelines.

It is called for every step of every object, so it does as little as possible: the texts are made later,
of what is small and does not change.
"""

from __future__ import annotations

from collections.abc import Sequence

from kopf._client.resources.watch_facts import ObjectPatched
from kopf._controller.changes.decision import Plan, Saving
from kopf._controller.changes.look_facts import LookBegun, LookDecided, LookEnded
from kopf._controller.controller_facts import ObjectObserved, ObjectQueued, WorkBegun, WorkEnded
from kopf._events.event_facts import EventPosted
from kopf._facts.bus import Bus
from kopf._handlers.handlers import Handler
from kopf._insight.console.grouped_errors import GroupedErrors
from kopf._insight.console.history import ERROR, INFO, WARNING, History
from kopf._insight.console.patch_details import NOTHING, Making, prepare_diff, prepare_patch
from kopf._insight.console.stream_vitals import Streams
from kopf._insight.console.texts import WITHHELD, cut, is_secret, show_error
from kopf._values.patches import FinalizerChange
from kopf._values.reasons import Reason
from kopf._values.resources import Resource

_MAX_NAMES = 10

_FINALIZERS = {FinalizerChange.ADD: "add the finalizer", FinalizerChange.REMOVE: "remove the finalizer"}


class ObjectListener:
    """
    Follows the objects from their events to their patches.

    Large because each of these facts is noted first, and taken into account later.
    """

    def __init__(self, bus: Bus, history: History, errors: GroupedErrors, streams: Streams) -> None:
        self._history = history
        self._note = history.backlog.note
        self._errors = errors
        self._streams = streams
        self._plans: dict[tuple[Resource, str], Plan] = {}
        bus.subscribe(ObjectObserved, self._observe)
        bus.subscribe(ObjectQueued, self._queue)
        bus.subscribe(WorkBegun, self._begin_work)
        bus.subscribe(WorkEnded, self._end_work)
        bus.subscribe(LookDecided, self._decide)
        bus.subscribe(LookEnded, self._end_look)
        bus.subscribe(ObjectPatched, self._patch)
        bus.subscribe(EventPosted, self._post)

    def _observe(self, fact: ObjectObserved) -> None:
        head = fact.obj.head
        is_leaving = head.deletionTimestamp is not None and fact.type != "DELETED"
        seen = fact.type, head.resourceVersion, is_leaving
        self._note(self._take_observed, fact.resource, fact.key, head.namespace, head.name, seen)

    def _take_observed(
        self, resource: Resource, key: str, namespace: str | None, name: str, seen: tuple[str | None, str, bool]
    ) -> None:
        type, version, is_leaving = seen
        record = self._history.obtain(resource, key, namespace, name)
        text = f"{type or 'listed'}, version {cut(version, 40)}"
        lag = None
        if record.own_write is not None and record.own_write[0] == version:
            lag = max(0.0, self._history.backlog.now - record.own_write[1])
            record.own_write = None
            text += f": our own write, back after {lag * 1000:.0f} ms"
        elif is_leaving:
            text += ", being deleted"
        self._streams.note_event(resource, lag)
        self._history.add(record, "seen", text)
        if type == "DELETED":
            self._history.set_state(record, "gone")
        elif record.state == "gone":  # it is selected again
            self._history.set_state(record, "idle")

    def _queue(self, fact: ObjectQueued) -> None:
        self._note(self._take_queued, fact.resource, fact.key)

    def _take_queued(self, resource: Resource, key: str) -> None:
        record = self._history.find(resource, key)
        if record is not None and record.state != "gone":
            self._history.set_state(record, "queued", note=record.note)

    def _begin_work(self, fact: WorkBegun) -> None:
        self._note(self._take_begun, fact.resource, fact.key)

    def _take_begun(self, resource: Resource, key: str) -> None:
        record = self._history.find(resource, key)
        if record is None:
            return
        waited = self._history.backlog.now - record.since / 1000 if record.state == "queued" else 0
        self._streams.note_wait(resource, waited)
        if record.state != "gone":
            self._history.set_state(record, "handling", note=record.problem, next_at=record.next_at)

    def _end_work(self, fact: WorkEnded) -> None:
        self._note(self._take_done, fact.resource, fact.key)

    def _take_done(self, resource: Resource, key: str) -> None:
        record = self._history.find(resource, key)
        self._streams.note_done(resource)
        if record is not None and record.state == "handling":
            state = "retrying" if record.next_at else "failed" if record.failed else "idle"
            note = record.problem if record.next_at or record.failed else ""
            self._history.set_state(record, state, note=note, next_at=record.next_at)

    def _decide(self, fact: LookDecided) -> None:
        plan = fact.plan
        self._plans[fact.resource, fact.key] = plan
        failures: Sequence[str] = ()
        if errors := plan.choice.relevant_failures:
            withheld = is_secret(fact.resource)
            failures = [WITHHELD if withheld else show_error(error) for error in errors[:_MAX_NAMES]]
        change = fact.detection.change
        make, weight = NOTHING if change is None else prepare_diff(change.diff, is_secret=is_secret(fact.resource))
        decided = plan.reason, plan.finalizer, plan.call, bool(plan.called), failures  # no errors: they hold objects
        self._note(self._take_decided, fact.resource, fact.key, decided, make, weight=weight)

    def _take_decided(self, resource: Resource, key: str, decided: _Decided, make: Making) -> None:
        if (record := self._history.find(resource, key)) is not None:
            level = WARNING if decided[-1] else INFO
            self._history.add(record, "look", _describe(decided), level=level, details=make())

    def _end_look(self, fact: LookEnded) -> None:
        begun: LookBegun = fact.begun
        plan = self._plans.pop((begun.resource, begun.key), None)
        failed = None
        if fact.error is None and plan is not None and plan.saving is Saving.END and plan.progress.states:
            failed = any(state.failure for state in plan.progress.states.values())
        error = fact.error if isinstance(fact.error, Exception) else None
        self._note(self._take_ended, begun.resource, begun.key, failed, error, fact.delay)
        if error is not None:
            self._history.backlog.settle()  # errors hold whatever has led to them

    def _take_ended(
        self, resource: Resource, key: str, failed: bool | None, error: Exception | None, delay: float | None
    ) -> None:
        record = self._history.find(resource, key)
        if record is None:
            return
        if failed is not None:
            record.failed = failed
            record.problem = record.problem if failed else ""
        next_at = 0 if delay is None else int((self._history.backlog.now + delay) * 1000)
        if error is not None:
            self._errors.add("the framework", error, record)
            text = f"{type(error).__name__}: {WITHHELD}" if record.kind.is_secret else show_error(error)
            again = "" if delay is None else f"; again in {delay:g} s"
            self._history.add(record, "error", f"{text}{again}", level=ERROR)
            record.problem = text
        if record.state != "gone":
            self._history.set_state(record, record.state, note=record.problem, next_at=next_at)

    def _patch(self, fact: ObjectPatched) -> None:
        head = fact.after.head
        make, weight = prepare_patch(fact.before, fact.changes, is_secret=is_secret(fact.resource))
        patched = fact.is_noop, fact.subresource or "object", head.resourceVersion
        self._note(self._take_patched, fact.resource, head.key, patched, make, weight=weight)

    def _take_patched(self, resource: Resource, key: str, patched: tuple[bool, str, str], make: Making) -> None:
        record = self._history.find(resource, key)
        if record is None:
            return
        is_noop, what, version = patched
        text = f"the patch of the {what} has changed nothing"
        if not is_noop:
            record.own_write = version, self._history.backlog.now
            text = f"the {what} is patched, version {cut(version, 40)}"
        self._history.add(record, "patch", text, details=make())

    def _post(self, fact: EventPosted) -> None:
        report = fact.report
        resource = self._find_resource(report.ref.get("apiVersion", ""), report.ref.get("kind", ""))
        if resource is not None:
            message = WITHHELD if is_secret(resource) else cut(report.message)
            level = INFO if report.type == "Normal" else WARNING
            text = f"{cut(report.reason, 130)}: {message}"
            self._note(self._take_event, resource, report.ref.get("uid", ""), text, level)

    def _take_event(self, resource: Resource, key: str, text: str, level: int) -> None:
        if (record := self._history.find(resource, key)) is not None:
            self._history.add(record, "event", text, level=level)

    def _find_resource(self, version: str, kind: str) -> Resource | None:
        found = (item for item in [*self._history.kinds] if item.kind == kind and item.api_version == version)
        return next(found, None)


_Decided = tuple[Reason, FinalizerChange | None, Sequence[Handler], bool, Sequence[str]]
"""The reason, what is done about the finalizer, who is called, whether it is for anybody at all, and failures."""

_REASONS = {
    Reason.CREATE: "it is created",
    Reason.UPDATE: "it is updated",
    Reason.DELETE: "it is being deleted",
    Reason.RESUME: "it was here before the operator",
    Reason.NOOP: "nothing of interest has changed",
    Reason.FREE: "it is being deleted, and nothing of ours blocks that",
}


def _describe(decided: _Decided) -> str:
    reason, finalizer, call, is_called, failures = decided
    actions = []
    if call:
        names = ", ".join(handler.id for handler in call[:_MAX_NAMES])
        actions.append(f"call {names}{' and more' if len(call) > _MAX_NAMES else ''}")
    elif is_called and finalizer is not FinalizerChange.ADD:
        actions.append("nothing to call now")
    if finalizer is not None:
        actions.append(_FINALIZERS[finalizer])
    actions += failures
    return cut(f"{_REASONS.get(reason, str(reason))}: {'; '.join(actions) or 'nothing to do'}")
