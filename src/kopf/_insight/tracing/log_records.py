"""Log records know of the current trace and span: as the attributes ``trace_id`` & ``span_id``, if there are any."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from opentelemetry import trace


class _Factory:
    """Makes the records as they were made before, and adds to them as long as anybody needs that."""

    def __init__(self) -> None:
        self._previous = logging.getLogRecordFactory()
        self.users = 0

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._previous(*args, **kwargs)
        if self.users:
            span = trace.get_current_span().get_span_context()
            if span.is_valid:
                record.trace_id = trace.format_trace_id(span.trace_id)
                record.span_id = trace.format_span_id(span.span_id)
        return record

    def remove(self) -> None:
        """Have it as it was before, unless somebody else has put something over it meanwhile."""
        if logging.getLogRecordFactory() is self:
            logging.setLogRecordFactory(self._previous)


@contextlib.contextmanager
def marking_logs() -> Iterator[None]:
    """Mark all log records that are made inside of the block, in all threads."""
    current = logging.getLogRecordFactory()
    factory = current if isinstance(current, _Factory) else _Factory()
    logging.setLogRecordFactory(factory)
    factory.users += 1
    try:
        yield
    finally:
        factory.users -= 1
        if not factory.users:
            factory.remove()
