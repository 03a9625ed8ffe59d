"""All traces of one operator: they are made by its observers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopf._controller.observer import Observers
from kopf._insight.tracing.attempt_spans import AttemptSpans
from kopf._insight.tracing.look_spans import LookSpans
from kopf._insight.tracing.other_spans import EventSpans, ReviewSpans
from kopf._insight.tracing.recent_spans import TraceMemory
from kopf._insight.tracing.request_spans import RequestSpans

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


def start_tracing(observers: Observers, tracer: Tracer) -> None:
    """Make traces of what the operator does, from now on."""
    memory = TraceMemory()
    observers.add(
        LookSpans(tracer, memory),
        AttemptSpans(tracer, memory),
        RequestSpans(tracer),
        ReviewSpans(tracer),
        EventSpans(tracer, memory),
    )
