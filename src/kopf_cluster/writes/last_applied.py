"""
The annotation of ``kubectl apply``, as the server looks at it when the same ``kubectl`` applies on the server side.

So one can go from one way of applying to the other and back: what was applied by the client is no conflict as long as
nobody has changed it since, and the annotation tells what was applied the last time, on whichever side. That is only
for the manager that kubectl is by default; see "Upgrading from client-side apply to server-side apply" in
"Server-Side Apply".
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kopf_cluster.kinds.kind import Obj
from kopf_cluster.kinds.topologies import Topology
from kopf_cluster.writes.comparing import SchemaMismatch, compare, fields_of
from kopf_cluster.writes.fieldsets import FieldSet

#: The only manager for whom the annotation matters.
MANAGER: Final = "kubectl"

_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def unchanged_since(live: Mapping[str, Any], topology: Topology) -> FieldSet:
    """Give the fields that are as the client has applied them; nothing if it is not known what it has applied."""
    text = _annotations(live).get(_ANNOTATION)
    try:
        last = json.loads(text) if text else None
        if not isinstance(last, dict) or last.get("apiVersion") != live["apiVersion"]:
            return FieldSet()
        return fields_of(last, topology) - compare(live, last, topology).modified
    except (ValueError, SchemaMismatch):  # whatever somebody has written there
        return FieldSet()


def follow(state: Obj, applied: Obj) -> Obj:
    """Give the state with what was applied in the annotation if there is one; otherwise, the very state."""
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
