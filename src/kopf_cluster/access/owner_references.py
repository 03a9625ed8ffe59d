"""
Owner references: who may set them.

The rules are those of the admission plugin ``OwnerReferencesPermissionEnforcement``, see "Admission Control in
Kubernetes". Few clusters have it; OpenShift does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kopf_cluster import statuses
from kopf_cluster.access.authorizing import Attributes, Policy
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.requests import SUPERUSERS, User


def check_owner_references(
    policy: Policy, user: User, registry: Registry, kind: Kind, new: Obj, old: Obj | None
) -> None:
    """Refuse the write (403) if it changes the owners of what cannot be deleted, or blocks the deletion of others."""
    before, after = _list_references(old), _list_references(new)
    if before == after or SUPERUSERS in user.groups:
        return
    namespace, name = new["metadata"].get("namespace") or "", new["metadata"].get("name") or ""
    problem = ""
    if old is not None and not policy.authorize(
        user, Attributes("delete", kind.group, kind.plural, "", namespace, name)
    ):
        problem = "cannot set an ownerRef on a resource you can't delete"
    elif not all(
        policy.authorize(user, asked)
        for asked in _list_blocked(registry, namespace, _select_new_blocking(before, after))
    ):
        problem = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
    if problem:
        what = f'{kind.plural}.{kind.group} "{name}"' if kind.group else f'{kind.plural} "{name}"'
        details = {"name": name, "group": kind.group, "kind": kind.plural}
        raise statuses.APIStatus(403, "Forbidden", f"{what} is forbidden: {problem}: , <nil>", details=details)


def _list_references(obj: Obj | None) -> list[dict[str, Any]]:
    return [] if obj is None else obj["metadata"].get("ownerReferences") or []


def _select_new_blocking(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    known = {item.get("uid") for item in before if item.get("blockOwnerDeletion")}
    return (item for item in after if item.get("blockOwnerDeletion") and item.get("uid") not in known)


def _list_blocked(registry: Registry, namespace: str, references: Iterator[dict[str, Any]]) -> Iterator[Attributes]:
    """Tell what has to be allowed for these references; what is unknown cannot be allowed."""
    for item in references:
        group, _, version = str(item.get("apiVersion", "")).rpartition("/")
        owner = registry.find_by_kind(group, version, str(item.get("kind", "")))
        plural, is_namespaced = ("", False) if owner is None else (owner.plural, owner.namespaced)
        where = namespace if is_namespaced else ""
        yield Attributes("update", group, plural, "finalizers", where, str(item.get("name", "")))
