"""Collected spans, to be looked at in tests."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id


class Collected:
    """What the SDK has exported to the memory."""

    def __init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return [*self._exporter.get_finished_spans()]

    def find(self, name: str, **attributes: object) -> list[ReadableSpan]:
        """Those of the name, in the order of their beginnings; the dots of attributes are double underscores."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        named = sorted([span for span in self.spans if span.name == name], key=lambda span: span.start_time or 0)
        return [span for span in named if wanted.items() <= dict(span.attributes or {}).items()]

    def get(self, name: str, **attributes: object) -> ReadableSpan:
        """The only one of the name."""
        found = self.find(name, **attributes)
        assert len(found) == 1, (name, attributes, [(span.name, dict(span.attributes or {})) for span in self.spans])
        return found[0]

    def list_children(self, parent: ReadableSpan) -> list[str]:
        """The names of the spans inside of that one."""
        inner = [span for span in self.spans if span.parent and span.parent.span_id == parent.context.span_id]
        assert all(span.context.trace_id == parent.context.trace_id for span in inner)
        return [span.name for span in sorted(inner, key=lambda span: span.start_time or 0)]


def get_traceparent(span: ReadableSpan) -> str:
    context = span.context
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"
