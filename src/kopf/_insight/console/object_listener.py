"""
The listener for objects: turns the facts of their handling into their states and timelines.

The facts come late, by the backlog. Only what can change until then, is serialised at once: the users' own values.
"""

from __future__ import annotations

from kopf._client.resources.watch_facts import ObjectPatched
from kopf._controller.changes.decision import Plan, Saving
from kopf._controller.changes.look_facts import LookDecided, LookEnded
from kopf._controller.controller_facts import ObjectObserved, ObjectQueued, WorkBegun, WorkEnded
from kopf._events.event_facts import EventPosted
from kopf._facts.bus import Bus
from kopf._insight.console.grouped_errors import GroupedErrors
from kopf._insight.console.history import ERROR, INFO, WARNING, History
from kopf._insight.console.patch_details import Kept, keep_diff, keep_patch, restore_diff, restore_patch
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

    Large because each of these steps is a fact of its own.
    """

    def __init__(self, bus: Bus, history: History, errors: GroupedErrors, streams: Streams) -> None:
        self._history = history
        self._note = history.backlog.note_fact
        follow = history.backlog.follow
        self._errors = errors
        self._streams = streams
        self._plans: dict[tuple[Resource, str], Plan] = {}
        bus.subscribe(ObjectObserved, self._observe)
        bus.subscribe(LookDecided, self._decide)
        bus.subscribe(ObjectPatched, self._patch)
        follow(bus, ObjectQueued, self._queue, is_passing=True)
        follow(bus, WorkBegun, self._begin_work, is_passing=True)
        follow(bus, WorkEnded, self._end_work)
        follow(bus, LookEnded, self._end_look, is_passing=True)
        follow(bus, EventPosted, self._post)

    def _observe(self, fact: ObjectObserved) -> None:
        self._note(fact.at, fact.obj.size, self._take_observed, fact)

    def _take_observed(self, fact: ObjectObserved) -> None:
        resource, type, head = fact.resource, fact.type, fact.obj.head
        version = head.resourceVersion
        record = self._history.obtain(resource, fact.key, head.namespace, head.name)
        text = f"{type or 'listed'}, version {cut(version, 40)}"
        lag = None
        if record.own_write is not None and record.own_write[0] == version:
            lag = max(0.0, self._history.backlog.now - record.own_write[1])
            record.own_write = None
            text += f": our own write, back after {lag * 1000:.0f} ms"
        elif head.deletionTimestamp is not None and type != "DELETED":
            text += ", being deleted"
        self._streams.note_event(resource, lag)
        self._history.add(record, "seen", text)
        if type == "DELETED":
            self._history.set_state(record, "gone")
        elif record.state == "gone":  # it is selected again
            self._history.set_state(record, "idle")

    def _queue(self, fact: ObjectQueued) -> None:
        record = self._history.find(fact.resource, fact.key)
        if record is not None and record.state != "gone":
            self._history.set_state(record, "queued", note=record.note)

    def _begin_work(self, fact: WorkBegun) -> None:
        record = self._history.find(fact.resource, fact.key)
        if record is None:
            return
        waited = self._history.backlog.now - record.since / 1000 if record.state == "queued" else 0
        self._streams.note_wait(fact.resource, waited)
        if record.state != "gone":
            self._history.set_state(record, "handling", note=record.problem, next_at=record.next_at)

    def _end_work(self, fact: WorkEnded) -> None:
        record = self._history.find(fact.resource, fact.key)
        self._streams.note_done(fact.resource)
        if record is not None and record.state == "handling":
            state = "retrying" if record.next_at else "failed" if record.failed else "idle"
            note = record.problem if record.next_at or record.failed else ""
            self._history.set_state(record, state, note=note, next_at=record.next_at)

    def _decide(self, fact: LookDecided) -> None:
        change = fact.detection.change
        kept = () if change is None else keep_diff(change.diff, is_secret=is_secret(fact.resource))
        self._note(fact.at, len(kept), self._take_decided, fact, kept)

    def _take_decided(self, fact: LookDecided, kept: Kept) -> None:
        plan = self._plans[fact.resource, fact.key] = fact.plan
        if (record := self._history.find(fact.resource, fact.key)) is not None:
            text = _describe(plan, withheld=record.kind.is_secret)
            level = WARNING if plan.choice.relevant_failures else INFO
            self._history.add(record, "look", text, level=level, details=restore_diff(kept))

    def _end_look(self, fact: LookEnded) -> None:
        begun, delay = fact.begun, fact.delay
        plan = self._plans.pop((begun.resource, begun.key), None)
        record = self._history.find(begun.resource, begun.key)
        if record is None:
            return
        if fact.error is None and plan is not None and plan.saving is Saving.END and plan.progress.states:
            record.failed = any(state.failure for state in plan.progress.states.values())
            record.problem = record.problem if record.failed else ""
        next_at = 0 if delay is None else int((self._history.backlog.now + delay) * 1000)
        if isinstance(fact.error, Exception):
            self._errors.add("the framework", fact.error, record)
            text = f"{type(fact.error).__name__}: {WITHHELD}" if record.kind.is_secret else show_error(fact.error)
            again = "" if delay is None else f"; again in {delay:g} s"
            self._history.add(record, "error", f"{text}{again}", level=ERROR)
            record.problem = text
        if record.state != "gone":
            self._history.set_state(record, record.state, note=record.problem, next_at=next_at)

    def _patch(self, fact: ObjectPatched) -> None:
        kept = keep_patch(fact.changes, is_secret=is_secret(fact.resource))
        self._note(fact.at, fact.before.size + fact.after.size + len(kept), self._take_patched, fact, kept)

    def _take_patched(self, fact: ObjectPatched, kept: Kept) -> None:
        head = fact.after.head
        record = self._history.find(fact.resource, head.key)
        if record is None:
            return
        what = fact.subresource or "object"
        text = f"the patch of the {what} has changed nothing"
        if not fact.is_noop:
            version = head.resourceVersion
            record.own_write = version, self._history.backlog.now
            text = f"the {what} is patched, version {cut(version, 40)}"
        self._history.add(record, "patch", text, details=restore_patch(fact.before, kept))

    def _post(self, fact: EventPosted) -> None:
        report = fact.report
        resource = self._find_resource(report.ref.get("apiVersion", ""), report.ref.get("kind", ""))
        if resource is not None:
            message = WITHHELD if is_secret(resource) else cut(report.message)
            level = INFO if report.type == "Normal" else WARNING
            record = self._history.find(resource, report.ref.get("uid", ""))
            if record is not None:
                self._history.add(record, "event", f"{cut(report.reason, 130)}: {message}", level=level)

    def _find_resource(self, version: str, kind: str) -> Resource | None:
        found = (item for item in [*self._history.kinds] if item.kind == kind and item.api_version == version)
        return next(found, None)


_REASONS = {
    Reason.CREATE: "it is created",
    Reason.UPDATE: "it is updated",
    Reason.DELETE: "it is being deleted",
    Reason.RESUME: "it was here before the operator",
    Reason.NOOP: "nothing of interest has changed",
    Reason.FREE: "it is being deleted, and nothing of ours blocks that",
}


def _describe(plan: Plan, *, withheld: bool) -> str:
    call, finalizer = plan.call, plan.finalizer
    actions = []
    if call:
        names = ", ".join(handler.id for handler in call[:_MAX_NAMES])
        actions.append(f"call {names}{' and more' if len(call) > _MAX_NAMES else ''}")
    elif plan.called and finalizer is not FinalizerChange.ADD:
        actions.append("nothing to call now")
    if finalizer is not None:
        actions.append(_FINALIZERS[finalizer])
    actions += [WITHHELD if withheld else show_error(error) for error in plan.choice.relevant_failures[:_MAX_NAMES]]
    return cut(f"{_REASONS.get(plan.reason, str(plan.reason))}: {'; '.join(actions) or 'nothing to do'}")
