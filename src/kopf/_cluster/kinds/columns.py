"""
Columns of the Table output: of custom kinds from their definitions, of built-in kinds from short notes.

A note is ``Title=path`` for a cell with what the JSONPath finds, ``Title=@name`` for a cell computed by
a function of this file; a title in parentheses is shown only in the wide output.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .. import ages, jsonpaths
from .kind import Column, Obj

_NONE: Final = "<none>"


def name_of(obj: Obj) -> Any:
    return obj["metadata"]["name"]


def age_of(obj: Obj) -> Any:
    return ages.age(obj["metadata"].get("creationTimestamp"))


NAME: Final = Column("Name", "string", "The unique name within its namespace.", name_of, format="name")
AGE: Final = Column("Age", "string", "The time since the creation.", age_of)


def from_definition(raw: list[Obj] | None) -> tuple[Column, ...]:
    """Make the columns of a custom kind from its `additionalPrinterColumns`."""
    if not raw:
        return NAME, Column("Age", "date", "The time since the creation.", age_of)
    return NAME, *(
        Column(item.get("name", ""), item.get("type", ""), item.get("description", ""),
               _custom_cell(item.get("type", ""), jsonpaths.parse(item.get("jsonPath", ""))),
               format=item.get("format", ""), priority=int(item.get("priority") or 0))
        for item in raw
    )


def _custom_cell(kind: str, path: jsonpaths.Path) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        found = path.find(obj)
        if not found:
            return None
        if kind == "string":
            return " ".join(jsonpaths.as_text(value) for value in found)
        if kind == "date":
            return ages.age(found[0])
        if kind == "integer":
            return int(found[0]) if isinstance(found[0], (int, float)) else None
        if kind == "number":
            return found[0] if isinstance(found[0], (int, float)) else None
        return found[0] if isinstance(found[0], bool) else None
    return cell


def from_notes(notes: str) -> tuple[Column, ...]:
    """Make the columns of a built-in kind; the name goes first, the age goes before the wide ones."""
    narrow: list[Column] = []
    wide: list[Column] = []
    for note in filter(None, (note.strip() for note in notes.split(","))):
        title, _, source = note.partition("=")
        is_wide = title.startswith("(")
        cell = _CELLS[source[1:]] if source.startswith("@") else _path_cell(jsonpaths.parse(source))
        column = Column(title[1:-1] if is_wide else title, "string", "", cell, priority=1 if is_wide else 0)
        (wide if is_wide else narrow).append(column)
    return NAME, *narrow, *(() if any(column.name == "Age" for column in narrow) else (AGE,)), *wide


def _path_cell(path: jsonpaths.Path) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        return ",".join(jsonpaths.as_text(value) for value in path.find(obj)) or _NONE
    return cell


def _dig(obj: Obj, *names: str) -> Any:
    value: Any = obj
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _items(obj: Obj, *names: str) -> list[Any]:
    value = _dig(obj, *names)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _count(obj: Obj, *names: str) -> int:
    value = _dig(obj, *names)
    return value if isinstance(value, int) else 0


def _pod_ready(obj: Obj) -> str:
    statuses = _items(obj, "status", "containerStatuses")
    return f"{sum(bool(item.get('ready')) for item in statuses)}/{len(_items(obj, 'spec', 'containers'))}"


def _pod_status(obj: Obj) -> Any:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for item in _items(obj, "status", "containerStatuses"):
        reason = _dig(item, "state", "waiting", "reason") or _dig(item, "state", "terminated", "reason")
        if reason:
            return reason
    return _dig(obj, "status", "reason") or _dig(obj, "status", "phase") or "Unknown"


def _pod_restarts(obj: Obj) -> str:
    return str(sum(_count(item, "restartCount") for item in _items(obj, "status", "containerStatuses")))


def _data_count(obj: Obj) -> int:
    return sum(len(value) for field in ("data", "binaryData") if isinstance(value := obj.get(field), dict))


def _phase(obj: Obj) -> Any:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else _dig(obj, "status", "phase")


def _ports(obj: Obj) -> str:
    def show(port: Obj) -> str:
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"
    return ",".join(show(port) for port in _items(obj, "spec", "ports")) or _NONE


def _replicas_ready(obj: Obj) -> str:
    return f"{_count(obj, 'status', 'readyReplicas')}/{_count(obj, 'spec', 'replicas')}"


def _job_completions(obj: Obj) -> str:
    return f"{_count(obj, 'status', 'succeeded')}/{_dig(obj, 'spec', 'completions') or 1}"


def _job_status(obj: Obj) -> str:
    for condition in _items(obj, "status", "conditions"):
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed", "Suspended"):
            return str(condition["type"])
    return "Running"


def _node_status(obj: Obj) -> str:
    for condition in _items(obj, "status", "conditions"):
        if condition.get("type") == "Ready":
            return "Ready" if condition.get("status") == "True" else "NotReady"
    return "Unknown"


def _selector(obj: Obj) -> str:
    selector = _dig(obj, "spec", "selector")
    if isinstance(selector, dict):
        selector = selector.get("matchLabels", selector)
    if not isinstance(selector, dict):
        return _NONE
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or _NONE


def _access_modes(obj: Obj) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    modes = _dig(obj, "spec", "accessModes")
    return ",".join(short.get(mode, str(mode)) for mode in modes) if isinstance(modes, list) else ""


def _role(obj: Obj) -> str:
    return f"{_dig(obj, 'roleRef', 'kind')}/{_dig(obj, 'roleRef', 'name')}"


def _event_last_seen(obj: Obj) -> Any:
    return ages.age(obj.get("lastTimestamp") or obj.get("eventTime") or obj.get("firstTimestamp")
                    or obj["metadata"].get("creationTimestamp"))


def _event_object(obj: Obj) -> str:
    ref = obj.get("involvedObject") or {}
    return f"{str(ref.get('kind', '')).lower()}/{ref.get('name', '')}"


def _text(*names: str, default: str) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        value = _dig(obj, *names)
        return default if value is None else jsonpaths.as_text(value)
    return cell


_CELLS: Final[dict[str, Callable[[Obj], Any]]] = {
    "pod-ready": _pod_ready, "pod-status": _pod_status, "pod-restarts": _pod_restarts,
    "data-count": _data_count, "phase": _phase, "ports": _ports, "replicas-ready": _replicas_ready,
    "job-completions": _job_completions, "job-status": _job_status, "node-status": _node_status,
    "selector": _selector, "access-modes": _access_modes, "role": _role,
    "event-last-seen": _event_last_seen, "event-object": _event_object,
    "capacity": _text("status", "capacity", "storage", default=""),
    "created": lambda obj: obj["metadata"].get("creationTimestamp"),
    "replicas": _text("spec", "replicas", default="0"),
    "current": _text("status", "replicas", default="0"),
    "updated": _text("status", "updatedReplicas", default="0"),
    "available": _text("status", "availableReplicas", default="0"),
    "ready": _text("status", "readyReplicas", default="0"),
    "ds-desired": _text("status", "desiredNumberScheduled", default="0"),
    "ds-current": _text("status", "currentNumberScheduled", default="0"),
    "ds-ready": _text("status", "numberReady", default="0"),
    "age": age_of, "suspend": lambda obj: "True" if _dig(obj, "spec", "suspend") else "False",
    "secrets": lambda obj: len(_items(obj, "secrets")),
}
