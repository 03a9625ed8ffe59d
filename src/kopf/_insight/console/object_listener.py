"""
The listener for objects: turns the facts of their handling into their states and timelines.

It is called for every step of every object, so it does as little as possible, and keeps nothing of the facts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kopf._client.resources.watch_facts import ObjectPatched
from kopf._controller.changes.decision import Plan, Saving
from kopf._controller.changes.look_facts import LookBegun, LookDecided, LookEnded
from kopf._controller.controller_facts import ObjectObserved, ObjectQueued, WorkBegun, WorkEnded
from kopf._events.event_facts import EventPosted
from kopf._facts.bus import Bus
from kopf._insight.console.grouped_errors import GroupedErrors
from kopf._insight.console.history import ERROR, INFO, WARNING, History
from kopf._insight.console.object_records import ObjectRecord
from kopf._insight.console.stream_vitals import Streams
from kopf._insight.console.texts import WITHHELD, Details, cut, show_diff, show_error, show_patch
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange
from kopf._values.reasons import Reason
from kopf._values.resources import Resource

_MAX_COMPARED = 16_384
"""Up to which size an object is decoded to show what was there before a patch, in bytes."""
_MAX_NAMES = 10

_FINALIZERS = {FinalizerChange.ADD: "add the finalizer", FinalizerChange.REMOVE: "remove the finalizer"}


class ObjectListener:
    """Follows the objects from their events to their patches."""

    def __init__(self, bus: Bus, history: History, errors: GroupedErrors, streams: Streams) -> None:
        self._history = history
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
        record = self._history.obtain(fact.resource, fact.key, head.namespace, head.name)
        lag = None
        if record.own_write is not None and record.own_write[0] == head.resourceVersion:
            lag = time.monotonic() - record.own_write[1]
            record.own_write = None
        self._streams.note_event(fact.resource, lag)
        text = f"{fact.type or 'listed'}, version {cut(head.resourceVersion, 40)}"
        if lag is not None:
            text += f": our own write, back after {lag * 1000:.0f} ms"
        elif head.deletionTimestamp is not None and fact.type != "DELETED":
            text += ", being deleted"
        self._history.add(record, "seen", text)
        if fact.type == "DELETED":
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
        self._streams.note_wait(fact.resource, time.time() - record.since / 1000 if record.state == "queued" else 0)
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
        record = self._history.find(fact.resource, fact.key)
        if record is None:
            return
        plan = fact.plan
        self._plans[fact.resource, fact.key] = plan
        actions = []
        if plan.call:
            names = ", ".join(handler.id for handler in plan.call[:_MAX_NAMES])
            actions.append(f"call {names}{' and more' if len(plan.call) > _MAX_NAMES else ''}")
        elif plan.called and plan.finalizer is not FinalizerChange.ADD:
            actions.append("nothing to call now")
        if plan.finalizer is not None:
            actions.append(_FINALIZERS[plan.finalizer])
        failures = plan.choice.relevant_failures
        actions += [WITHHELD if record.kind.is_secret else show_error(error) for error in failures[:_MAX_NAMES]]
        change = fact.detection.change
        details: Details = ()
        if change is not None:
            details = show_diff(change.diff, secret=True) if record.kind.is_secret else {"diff": change.diff}
        text = cut(f"{_REASONS.get(plan.reason, str(plan.reason))}: {'; '.join(actions) or 'nothing to do'}")
        self._history.add(record, "look", text, level=WARNING if failures else INFO, details=details)

    def _end_look(self, fact: LookEnded) -> None:
        begun: LookBegun = fact.begun
        plan = self._plans.pop((begun.resource, begun.key), None)
        record = self._history.find(begun.resource, begun.key)
        if record is None:
            return
        if fact.error is None and plan is not None and plan.saving is Saving.END and plan.progress.states:
            failures = [key for key, state in plan.progress.states.items() if state.failure]
            record.failed = bool(failures)
            if not failures:
                record.problem = ""
        next_at = 0 if fact.delay is None else int((time.time() + fact.delay) * 1000)
        if fact.error is not None and isinstance(fact.error, Exception):
            self._errors.add("the framework", fact.error, record)
            text = f"{type(fact.error).__name__}: {WITHHELD}" if record.kind.is_secret else show_error(fact.error)
            delay = "" if fact.delay is None else f"; again in {fact.delay:g} s"
            self._history.add(record, "error", f"{text}{delay}", level=ERROR)
            record.problem = text
        if record.state != "gone":
            self._history.set_state(record, record.state, note=record.problem, next_at=next_at)

    def _patch(self, fact: ObjectPatched) -> None:
        record = self._history.find(fact.resource, fact.after.head.key)
        if record is None:
            return
        version = fact.after.head.resourceVersion
        if not fact.is_noop:
            record.own_write = version, time.monotonic()
        text = f"the {fact.subresource or 'object'} is patched, version {cut(version, 40)}"
        if fact.is_noop:
            text = f"the patch of the {fact.subresource or 'object'} has changed nothing"
        details: Details
        if record.kind.is_secret:
            details = show_patch(fact.changes, None, secret=True)
        else:
            details = {"changes": fact.changes, "before": _get_before(fact.before, fact.changes)}
        self._history.add(record, "patch", text, details=details)

    def _post(self, fact: EventPosted) -> None:
        report = fact.report
        record = self._find_referred(report.ref.get("apiVersion", ""), report.ref.get("kind", ""), report.ref)
        if record is not None:
            message = WITHHELD if record.kind.is_secret else cut(report.message)
            level = INFO if report.type == "Normal" else WARNING
            self._history.add(record, "event", f"{cut(report.reason, 130)}: {message}", level=level)

    def _find_referred(self, version: str, kind: str, ref: object) -> ObjectRecord | None:
        uid = ref.get("uid", "") if isinstance(ref, dict) else ""
        for resource in [*self._history.kinds]:
            if resource.kind == kind and resource.api_version == version:
                return self._history.find(resource, uid)
        return None


_REASONS = {
    Reason.CREATE: "it is created",
    Reason.UPDATE: "it is updated",
    Reason.DELETE: "it is being deleted",
    Reason.RESUME: "it was here before the operator",
    Reason.NOOP: "nothing of interest has changed",
    Reason.FREE: "it is being deleted, and nothing of ours blocks that",
}


def _get_before(obj: KubeObject, changes: Any) -> dict[str, Any]:
    """Take out what was there before in the fields that are changed; of the metadata, what is decoded already."""
    if not isinstance(changes, dict) or obj.size > _MAX_COMPARED or obj.pruned:
        return {}
    known = {key: obj.get(key) for key in changes if key != "metadata"}
    if "metadata" in changes:
        head = obj.head
        known["metadata"] = {"labels": head.labels, "annotations": head.annotations, "finalizers": head.finalizers}
    try:
        return _take_same(changes, known)
    except RecursionError:
        return {}


def _take_same(changes: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _take_same(value, known[key]) if isinstance(value, dict) and isinstance(known[key], dict) else known[key]
        for key, value in changes.items()
        if known.get(key) is not None
    }
