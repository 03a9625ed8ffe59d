"""
How the pods of a job are told from all the others: by labels that the server makes of the job's name and UID.

See "Specifying your own Pod selector" in "Jobs": whoever sets ``manualSelector``, does that on their own.
"""
from __future__ import annotations

from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError

Obj: TypeAlias = dict[str, Any]

#: The label that is selected by.
CONTROLLER: Final = "batch.kubernetes.io/controller-uid"


def make_labels(job: Obj) -> dict[str, str]:
    """Give the labels of the job's pods, with the old names and the new ones."""
    uid, name = job["metadata"]["uid"], job["metadata"].get("name") or ""
    return {"controller-uid": uid, "job-name": name, CONTROLLER: uid, "batch.kubernetes.io/job-name": name}


def settle(new: Obj, old: Obj | None) -> list[FieldError]:
    """Add what is not there yet to a new job; what contradicts is refused later."""
    spec = new.get("spec") or {}
    if old is not None or spec.get("manualSelector"):
        return []
    labels = make_labels(new)
    template, selector = spec.get("template") or {}, spec.get("selector") or {}
    metadata = template.get("metadata") or {}
    metadata = {**metadata, "labels": {**labels, **(metadata.get("labels") or {})}}
    selector = {**selector, "matchLabels": {CONTROLLER: labels[CONTROLLER], **(selector.get("matchLabels") or {})}}
    new["spec"] = {**spec, "template": {**template, "metadata": metadata}, "selector": selector}
    return []
