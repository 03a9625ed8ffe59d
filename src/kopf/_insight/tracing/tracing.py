"""All traces of one operator: they are made as its bus tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopf._facts.bus import Bus
from kopf._insight.tracing.attempt_spans import AttemptSpans
from kopf._insight.tracing.look_spans import LookSpans
from kopf._insight.tracing.other_spans import EventSpans, ReviewSpans
from kopf._insight.tracing.recent_spans import TraceMemory
from kopf._insight.tracing.request_spans import RequestSpans

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


def start_tracing(bus: Bus, tracer: Tracer) -> None:
    """Make traces of what the bus tells, from now on."""
    memory = TraceMemory()
    LookSpans(bus, tracer, memory)
    AttemptSpans(bus, tracer, memory)
    RequestSpans(bus, tracer)
    ReviewSpans(bus, tracer)
    EventSpans(bus, tracer, memory)
