"""Posting of log messages: those about the objects become Kubernetes events, as ``settings.posting`` says."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from kopf._events.recorder import EventRecorder, current_recorder
from kopf._logging.loggers import objects_logger


class PostingLogHandler(logging.Handler):
    """Makes events of the log messages about the objects of one operator, as configured in ``settings.posting``."""

    def __init__(self, recorder: EventRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell if the message is to be posted; the handler is not even locked for all the others."""
        settings = self._recorder.settings.posting
        return (
            settings.enabled
            and settings.loggers
            and record.levelno >= settings.level
            and getattr(record, "k8s_ref", None) is not None
            and not getattr(record, "k8s_skip", False)
            and current_recorder.get(None) is self._recorder
            and bool(super().filter(record))
        )

    def emit(self, record: logging.LogRecord) -> None:
        self._recorder.enqueue(
            getattr(record, "k8s_ref"),  # noqa: B009  # unknown to the types of the standard library
            type=get_event_type(record.levelno),
            reason="Logging",
            message=record.getMessage(),  # with no tracebacks: they do not fit
            backoffs=self._recorder.settings.posting.logging_backoffs,
            is_explicit=False,
        )


def get_event_type(level: int) -> str:
    """Get the type of events for a level of :mod:`logging`."""
    if level >= logging.ERROR:
        return "Error"
    return "Warning" if level >= logging.WARNING else "Normal"


@contextlib.contextmanager
def posting(recorder: EventRecorder) -> Iterator[None]:
    """Let the log messages & the explicit events in this context go to the recorder."""
    handler = PostingLogHandler(recorder)
    objects_logger.addHandler(handler)
    token = current_recorder.set(recorder)
    try:
        yield
    finally:
        current_recorder.reset(token)
        objects_logger.removeHandler(handler)
