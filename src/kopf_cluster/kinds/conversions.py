"""
Built-in kinds with two served versions, of which only one is stored: events, and pod autoscalers.

Events of ``events.k8s.io/v1`` are core events with other names of fields. Autoscalers of ``v1`` have
only the target for CPU; everything else of ``v2`` is in their annotations, so that nothing is lost on the way back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kopf_cluster import codec
from kopf_cluster.kinds.kind import Converter, Kind, Obj
from kopf_cluster.store.watch_cache import Record

_EVENT_FIELDS: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_ANNOTATION: Final = "autoscaling.alpha.kubernetes.io/"
# The fields of autoscalers that are annotations in the version 1: the part, the field, and the annotation.
_ANNOTATED: Final = (
    ("spec", "metrics", "metrics"),
    ("spec", "behavior", "behavior"),
    ("status", "conditions", "conditions"),
    ("status", "currentMetrics", "current-metrics"),
)
# The utilization of CPU: the part, the list of metrics, the field of the metric, the field in the version 1; and what
# else the field of the metric has.
_UTILIZATIONS: Final[tuple[tuple[str, str, str, str, Obj], ...]] = (
    ("spec", "metrics", "target", "targetCPUUtilizationPercentage", {"type": "Utilization"}),
    ("status", "currentMetrics", "current", "currentCPUUtilizationPercentage", {}),
)


def rename_event_field(path: str) -> str:
    """Return the path in the stored version for a path in events of ``events.k8s.io/v1``."""
    name, dot, rest = path.partition(".")
    return _EVENT_FIELDS.get(name, name) + dot + rest


class BuiltinConverter(Converter):
    """Converts objects between the served version and the stored one, with no webhooks and no cache."""

    converts = True

    def __init__(self, stored: str, to_stored: Callable[[Obj], Obj], to_served: Callable[[Obj], Obj]) -> None:
        self._stored = stored
        self._to_stored = to_stored
        self._to_served = to_served

    def read(self, kind: Kind, record: Record) -> bytes:
        return codec.encode(self._to_served(codec.decode(b"{" + record.data)))[1:]

    def write(self, kind: Kind, obj: Obj) -> Obj:
        return {**self._to_stored(obj), "apiVersion": self._stored}


def _store_event(event: Obj) -> Obj:
    return {_EVENT_FIELDS.get(name, name): value for name, value in event.items()}


def _serve_event(event: Obj) -> Obj:
    names = {stored: served for served, stored in _EVENT_FIELDS.items()}
    return {names.get(name, name): value for name, value in event.items()}


def _store_autoscaler(obj: Obj) -> Obj:
    """Convert the version 1 into the version 2."""
    made: Obj = {**obj, "metadata": dict(obj["metadata"])}
    parts = {"spec": dict(obj.get("spec") or {}), "status": dict(obj.get("status") or {})}
    _take_annotations(made["metadata"], parts)
    for part, field, inner, number, common in _UTILIZATIONS:
        value = parts[part].pop(number, None)
        if value is not None:
            cpu = {"name": "cpu", inner: {**common, "averageUtilization": value}}
            parts[part][field] = [{"type": "Resource", "resource": cpu}, *(parts[part].get(field) or ())]
    return {**made, **{name: part for name, part in parts.items() if part or name in obj}}


def _take_annotations(metadata: Obj, parts: dict[str, Obj]) -> None:
    annotations = dict(metadata.get("annotations") or {})
    for part, field, name in _ANNOTATED:
        text = annotations.get(_ANNOTATION + name)
        if text is not None:
            try:
                parts[part][field] = codec.decode(text.encode())
            except codec.DecodeError:
                continue  # somebody else's text; it stays what it is
            del annotations[_ANNOTATION + name]
    metadata["annotations"] = annotations
    if not annotations:
        del metadata["annotations"]


def _serve_autoscaler(obj: Obj) -> Obj:
    """Convert the version 2 into the version 1."""
    made: Obj = {**obj, "metadata": dict(obj["metadata"])}
    parts = {"spec": dict(obj.get("spec") or {}), "status": dict(obj.get("status") or {})}
    for part, field, inner, number, _ in _UTILIZATIONS:
        for place, metric in enumerate(parts[part].get(field) or ()):
            value = _utilization(metric, inner)
            if value is not None:
                parts[part][number] = value
                parts[part][field] = [item for other, item in enumerate(parts[part][field]) if other != place]
                break
    annotations = dict(made["metadata"].get("annotations") or {})
    for part, field, name in _ANNOTATED:
        value = parts[part].pop(field, None)
        if value:
            annotations[_ANNOTATION + name] = codec.encode(value).decode()
    if annotations:
        made["metadata"]["annotations"] = annotations
    return {**made, **{name: part for name, part in parts.items() if part or name in obj}}


def _utilization(metric: Any, inner: str) -> int | None:
    """Return the utilization if it is the metric for CPU that the version 1 has."""
    resource = (metric.get("resource") or {}) if metric.get("type") == "Resource" else {}
    found: int | None = (resource.get(inner) or {}).get("averageUtilization") if resource.get("name") == "cpu" else None
    return found


EVENTS: Final = BuiltinConverter("v1", _store_event, _serve_event)
AUTOSCALERS: Final = BuiltinConverter("autoscaling/v2", _store_autoscaler, _serve_autoscaler)
