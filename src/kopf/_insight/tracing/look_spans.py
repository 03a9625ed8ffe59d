"""
The root of a trace: one look at an object in which something is done. Looks with nothing to do make no traces.

It is the current span of the worker until the look ends, so whatever is done meanwhile belongs to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextvars import Token

from opentelemetry import context, trace
from opentelemetry.trace import Link, Span, Status, StatusCode, Tracer

from kopf._controller.changes.look_facts import LookBegun, LookDecided, LookEnded
from kopf._controller.controller_facts import ControllerStopped, ObjectQueued, WorkBegun, WorkEnded
from kopf._facts.bus import Bus
from kopf._insight.tracing.recent_spans import TraceMemory
from kopf._values.diffs import Diff
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

_MAX_FIELDS = 50
"""How many fields of a diff are named."""

Attributes = dict[str, str | int | float | bool | list[str]]

_Key = tuple[Resource, str]


class _Work:
    """One object with its worker."""

    __slots__ = ("begun", "looked", "queued", "span", "token")

    def __init__(self, queued: int | None, begun: int) -> None:
        self.queued = queued
        """When it began to wait, in nanoseconds; ``None`` if it is unknown, or is told already."""
        self.begun = begun
        self.looked = begun
        self.span: Span | None = None
        self.token: Token[context.Context] | None = None


class LookSpans:
    """Makes the spans of looks, and of the waiting before them."""

    def __init__(self, bus: Bus, tracer: Tracer, memory: TraceMemory) -> None:
        self._tracer = tracer
        self._memory = memory
        self._queued: dict[_Key, int] = {}
        self._works: dict[_Key, _Work] = {}
        bus.subscribe(ControllerStopped, self._on_stop)
        bus.subscribe(ObjectQueued, self._on_queued)
        bus.subscribe(WorkBegun, self._on_work)
        bus.subscribe(WorkEnded, self._on_work_end)
        bus.subscribe(LookBegun, self._on_look)
        bus.subscribe(LookDecided, self._on_decision)
        bus.subscribe(LookEnded, self._on_look_end)

    def _on_stop(self, fact: ControllerStopped) -> None:
        self._queued = {key: time for key, time in self._queued.items() if key[0] != fact.resource}

    def _on_queued(self, fact: ObjectQueued) -> None:
        self._queued[fact.resource, fact.key] = time.time_ns()

    def _on_work(self, fact: WorkBegun) -> None:
        key = (fact.resource, fact.key)
        self._works[key] = _Work(self._queued.pop(key, None), time.time_ns())

    def _on_work_end(self, fact: WorkEnded) -> None:
        self._works.pop((fact.resource, fact.key), None)

    def _on_look(self, fact: LookBegun) -> None:
        self._works[fact.resource, fact.key].looked = time.time_ns()

    def _on_decision(self, fact: LookDecided) -> None:
        if not fact.plan.call and fact.plan.finalizer is None:
            return
        work = self._works[fact.resource, fact.key]
        attributes = describe_object(fact.resource, fact.obj)
        attributes["kopf.reason"] = fact.plan.reason.value
        if fact.detection.change is not None:
            attributes["kopf.diff.fields"] = list_fields(fact.detection.change.diff)
        work.span = self._tracer.start_span(
            f"reconcile {fact.resource.name}",
            context.Context(),
            attributes=attributes,
            links=[*self._link_owners(fact.obj)],
            start_time=work.looked if work.queued is None else work.queued,
        )
        surroundings = trace.set_span_in_context(work.span)
        if work.queued is not None:
            waiting = self._tracer.start_span("queue", surroundings, start_time=work.queued)
            waiting.end(work.begun)
            work.queued = None
        self._memory.objects.note(fact.obj.head.key, work.span.get_span_context())
        work.token = context.attach(surroundings)

    def _link_owners(self, obj: KubeObject) -> Iterator[Link]:
        """Link to what was done last for the owners of the object: it is probably made by that."""
        if b'"ownerReferences"' not in obj.raw:
            return
        for reference in obj.get("metadata", {}).get("ownerReferences") or ():
            span = self._memory.objects.recall(reference.get("uid", ""))
            if span is not None:
                yield Link(span, {"kopf.link": "owner"})

    def _on_look_end(self, fact: LookEnded) -> None:
        work = self._works.get((fact.begun.resource, fact.begun.key))
        if work is None or work.span is None or work.token is None:
            return
        context.detach(work.token)
        if fact.error is not None and fact.delay is not None:
            work.span.set_attribute("error.type", type(fact.error).__name__)
            work.span.set_status(Status(StatusCode.ERROR, type(fact.error).__name__))
        if fact.delay is not None:
            work.span.set_attribute("kopf.requeue_after", fact.delay)
        work.span.end()
        work.span = work.token = None


def describe_object(resource: Resource, obj: KubeObject) -> Attributes:
    """Tell which object it is, by the conventions of OpenTelemetry; nothing of its content."""
    head = obj.head
    attributes: Attributes = {
        "k8s.object.api_version": resource.api_version,
        "k8s.object.kind": resource.kind or resource.plural,
        "k8s.object.name": head.name,
        "k8s.object.uid": head.uid,
        "k8s.object.resource_version": head.resourceVersion,
    }
    if head.namespace is not None:
        attributes["k8s.namespace.name"] = head.namespace
    return attributes


def list_fields(diff: Diff) -> list[str]:
    """Name the fields that are different, without their values: these can be secret."""
    fields = dict.fromkeys(".".join(map(str, item.field)) for item in diff)
    return [*fields][:_MAX_FIELDS]
