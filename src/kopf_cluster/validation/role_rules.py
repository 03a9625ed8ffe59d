"""
Roles and their bindings: what rules can be about, and to whom roles can be bound.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster.access.authorizing import GROUP
from kopf_cluster.statuses import FieldError, invalid_value, required, unsupported_value

Obj: TypeAlias = dict[str, Any]

_SUBJECTS: Final = ("Group", "ServiceAccount", "User")


def validate_role(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    namespaced = bool(new["metadata"].get("namespace"))
    for index, rule in enumerate(new.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required(f"{path}.verbs", "verbs must contain at least one value")
        if paths := rule.get("nonResourceURLs"):
            if namespaced:
                yield invalid_value(f"{path}.nonResourceURLs", paths,
                                    "namespaced rules cannot apply to non-resource URLs")
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                yield invalid_value(f"{path}.nonResourceURLs", paths,
                                    "rules cannot apply to both regular resources and non-resource URLs")
            continue
        if not rule.get("apiGroups"):
            yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{path}.resources", "resource rules must supply at least one resource")


def validate_binding(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    reference, namespaced = new.get("roleRef") or {}, bool(new["metadata"].get("namespace"))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    if reference.get("apiGroup") != GROUP:
        yield unsupported_value("roleRef.apiGroup", reference.get("apiGroup") or "", (GROUP,))
    if reference.get("kind") not in kinds:
        yield unsupported_value("roleRef.kind", reference.get("kind") or "", kinds)
    if not reference.get("name"):
        yield required("roleRef.name")
    for index, subject in enumerate(new.get("subjects") or ()):
        yield from _validate_subject(subject, f"subjects[{index}]", namespaced)


def _validate_subject(subject: Obj, path: str, namespaced: bool) -> Iterator[FieldError]:
    """Give what is wrong with a subject; accounts without a namespace are of that of the binding."""
    kind, group = subject.get("kind") or "", subject.get("apiGroup") or ""
    if not subject.get("name"):
        yield required(f"{path}.name")
    if kind not in _SUBJECTS:
        yield unsupported_value(f"{path}.kind", kind, _SUBJECTS)
    elif kind == "ServiceAccount":
        if group:
            yield unsupported_value(f"{path}.apiGroup", group, ("",))
        if not subject.get("namespace") and not namespaced:
            yield required(f"{path}.namespace")
    elif group != GROUP:
        yield unsupported_value(f"{path}.apiGroup", group, (GROUP,))
