"""
Whose the fields of an object are after a write: ``metadata.managedFields`` settled for every new state.

That costs about as much as all the rest of a write. So, unless it is wanted for all objects, the fields are managed
only in those objects that somebody has applied on the server side; all other fields there are those of a manager named
"before-first-apply" then, as in clusters of old.
"""
from __future__ import annotations

from typing import Final

from ..kinds.kind import Kind, Obj
from . import applying, owners
from .fieldsets import FieldSet

_STATUS: Final = FieldSet.from_json({"f:status": {}})
_ALL_BUT_STATUS: Final = FieldSet.from_json({"f:spec": {}, "f:metadata": {}})
_NOTHING: Final = FieldSet()


def settle(
        kind: Kind, old: Obj | None, new: Obj, *, manager: str, always: bool, now: str, subresource: str,
        translate: applying.Translate,
) -> None:
    """Complete the metadata of a new state in place, for all kinds of writes but applying."""
    metadata, known = new["metadata"], (old or {}).get("metadata") or {}
    if not always and not known.get("managedFields"):
        metadata.pop("managedFields", None)
        return
    entries = applying.update(old, new, manager, topology=kind.topology, now=now, subresource=subresource,
                              reset=_unwritten(kind, subresource), translate=translate)
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


def apply(
        kind: Kind, old: Obj | None, applied: Obj, *, manager: str, force: bool, now: str, subresource: str,
        translate: applying.Translate,
) -> Obj | None:
    """Give the new state with its managed fields, or none if nothing changes; refuse conflicts (409)."""
    return applying.apply(old, applied, manager, force=force, topology=kind.topology, now=now,
                          subresource=subresource, reset=_unwritten(kind, subresource), translate=translate)


def name_manager(name: str, agent: str) -> str:
    """Give the name of who writes: as they call themselves, or as their program is called."""
    return name or owners.default_name(agent)


def _unwritten(kind: Kind, subresource: str) -> FieldSet:
    if subresource in ("status", "approval"):
        return _ALL_BUT_STATUS
    return _STATUS if kind.has_status else _NOTHING
