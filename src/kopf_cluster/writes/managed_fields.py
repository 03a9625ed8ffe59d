"""
The ownership of fields after a write: ``metadata.managedFields`` of every new state.

The fields are managed from the creation on, until a client clears them. Then there are no managers until a client
applies the object on the server side; all other fields belong to a manager named "before-first-apply" from then on.
As this makes writes slower, it can be turned off: all objects start as if they were cleared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.topologies import Topology
from kopf_cluster.writes import applying
from kopf_cluster.writes.comparing import SchemaMismatch, compare, fields_of
from kopf_cluster.writes.fieldsets import FieldSet

_STATUS: Final = FieldSet.from_json({"f:status": {}})
_ALL_BUT_STATUS: Final = FieldSet.from_json({"f:spec": {}, "f:metadata": {}})
_NOTHING: Final = FieldSet()

# Clients clear the managed fields by this value.
_RESET: Final[list[Obj]] = [{}]


def settle(
    kind: Kind,
    old: Obj | None,
    new: Obj,
    *,
    manager: str,
    always: bool,
    now: str,
    subresource: str,
    translate: applying.Translate,
) -> None:
    """Complete the metadata of a new state in place, for all kinds of writes but applying."""
    metadata, known = new["metadata"], (old or {}).get("metadata") or {}
    begins = always and (old is None or metadata.get("managedFields") not in (None, _RESET))
    if not known.get("managedFields") and not begins:
        metadata.pop("managedFields", None)
        return
    entries = applying.update(
        old,
        new,
        manager,
        topology=kind.topology,
        now=now,
        subresource=subresource,
        reset=_unwritten(kind, subresource),
        translate=translate,
    )
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


def apply(
    kind: Kind,
    old: Obj | None,
    applied: Obj,
    *,
    manager: str,
    force: bool,
    now: str,
    subresource: str,
    translate: applying.Translate,
) -> Obj | None:
    """Return the new state with its managed fields, or none if nothing changes; refuse conflicts (409)."""
    known = old is not None and manager == MANAGER
    takeable = unchanged_since(old, kind.topology) if old is not None and known else _NOTHING
    new = applying.apply(
        old,
        applied,
        manager,
        force=force,
        takeable=takeable,
        topology=kind.topology,
        now=now,
        subresource=subresource,
        reset=_unwritten(kind, subresource),
        translate=translate,
    )
    if not known or old is None:
        return new
    followed = follow(new or old, applied)
    return None if followed is old else followed


def _unwritten(kind: Kind, subresource: str) -> FieldSet:
    if subresource in ("status", "approval"):
        return _ALL_BUT_STATUS
    return _STATUS if kind.has_status else _NOTHING


# The annotation of ``kubectl apply``, as the server looks at it when the same ``kubectl`` applies on the server side.
#
# So users can switch between client-side and server-side apply: fields that the client applied are no conflicts while
# they are unchanged, and the annotation always contains the last applied configuration. This is only for the default
# manager of kubectl; see "Upgrading from client-side apply to server-side apply" in
# "Server-Side Apply".

MANAGER: Final = "kubectl"
"""The only manager with this annotation."""

_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def unchanged_since(live: Mapping[str, Any], topology: Topology) -> FieldSet:
    """Return the fields that are unchanged since the client applied them; none if that is unknown."""
    text = _annotations(live).get(_ANNOTATION)
    try:
        last = json.loads(text) if text else None
        if not isinstance(last, dict) or last.get("apiVersion") != live["apiVersion"]:
            return FieldSet()
        return fields_of(last, topology) - compare(live, last, topology).modified
    except (ValueError, SchemaMismatch):  # the annotation can be anything
        return FieldSet()


def follow(state: Obj, applied: Obj) -> Obj:
    """Return the state with the applied configuration in its annotation; the very state if it has no annotation."""
    annotations = _annotations(state)
    if _ANNOTATION not in annotations:
        return state
    metadata = dict(applied.get("metadata") or {})
    metadata.pop("managedFields", None)
    if _ANNOTATION in _annotations(applied):
        metadata["annotations"] = {name: text for name, text in metadata["annotations"].items() if name != _ANNOTATION}
    text = json.dumps({**applied, "metadata": metadata}, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    if annotations[_ANNOTATION] == f"{text}\n":
        return state
    return {**state, "metadata": {**state["metadata"], "annotations": {**annotations, _ANNOTATION: f"{text}\n"}}}


def _annotations(obj: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = (obj.get("metadata") or {}).get("annotations") or {}
    return found
