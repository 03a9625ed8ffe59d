"""
Resources that are never stored: reviews of users and their permissions, and the tokens of service accounts.

Clients can only create them; the answer is the same object with its status.
The rules follow the API groups ``authentication.k8s.io`` and ``authorization.k8s.io``.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kopf_cluster import ages, statuses
from kopf_cluster.access.authorizing import Attributes, Policy
from kopf_cluster.access.gate import Access
from kopf_cluster.access.tokens import AUDIENCE, LIFETIME, MIN_LIFETIME, Binding
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.requests import Call, Request, User
from kopf_cluster.statuses import FieldError, invalid_value
from kopf_cluster.store.storage import Store

_MAX_LIFETIME: Final = 1 << 32

_BINDING: Final = frozenset({("v1", "Node"), ("v1", "Pod"), ("v1", "Secret")})
"""The types of the objects to which tokens can be bound."""


_TOKEN_REQUEST: Final = statuses.Naming(group="authentication.k8s.io", kind="TokenRequest", plural="tokenrequests")


class _BoundObject(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""
    name: str = ""
    uid: str = ""


class _TokenSpec(msgspec.Struct):
    audiences: list[str] | None = None
    expirationSeconds: int | None = None
    boundObjectRef: _BoundObject | None = None


_REVIEWS: Final = frozenset(
    {
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
        "tokenreviews",
    }
)


class VirtualResources:
    """Answers the creations of virtual resources."""

    def __init__(self, store: Store, access: Access) -> None:
        self._store = store
        self._access = access

    def knows(self, kind: Kind) -> bool:
        return not kind.is_stored and kind.plural in _REVIEWS

    def answer(self, kind: Kind, call: Call, request: Request, body: Obj) -> Obj:
        """Return the object with its status, or refuse a wrong one."""
        wrong = kind.strategy(body, None) if kind.strategy is not None else []
        spec = body.get("spec") or {}
        statuses.require_valid(kind, "", [*wrong, *_validate_review(kind.plural, spec, call.namespace or "")])
        return {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "metadata": {},
            **({"spec": spec} if spec else {}),
            "status": self._review(kind.plural, spec, request.user),
        }

    def _review(self, plural: str, spec: Obj, user: User) -> Obj:
        policy = self._access.policy
        match plural:
            case "selfsubjectreviews":
                return {"userInfo": user.as_object()}
            case "tokenreviews":
                return self._review_token(spec.get("token") or "", spec.get("audiences") or [AUDIENCE])
            case "selfsubjectaccessreviews":
                return review_access(policy, user, spec)
            case "selfsubjectrulesreviews":
                return review_rules(policy, user, spec)
        return review_subject_access(policy, spec)

    def _review_token(self, token: str, audiences: list[str]) -> Obj:
        user = self._access.find_user(token, audiences)
        if user is None:
            return {"authenticated": False, "user": {}}
        return {"authenticated": True, "user": user.as_object(), "audiences": audiences}

    def request_token(self, kind: Kind, call: Call, body: Obj) -> Obj:
        """Return a ``TokenRequest`` with a new token of a service account."""
        try:
            spec = msgspec.convert(body.get("spec") or {}, _TokenSpec)
        except msgspec.ValidationError as error:
            raise statuses.bad_request(f"TokenRequest cannot be decoded: {error}") from None
        statuses.require_valid(_TOKEN_REQUEST, "", _validate_token(spec))
        lifetime = LIFETIME if spec.expirationSeconds is None else spec.expirationSeconds
        key = (call.namespace or "", call.name or "")
        record = self._store.bucket(kind.bucket).records.get(key)
        if record is None:
            raise statuses.not_found(kind, key[1])
        bindings = [Binding(kind.bucket, key, record.uid)]
        if spec.boundObjectRef is not None:
            bindings.append(self._bind(key[0], spec.boundObjectRef))
        audiences = spec.audiences or [AUDIENCE]
        token = self._access.tokens.issue(bindings, audiences, lifetime)
        expires = (ages.moment() + datetime.timedelta(seconds=lifetime)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": key[1], "namespace": key[0], "creationTimestamp": ages.now()},
            "spec": {
                "audiences": audiences,
                "expirationSeconds": int(lifetime),
                "boundObjectRef": (body.get("spec") or {}).get("boundObjectRef"),
            },
            "status": {"token": token, "expirationTimestamp": expires},
        }

    def _bind(self, namespace: str, wanted: _BoundObject) -> Binding:
        if (wanted.apiVersion, wanted.kind) not in _BINDING:
            group, _, version = wanted.apiVersion.rpartition("/")
            raise statuses.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={wanted.kind}")
        bucket, key = f"{wanted.kind.lower()}s", ("" if wanted.kind == "Node" else namespace, wanted.name)
        record = self._store.bucket(bucket).records.get(key)
        if record is None:
            raise statuses.not_found(statuses.Naming(kind=wanted.kind, plural=bucket), wanted.name)
        if wanted.uid and wanted.uid != record.uid:
            raise statuses.conflict(
                statuses.Naming(kind=wanted.kind, plural=bucket),
                wanted.name,
                f"the UID in the bound object reference ({wanted.uid}) does not match "
                f"the UID in record. The object might have been deleted and then recreated",
            )
        return Binding(bucket, key, record.uid)


def _validate_token(spec: _TokenSpec) -> Iterator[FieldError]:
    lifetime = spec.expirationSeconds
    if lifetime is not None and lifetime < MIN_LIFETIME:
        yield statuses.invalid_value(
            "spec.expirationSeconds", lifetime, "may not specify a duration less than 10 minutes"
        )
    if lifetime is not None and lifetime > _MAX_LIFETIME:
        yield statuses.invalid_value(
            "spec.expirationSeconds", lifetime, "may not specify a duration larger than 2^32 seconds"
        )


# Access reviews.
#
# The rules follow "Authorization" and the API group ``authorization.k8s.io`` in the Kubernetes documentation.

_NEITHER: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_BOTH: Final = "cannot be specified in combination with resourceAttributes"


def _validate_review(plural: str, spec: Obj, namespace: str) -> Iterator[FieldError]:
    match plural:
        case "localsubjectaccessreviews":
            yield from validate_local_review(spec, namespace)
        case "selfsubjectaccessreviews" | "subjectaccessreviews":
            yield from validate_access_review(spec, own=plural == "selfsubjectaccessreviews")


def validate_access_review(spec: Obj, *, own: bool) -> Iterator[FieldError]:
    """Yield the errors in a review of one's own access, or of another user's."""
    if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
        field = "spec.nonResourceAttributes" if spec.get("resourceAttributes") else "spec.resourceAttributes"
        text = _BOTH if spec.get("resourceAttributes") else _NEITHER
        yield invalid_value(field, spec.get(field.removeprefix("spec.")), text)
    if not own and not spec.get("user") and not spec.get("groups"):
        yield invalid_value("spec.user", spec.get("user") or "", "at least one of user or group must be specified")


def validate_local_review(spec: Obj, namespace: str) -> Iterator[FieldError]:
    """Yield the errors in a review in a namespace."""
    yield from validate_access_review(spec, own=False)
    resource = spec.get("resourceAttributes") or {}
    if spec.get("nonResourceAttributes"):
        yield invalid_value(
            "spec.nonResourceAttributes", spec["nonResourceAttributes"], "disallowed on this kind of request"
        )
    elif resource.get("namespace") != namespace:
        yield invalid_value(
            "spec.resourceAttributes.namespace",
            resource.get("namespace") or "",
            f"must match metadata.namespace: {namespace}",
        )


def review_access(policy: Policy, user: User, spec: Obj) -> dict[str, Any]:
    """Return the status of a valid ``SelfSubjectAccessReview``."""
    decision = policy.authorize(user, _attributes(spec))
    status: dict[str, Any] = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return status


def review_subject_access(policy: Policy, spec: Obj) -> dict[str, Any]:
    """Return the status of a valid ``SubjectAccessReview`` or ``LocalSubjectAccessReview``."""
    user = User(spec.get("user") or "", tuple(spec.get("groups") or ()), uid=spec.get("uid") or "")
    return review_access(policy, user, spec)


def _attributes(spec: Obj) -> Attributes:
    path = spec.get("nonResourceAttributes")
    if path:
        return Attributes(path.get("verb") or "", path=path.get("path") or "")
    asked = spec["resourceAttributes"]
    return Attributes(
        verb=asked.get("verb") or "",
        group=asked.get("group") or "",
        resource=asked.get("resource") or "",
        subresource=asked.get("subresource") or "",
        namespace=asked.get("namespace") or "",
        name=asked.get("name") or "",
    )


def review_rules(policy: Policy, user: User, spec: Obj) -> dict[str, Any]:
    """Return the status of a ``SelfSubjectRulesReview``, or refuse it without a namespace."""
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


def _pick(raw: Mapping[str, Any], *fields: str) -> Obj:
    return {field: raw[field] for field in fields if raw.get(field)}
