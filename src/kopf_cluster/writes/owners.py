"""
The owners of the fields of an object: ``metadata.managedFields`` read, changed, and written.

Each manager has one entry for each way it writes: applying or updating, in which version, via which subresource.
The rules follow the API reference of ``ManagedFieldsEntry`` and "Server-Side Apply" ("Field management").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kopf_cluster import statuses
from kopf_cluster.writes.fieldsets import FieldSet, Path, path_text

Operation: TypeAlias = Literal["Apply", "Update"]

MAX_MANAGER: Final = 128
MAX_UPDATERS: Final = 10
"""The maximal number of updating managers of an object; the oldest ones are merged."""

ANCIENT: Final = "ancient-changes"
BEFORE_FIRST_APPLY: Final = "before-first-apply"

SYSTEM_METADATA: Final = frozenset(
    {
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)
"""The fields of the server; clients send them back unchanged, or with nulls."""

UNOWNED_METADATA: Final = SYSTEM_METADATA | {"name", "namespace"}
"""Metadata without owners, as no client can change them."""

_UNOWNED: Final = FieldSet.from_json(
    {
        "f:apiVersion": {},
        "f:kind": {},
        "f:metadata": {f"f:{name}": {} for name in sorted(UNOWNED_METADATA)},
    }
)
_METADATA: Final = FieldSet.from_json({"f:metadata": {}})


class Manager(NamedTuple):
    """The identity of an entry; the version matters only for updates."""

    name: str
    operation: Operation
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        text = statuses.quoted(self.name)
        if self.subresource:
            text += f" with subresource {statuses.quoted(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    fields: FieldSet
    time: str
    api_version: str
    stored: Mapping[str, Any] | None = dataclasses.field(default=None, compare=False)
    """The stored form, which is written back as it was read."""

    def extended(self, fields: FieldSet, time: str) -> Entry:
        """Return the entry with more fields, as of the time."""
        if self.stored is not None and not fields - self.fields:
            return Entry(self.fields, time, self.api_version, {**self.stored, "time": time})
        return Entry(self.fields | fields, time, self.api_version)


Owners: TypeAlias = dict[Manager, Entry]


def ownable(fields: FieldSet) -> FieldSet:
    """Return only the fields that can have owners."""
    return fields.without(_UNOWNED) - _METADATA


def applier(name: str, subresource: str = "") -> Manager:
    return Manager(name, "Apply", "", subresource)


def updater(name: str, api_version: str, subresource: str = "") -> Manager:
    return Manager(name, "Update", api_version, subresource)


def default_name(user_agent: str) -> str:
    """Name a manager that has not named itself: the user agent up to the slash, its printable part."""
    name = user_agent.partition("/")[0][:MAX_MANAGER]
    return "".join(char for char in name if char.isprintable())


def validate_name(name: str, *, applying: bool) -> Iterator[statuses.FieldError]:
    """Yield the errors in the parameter ``fieldManager``."""
    if applying and not name:
        yield statuses.required("fieldManager", "is required for apply patch")
    if len(name) > MAX_MANAGER:
        yield statuses.FieldError(
            "fieldManager", "FieldValueTooLong", f"Too long: may not be more than {MAX_MANAGER} bytes"
        )
    for index, char in enumerate(name):
        if not char.isprintable():
            yield statuses.invalid_value(
                "fieldManager", name, f"should only contain printable characters (at position {index})"
            )
            return


def read(entries: Any) -> Owners:
    """Read ``metadata.managedFields`` of a client, or raise `ValueError` if they are not valid."""
    if not isinstance(entries, list):
        raise ValueError("metadata.managedFields must be a list")
    owners: Owners = {}
    for raw in entries:
        manager, entry = _read_entry(raw)
        known = owners.get(manager)
        if known is not None:
            entry = Entry(known.fields | entry.fields, entry.time, entry.api_version)
        owners[manager] = entry
    return owners


def read_stored(entries: list[dict[str, Any]]) -> Owners:
    """Read ``metadata.managedFields`` as they were written here: with no checks and no copies."""
    return {
        _manager(raw): Entry(FieldSet(raw["fieldsV1"]), raw.get("time", ""), raw["apiVersion"], raw) for raw in entries
    }


def touch(entries: list[dict[str, Any]], me: Manager, fields: FieldSet, time: str) -> list[dict[str, Any]] | None:
    """Return ``metadata.managedFields`` if a manager changes again only fields without other owners; otherwise none.

    Most updates do that, so it must be fast.
    """
    index = None
    for position, raw in enumerate(entries):
        own = FieldSet(raw["fieldsV1"])
        if _manager(raw) == me:
            if fields - own:
                return None
            index = position
        elif raw["apiVersion"] != me.api_version or fields & own:
            return None
    if index is None:
        return None
    if entries[index].get("time") == time:
        return entries
    made = [*entries[:index], {**entries[index], "time": time}, *entries[index + 1 :]]
    return sorted(made, key=_rank)


def _rank(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Sort applying managers first, then by time."""
    return (
        raw["operation"],
        raw.get("time") or "",
        raw.get("manager") or "",
        raw["apiVersion"],
        raw.get("subresource") or "",
    )


