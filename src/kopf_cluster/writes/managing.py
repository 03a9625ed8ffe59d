"""
Whose the fields of an object are after a write: ``metadata.managedFields`` settled for every new state.

The fields are managed from the creation on, until a client clears them: from then on, nobody is known until somebody
applies the object on the server side; all other fields there are those of a manager named "before-first-apply" then.
As it makes writes slower, it can be switched off: all objects are as if they were cleared.
"""
from __future__ import annotations

from typing import Final

from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.writes import applying, last_applied, owners
from kopf_cluster.writes.fieldsets import FieldSet

_STATUS: Final = FieldSet.from_json({"f:status": {}})
_ALL_BUT_STATUS: Final = FieldSet.from_json({"f:spec": {}, "f:metadata": {}})
_NOTHING: Final = FieldSet()

# By what clients clear the managed fields.
_RESET: Final[list[Obj]] = [{}]


def settle(
        kind: Kind, old: Obj | None, new: Obj, *, manager: str, always: bool, now: str, subresource: str,
        translate: applying.Translate,
) -> None:
    """Complete the metadata of a new state in place, for all kinds of writes but applying."""
    metadata, known = new["metadata"], (old or {}).get("metadata") or {}
    begins = always and (old is None or metadata.get("managedFields") not in (None, _RESET))
    if not known.get("managedFields") and not begins:
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
    known = old is not None and manager == last_applied.MANAGER
    takeable = last_applied.unchanged_since(old, kind.topology) if old is not None and known else _NOTHING
    new = applying.apply(old, applied, manager, force=force, takeable=takeable, topology=kind.topology, now=now,
                         subresource=subresource, reset=_unwritten(kind, subresource), translate=translate)
    if not known or old is None:
        return new
    followed = last_applied.follow(new or old, applied)
    return None if followed is old else followed


def name_manager(name: str, agent: str) -> str:
    """Give the name of who writes: as they call themselves, or as their program is called."""
    return name or owners.default_name(agent)


def _unwritten(kind: Kind, subresource: str) -> FieldSet:
    if subresource in ("status", "approval"):
        return _ALL_BUT_STATUS
    return _STATUS if kind.has_status else _NOTHING
