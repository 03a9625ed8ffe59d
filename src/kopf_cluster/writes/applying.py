"""
Server-side apply, and the effect of all other writes on the ownership of fields: plain functions on objects.

A manager that applies owns all fields of the configuration. Changing a field of another manager is a conflict, unless
forced. A field that is no longer in the configuration is removed, unless another manager owns it. All other writes take
the ownership of the fields that they change. The rules follow "Server-Side Apply" in the Kubernetes
documentation, and KEP-555.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kopf_cluster import statuses
from kopf_cluster.kinds.topologies import Topology
from kopf_cluster.writes import owners
from kopf_cluster.writes.comparing import Difference, SchemaMismatch, all_fields, compare, fields_of, merge, remove
from kopf_cluster.writes.fieldsets import FieldSet
from kopf_cluster.writes.owners import Entry, Manager, Owners

Obj: TypeAlias = dict[str, Any]

NOTHING = FieldSet()

# Fields without owners that an object needs to be converted.
_IDENTITY = FieldSet.from_json({"f:metadata": {"f:name": {}}})

_TYPE = ("apiVersion", "kind")

Translate: TypeAlias = Callable[[Obj, str], tuple[Obj, Topology] | None]
"""Returns an object in another version of its kind, and the topology there; none if there is no such version."""


def apply(
    live: Mapping[str, Any] | None,
    applied: Mapping[str, Any],
    manager: str,
    *,
    force: bool,
    topology: Topology,
    now: str,
    subresource: str = "",
    reset: FieldSet = NOTHING,
    translate: Translate | None = None,
    takeable: FieldSet = NOTHING,
) -> Obj | None:
    """
    Apply a configuration to the live object (or to none, for creation).

    Return the new object with its ``metadata.managedFields``, or none if nothing changes. The live object is not
    modified; the new one shares unchanged parts with it. ``now`` is a Kubernetes timestamp. ``reset`` are the fields
    that this endpoint does not write, e.g. the status on the main endpoint: they are neither changed nor owned.
    ``takeable`` are the fields that are never conflicts.

    Raise `APIStatus`: 400 if the configuration has ``managedFields``; 409 for conflicts if not forced; 500 if the
    configuration does not fit in the schema, as kube-apiserver has it.
    """
    if (applied.get("metadata") or {}).get("managedFields"):
        raise statuses.bad_request("metadata.managedFields must be nil")
    base = live if live is not None else _blank(applied)
    known = _read_live(live, topology, now)
    try:
        configured = fields_of(applied, topology)
    except SchemaMismatch as error:
        raise _mismatch(applied, error) from None
    me = owners.applier(manager, subresource)
    last = known.get(me)
    mine = owners.ownable(configured).without(reset)
    changed = {owner: entry for owner, entry in known.items() if owner != me}
    if mine:
        changed[me] = Entry(mine, last.time if last is not None else now, applied["apiVersion"])
    merged: Obj = merge(base, _writable(applied, reset), topology)
    merged["apiVersion"] = applied["apiVersion"]
    if last is not None and last.api_version == applied["apiVersion"]:
        merged = _prune(merged, last.fields, configured, changed, topology)
    elif last is not None and translate is not None:
        merged = _prune_elsewhere(merged, last, configured, changed, topology, translate)
    difference = compare(base, merged, topology)
    changes = _Changes(base, merged, difference, translate)
    _take(changed, me, changes, force=force, takeable=takeable)
    if live is not None and changed == known and not _differs(difference):
        return None
    if mine:
        changed[me] = Entry(mine, now, applied["apiVersion"])
    metadata = merged["metadata"] = {**merged["metadata"], "managedFields": owners.write(changed)}
    if not metadata["managedFields"]:
        del metadata["managedFields"]
    return merged


def update(
    live: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    manager: str,
    *,
    topology: Topology,
    now: str,
    subresource: str = "",
    reset: FieldSet = NOTHING,
    translate: Translate | None = None,
) -> list[Obj]:
    """
    Return the ``managedFields`` of an object that is created, replaced, or patched other than by applying.

    The managed fields of the new object, if any, first replace the live ones, so that clients can migrate or
    clear them (with ``[{}]``); wrong ones are ignored. The manager owns all fields that it changes; removed fields have
    no owners. If nothing changes for any manager, the very list of the live object is returned.
    """
    entries = _entries(live)
    claimed = _entries(new)
    base = live if live is not None else _blank(new)
    difference = compare(_ownable(base, reset), _ownable(new, reset), topology)
    me = owners.updater(manager, new["apiVersion"], subresource)
    mine = difference.added | difference.modified
    if not claimed or claimed == entries:
        if not _differs(difference):
            return entries
        if not difference.removed and (touched := owners.touch(entries, me, mine, now)) is not None:
            return touched
    known = _read_claimed(claimed, entries)
    changed = dict(known)
    _take(changed, None, _Changes(base, new, difference, translate), force=True)
    if mine:
        changed[me] = Entry(mine, now, new["apiVersion"]) if me not in changed else changed[me].extended(mine, now)
    if changed == known and (not claimed or claimed == entries):
        return entries
    return owners.write(changed)


def _blank(source: Mapping[str, Any]) -> Obj:
    """Return the empty object for the comparison with a new one."""
    return {"apiVersion": source.get("apiVersion"), "kind": source.get("kind"), "metadata": {}}


def _entries(source: Mapping[str, Any] | None) -> list[Obj]:
    entries: list[Obj] = (source or {}).get("metadata", {}).get("managedFields") or []
    return entries


def _read_live(live: Mapping[str, Any] | None, topology: Topology, now: str) -> Owners:
    """Return the owners of a live object; without managed fields, all its fields were set before the first apply."""
    entries = _entries(live)
    if entries or live is None:
        return owners.read_stored(entries)
    everything = owners.ownable(compare(_blank(live), live, topology).added)
    return {owners.updater(owners.BEFORE_FIRST_APPLY, live["apiVersion"]): Entry(everything, now, live["apiVersion"])}


def _read_claimed(claimed: list[Obj], entries: list[Obj]) -> Owners:
    if claimed == [{}]:
        return {}
    if claimed and claimed != entries:
        try:
            return owners.read(claimed)
        except ValueError:
            return owners.read_stored(entries)  # as in the API server: what cannot be understood is not taken
    return owners.read_stored(entries)


def _prune(merged: Obj, last: FieldSet, configured: FieldSet, current: Owners, topology: Topology) -> Obj:
    """Remove the fields that the manager applied last time but not now, and that have no other owners."""
    kept = configured
    for entry in current.values():
        kept |= entry.fields
    unwanted = last - kept
    return remove(merged, unwanted, kept, topology) if unwanted else merged


def _prune_elsewhere(
    merged: Obj,
    last: Entry,
    configured: FieldSet,
    current: Owners,
    topology: Topology,
    translate: Translate,
) -> Obj:
    """Prune the fields of a manager that applied another version last time: convert there, prune, and convert back.

    Fields with owners in this version are restored afterwards. If a manager would lose fields in yet another version,
    nothing is removed.
    """
    version = str(merged["apiVersion"])
    there = translate(merged, last.api_version)
    if there is None:
        return merged
    kept = _IDENTITY
    for entry in current.values():
        kept |= entry.fields if entry.api_version == last.api_version else NOTHING
    back = translate(remove(there[0], last.fields - kept, kept, there[1]), version)
    if back is None:
        return merged
    owned = configured
    for entry in current.values():
        owned |= entry.fields if entry.api_version == version else NOTHING
    everything = FieldSet(all_fields(merged, topology))  # even what does not fit in the schema of this version
    pruned: Obj = merge(back[0], remove(merged, everything - owned, owned, topology), topology)
    lost = _Changes(merged, pruned, compare(merged, pruned, topology), translate)
    if any(entry.fields & lost.seen_in(entry.api_version).removed for entry in current.values()):
        return merged
    return pruned


class _Changes:
    """The changes of an object, in each of the versions in which managers own fields."""

    def __init__(
        self, old: Mapping[str, Any], new: Mapping[str, Any], difference: Difference, translate: Translate | None
    ) -> None:
        self._old, self._new, self._translate = old, new, translate
        self._seen = {str(new.get("apiVersion")): difference}
        self._own = difference

    def seen_in(self, api_version: str) -> Difference:
        if api_version not in self._seen:
            self._seen[api_version] = self._look(api_version)
        return self._seen[api_version]

    def _look(self, api_version: str) -> Difference:
        if self._translate is None or not _differs(self._own):
            return self._own
        old, new = self._translate(dict(self._old), api_version), self._translate(dict(self._new), api_version)
        return self._own if old is None or new is None else compare(old[0], new[0], new[1])


def _take(
    changed: Owners,
    me: Manager | None,
    changes: _Changes,
    *,
    force: bool,
    takeable: FieldSet = NOTHING,
) -> None:
    """Take the changed and removed fields from their other owners in place, or refuse conflicts."""
    taken: dict[Manager, FieldSet] = {}
    for manager, entry in changed.items():
        difference = changes.seen_in(entry.api_version)
        if manager != me and (common := entry.fields & (difference.added | difference.modified)):
            taken[manager] = common
    if taken and not force:
        conflicts = [
            (manager, path) for manager in sorted(taken, key=str) for path in (taken[manager] - takeable).paths()
        ]
        if conflicts:
            raise owners.conflict(conflicts)
    for manager, entry in list(changed.items()):
        if manager == me:
            continue
        rest = entry.fields - taken.get(manager, NOTHING) - changes.seen_in(entry.api_version).removed
        if not rest:
            del changed[manager]
        elif rest != entry.fields:
            changed[manager] = Entry(rest, entry.time, entry.api_version)


def _ownable(source: Mapping[str, Any], reset: FieldSet) -> Obj:
    """Return only the parts that can have owners, and that this endpoint writes."""
    made = {name: value for name, value in source.items() if name not in _TYPE and f"f:{name}" not in reset.tree}
    if "metadata" in made:
        made["metadata"] = {
            name: value for name, value in made["metadata"].items() if name not in owners.UNOWNED_METADATA
        }
    return made


def _differs(difference: Difference) -> bool:
    return bool(difference.added or difference.modified or difference.removed)


def _writable(applied: Mapping[str, Any], reset: FieldSet) -> Obj:
    """Return the configuration without the parts that this endpoint does not write, and without system metadata."""
    result = {name: value for name, value in applied.items() if (f"f:{name}",) not in reset}
    if "metadata" in result:
        result["metadata"] = {
            name: value for name, value in (result["metadata"] or {}).items() if name not in owners.SYSTEM_METADATA
        }
    return result


def _mismatch(applied: Mapping[str, Any], error: SchemaMismatch) -> statuses.APIStatus:
    metadata = applied.get("metadata") or {}
    name = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
    what = f"{applied.get('apiVersion')}, Kind={applied.get('kind')}"
    return statuses.APIStatus(500, "", f"failed to create typed patch object ({name}; {what}): {error}")