def _manager(raw: Mapping[str, Any]) -> Manager:
    name, subresource = raw.get("manager") or "", raw.get("subresource") or ""
    if raw["operation"] == "Apply":
        return applier(name, subresource)
    return updater(name, raw["apiVersion"], subresource)


def _read_entry(raw: Any) -> tuple[Manager, Entry]:
    if not isinstance(raw, Mapping):
        raise ValueError("an entry of metadata.managedFields must be an object")
    operation, version = raw.get("operation"), raw.get("apiVersion")
    if operation not in ("Apply", "Update"):
        raise ValueError(f"invalid operation in metadata.managedFields: {operation!r}")
    if not version or raw.get("fieldsType") != "FieldsV1":
        raise ValueError("an entry of metadata.managedFields must have the apiVersion and the fieldsType FieldsV1")
    return _manager(raw), Entry(FieldSet.from_json(raw.get("fieldsV1") or {}), raw.get("time") or "", version)


def write(owners: Owners) -> list[dict[str, Any]]:
    """Return ``metadata.managedFields``: applying managers first, then by time; without entries that have no fields."""
    return sorted(
        (_write_entry(manager, entry) for manager, entry in _limit(owners).items() if entry.fields), key=_rank
    )


def _write_entry(manager: Manager, entry: Entry) -> dict[str, Any]:
    if entry.stored is not None:
        return dict(entry.stored)
    raw = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": entry.api_version,
        "time": entry.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields.to_json(),
        "subresource": manager.subresource,
    }
    return {key: value for key, value in raw.items() if value != ""}


def _limit(owners: Owners) -> Owners:
    """Merge the oldest updating managers if there are too many: into one entry for each version."""
    if len(owners) <= MAX_UPDATERS:
        return owners
    updaters = sorted(
        (manager for manager in owners if manager.operation == "Update"),
        key=lambda manager: (owners[manager].time, manager.name),
    )
    result = dict(owners)
    excess = len(updaters) - MAX_UPDATERS
    for manager in updaters:
        if excess <= 0:
            break
        bucket = updater(ANCIENT, manager.api_version)
        if manager == bucket:
            continue
        entry = result.pop(manager)
        known = result.get(bucket)
        if known is None:
            result[bucket] = Entry(entry.fields, entry.time, entry.api_version)
        else:
            excess -= 1
            result[bucket] = Entry(known.fields | entry.fields, max(known.time, entry.time), entry.api_version)
    return result


def conflict(conflicts: list[tuple[Manager, Path]]) -> statuses.APIStatus:
    """Make the refusal of conflicts (409), with a cause for each field."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path_text(path)}
        for manager, path in conflicts
    ]
    if len(conflicts) == 1:
        [(manager, path)] = conflicts
        text = f"1 conflict: conflict with {manager}: {path_text(path)}"
    else:
        lines: list[str] = []
        for manager in dict.fromkeys(manager for manager, _ in conflicts):
            lines.append(f"conflicts with {manager}:")
            lines += [f"- {path_text(path)}" for other, path in conflicts if other == manager]
        text = f"{len(conflicts)} conflicts: " + "\n".join(lines)
    return statuses.APIStatus(409, "Conflict", f"Apply failed with {text}", details={"causes": causes})
