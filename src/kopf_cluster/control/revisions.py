"""
The history of templates of stateful sets and daemon sets: a `ControllerRevision` for each, numbered by use.

That is where ``kubectl rollout history`` and ``undo`` look; see "Rollbacks" of the Kubernetes documentation.
"""
from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from kopf_cluster.control.access import Objects, key_of, namespace_of, reference_to
from kopf_cluster.control.workload import hash_of
from kopf_cluster.kinds.kind import Obj

REVISIONS: Final = "controllerrevisions.apps"

_DEFAULT_LIMIT: Final = 10


class Revision(NamedTuple):
    """The revision of a template: by its name, and by the hash in the name."""

    name: str
    hash: str


def record(access: Objects, owner: Obj, known: Collection[Obj], label: str) -> Revision:
    """Keep the current template as the latest revision; one that was used before, gets a new number.

    The annotations are those of the owner at that time, and tell why the revision was made, e.g.

    Args:
        access: The objects of the cluster.
        owner: The stateful or daemon set.
        known: Its revisions.
        label: The label of revisions that has the hash.
    """
    template = owner["spec"]["template"]
    hash_ = hash_of(template)
    revision = Revision(f"{owner['metadata']['name']}-{hash_}", hash_)
    others = [_number(item) for item in known if item["metadata"]["name"] != revision.name]
    number = max(others, default=0) + 1
    key = (namespace_of(owner), revision.name)
    found = access.get(REVISIONS, key)
    if found is None:
        labels = {**((template.get("metadata") or {}).get("labels") or {}), label: hash_}
        access.create(REVISIONS, namespace_of(owner), {
            "metadata": {"name": revision.name, "labels": labels, "ownerReferences": [reference_to(owner)],
                         "annotations": owner["metadata"].get("annotations")},
            "revision": number, "data": {"spec": {"template": {**template, "$patch": "replace"}}}})
    elif _number(found) < number:
        access.update(REVISIONS, key, lambda old: {**old, "revision": number})
    return revision


def forget_oldest(access: Objects, owner: Obj, known: Collection[Obj], used: Collection[str]) -> None:
    """Delete the oldest revisions beyond the limit; those in use, by their names, stay anyway."""
    limit = owner["spec"].get("revisionHistoryLimit")
    unused = sorted((item for item in known if item["metadata"]["name"] not in used), key=_number)
    for item in unused[:max(len(unused) - (_DEFAULT_LIMIT if limit is None else limit), 0)]:
        access.delete(REVISIONS, key_of(item))


def _number(item: Obj) -> int:
    return int(item.get("revision") or 0)
