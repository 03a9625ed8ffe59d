"""
The root of a trace: one pass over an object that does something. Passes with nothing to do make no traces.

It is the current span of the worker until the pass ends, so that other spans of the pass belong to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextvars import Token

from opentelemetry import context, trace
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode, Tracer

from kopf._controller.changes.decision import Plan
from kopf._controller.changes.detection import Detection
from kopf._controller.observer import ControllerView, Observer
from kopf._values.lru_dict import LRUDict
from kopf._values.objects import KubeObject
from kopf._values.records import Record
from kopf._values.resources import Resource

MAX_SPANS = 10_000
"""How many spans of each kind are remembered: about 300 bytes each."""
_MAX_FIELDS = 50
"""How many fields of a diff are named."""

Attributes = dict[str, str | int | float | bool | list[str]]

_Key = tuple[Resource, str]


class _Work(Record, eq=False):
    """One object with its worker. The times are in nanoseconds since the epoch."""

    queued: int | None
    """When it began to wait; ``None`` if it is unknown, or is in a span already."""
    begun: int
    pass_begun: int
    span: Span | None = None
    token: Token[context.Context] | None = None


class PassSpans(Observer):
    """
    Makes the spans of passes, and of the waiting before them.

    :param objects: remembers the latest spans of objects, by their uids.
    """

    def __init__(self, tracer: Tracer, objects: LRUDict[str, SpanContext]) -> None:
        self._tracer = tracer
        self._objects = objects
        self._queued: dict[_Key, int] = {}
        self._works: dict[_Key, _Work] = {}

    def controller_stopped(self, controller: ControllerView) -> None:
        self._queued = {key: time for key, time in self._queued.items() if key[0] != controller.resource}

    def object_queued(self, resource: Resource, key: str) -> None:
        self._queued[resource, key] = time.time_ns()

    def work_begun(self, resource: Resource, key: str) -> None:
        now = time.time_ns()
        self._works[resource, key] = _Work(self._queued.pop((resource, key), None), now, now)

    def work_ended(self, resource: Resource, key: str) -> None:
        self._works.pop((resource, key), None)

    def pass_begun(self, resource: Resource, key: str, obj: KubeObject) -> None:
        self._works[resource, key].pass_begun = time.time_ns()

    def pass_decided(self, resource: Resource, key: str, obj: KubeObject, detection: Detection, plan: Plan) -> None:
        if not plan.call and plan.finalizer is None:
            return
        work = self._works[resource, key]
        attributes = describe_object(resource, obj)
        attributes["kopf.reason"] = plan.reason.value
        if detection.change is not None:
            # Without the values, as these can be secret.
            fields = dict.fromkeys(".".join(map(str, item.field)) for item in detection.change.diff)
            attributes["kopf.diff.fields"] = [*fields][:_MAX_FIELDS]
        work.span = self._tracer.start_span(
            f"reconcile {resource.name}",
            context.Context(),
            attributes=attributes,
            links=[*self._link_owners(obj)],
            start_time=work.pass_begun if work.queued is None else work.queued,
        )
        surroundings = trace.set_span_in_context(work.span)
        if work.queued is not None:
            waiting = self._tracer.start_span("queue", surroundings, start_time=work.queued)
            waiting.end(work.begun)
            work.queued = None
        self._objects.note(obj.head.key, work.span.get_span_context())
        work.token = context.attach(surroundings)

    def _link_owners(self, obj: KubeObject) -> Iterator[Link]:
        """Link to the latest spans of the owners of the object: they have probably made it."""
        if b'"ownerReferences"' not in obj.raw:
            return
        for reference in obj.get("metadata", {}).get("ownerReferences") or ():
            span = self._objects.get(reference.get("uid", ""))
            if span is not None:
                yield Link(span, {"kopf.link": "owner"})

    def pass_ended(
        self,
        resource: Resource,
        key: str,
        obj: KubeObject | None,
        error: BaseException | None,
        delay: float | None,
        started: float,
    ) -> None:
        work = self._works.get((resource, key))
        if work is None or work.span is None or work.token is None:
            return
        context.detach(work.token)
        if error is not None and delay is not None:
            work.span.set_attribute("error.type", type(error).__name__)
            work.span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        if delay is not None:
            work.span.set_attribute("kopf.requeue_after", delay)
        work.span.end()
        work.span = work.token = None


def describe_object(resource: Resource, obj: KubeObject) -> Attributes:
    """Describe the identity of the object by the conventions of OpenTelemetry, without its content."""
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
