"""
Columns of the Table output: those of all kinds, and those of custom kinds from their definitions.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kopf_cluster import ages, jsonpaths
from kopf_cluster.kinds.kind import Column, Obj


def name_of(obj: Obj) -> Any:
    return obj["metadata"].get("name", "")


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
