"""
The reviews of access: objects that are never stored, but are answered with what one may do.

The rules are those of "Authorization" and of the API group ``authorization.k8s.io`` in the Kubernetes documentation.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from kopf_cluster import statuses
from kopf_cluster.access.authorizing import Attributes, Policy
from kopf_cluster.requests import User
from kopf_cluster.statuses import FieldError, invalid_value

Obj: TypeAlias = Mapping[str, Any]

_NEITHER: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_BOTH: Final = "cannot be specified in combination with resourceAttributes"


def validate_access_review(spec: Obj, *, own: bool) -> Iterator[FieldError]:
    """Tell what is wrong with a review: of one's own access, or of somebody's."""
    if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
        field = "spec.nonResourceAttributes" if spec.get("resourceAttributes") else "spec.resourceAttributes"
        text = _BOTH if spec.get("resourceAttributes") else _NEITHER
        yield invalid_value(field, spec.get(field.removeprefix("spec.")), text)
    if not own and not spec.get("user") and not spec.get("groups"):
        yield invalid_value("spec.user", spec.get("user") or "", "at least one of user or group must be specified")


def validate_local_review(spec: Obj, namespace: str) -> Iterator[FieldError]:
    """Tell what is wrong with a review that is limited to a namespace."""
    yield from validate_access_review(spec, own=False)
    resource = spec.get("resourceAttributes") or {}
    if spec.get("nonResourceAttributes"):
        yield invalid_value("spec.nonResourceAttributes", spec["nonResourceAttributes"],
                            "disallowed on this kind of request")
    elif resource.get("namespace") != namespace:
        yield invalid_value("spec.resourceAttributes.namespace", resource.get("namespace") or "",
                            f"must match metadata.namespace: {namespace}")


def review_access(policy: Policy, user: User, spec: Obj) -> dict[str, Any]:
    """Answer a valid ``SelfSubjectAccessReview`` with its status."""
    decision = policy.authorize(user, _attributes(spec))
    status: dict[str, Any] = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return status


def review_subject_access(policy: Policy, spec: Obj) -> dict[str, Any]:
    """Answer a valid ``SubjectAccessReview`` or ``LocalSubjectAccessReview`` with its status."""
    user = User(spec.get("user") or "", tuple(spec.get("groups") or ()), uid=spec.get("uid") or "")
    return review_access(policy, user, spec)


def _attributes(spec: Obj) -> Attributes:
    path = spec.get("nonResourceAttributes")
    if path:
        return Attributes(path.get("verb") or "", path=path.get("path") or "")
    asked = spec["resourceAttributes"]
    return Attributes(
        verb=asked.get("verb") or "", group=asked.get("group") or "", resource=asked.get("resource") or "",
        subresource=asked.get("subresource") or "", namespace=asked.get("namespace") or "",
        name=asked.get("name") or "",
    )


def review_rules(policy: Policy, user: User, spec: Obj) -> dict[str, Any]:
    """Answer a ``SelfSubjectRulesReview`` with its status; refuse if it tells no namespace."""
    namespace = spec.get("namespace")
    if not namespace:
        raise statuses.bad_request("no namespace on request")
    resources: list[Obj] = []
    paths: list[Obj] = []
    for rule in policy.rules_for(user, namespace):
        if rule.paths:
            paths.append(_pick(rule.raw, "verbs", "nonResourceURLs"))
        if rule.resources:
            resources.append(_pick(rule.raw, "verbs", "apiGroups", "resources", "resourceNames"))
    return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}


def _pick(raw: Obj, *fields: str) -> Obj:
    return {field: raw[field] for field in fields if raw.get(field)}
