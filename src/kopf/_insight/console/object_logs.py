"""The logs of the objects, as they come to the console: to the timelines of those objects."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from kopf._insight.console.history import ERROR, INFO, WARNING, History
from kopf._insight.console.texts import WITHHELD, cut, is_secret
from kopf._logging.loggers import objects_logger
from kopf._values.references import ObjectReference
from kopf._values.resources import Resource


class _TimelineHandler(logging.Handler):
    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self._resources: dict[tuple[str, str], Resource] = {}

    def emit(self, record: logging.LogRecord) -> None:
        ref: ObjectReference | None = getattr(record, "k8s_ref", None)
        resource = None if ref is None else self._find_resource(ref)
        if ref is None or resource is None:
            return
        key = ref.get("uid") or f"{ref.get('namespace') or ''}/{ref.get('name', '')}"
        level = ERROR if record.levelno >= logging.ERROR else WARNING if record.levelno >= logging.WARNING else INFO
        try:
            text = WITHHELD if is_secret(resource) else cut(record.getMessage())
        except Exception:  # the arguments do not fit; the regular handlers complain of that
            text = cut(str(record.msg))
        self._history.backlog.note(self._add, resource, key, text, level)

    def _add(self, resource: Resource, key: str, text: str, level: int) -> None:
        if (record := self._history.find(resource, key)) is not None:
            self._history.add(record, "log", text, level=level)

    def _find_resource(self, ref: ObjectReference) -> Resource | None:
        version, kind = ref.get("apiVersion", ""), ref.get("kind", "")
        resource = self._resources.get((version, kind))
        if resource is None:
            for resource in [*self._history.kinds]:
                self._resources[resource.api_version, resource.kind or ""] = resource
            resource = self._resources.get((version, kind))
        return resource


@contextlib.contextmanager
def collecting_logs(history: History) -> Iterator[None]:
    """Put the logs of the objects to their timelines as long as the block lasts."""
    handler = _TimelineHandler(history)
    objects_logger.addHandler(handler)
    try:
        yield
    finally:
        objects_logger.removeHandler(handler)
