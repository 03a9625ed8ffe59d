"""
Resources that are never stored: questions about users and their permissions, and the tokens of service accounts.

They can only be created; the answer is the same object with its status.
The rules are those of the API groups ``authentication.k8s.io`` and ``authorization.k8s.io``.
"""
from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from kopf_cluster import ages, statuses
from kopf_cluster.access import access_reviews
from kopf_cluster.access.gate import Access
from kopf_cluster.access.tokens import AUDIENCE, LIFETIME, MIN_LIFETIME, Binding
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.requests import Call, Request, User
from kopf_cluster.statuses import FieldError
from kopf_cluster.store.storage import Store

_MAX_LIFETIME: Final = 1 << 32

#: The types of the objects with which tokens can end.
_BINDING: Final = frozenset({("v1", "Node"), ("v1", "Pod"), ("v1", "Secret")})


class _BoundObject(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""
    name: str = ""
    uid: str = ""


class _TokenSpec(msgspec.Struct):
    audiences: list[str] | None = None
    expirationSeconds: int | None = None
    boundObjectRef: _BoundObject | None = None


class _Named(msgspec.Struct):
    """How the kind of a token request is named in refusals."""

    group: str = "authentication.k8s.io"
    kind: str = "TokenRequest"
    plural: str = "tokenrequests"


class _Question(Protocol):
    def __call__(self, spec: Obj, call: Call, user: User) -> tuple[list[FieldError], Callable[[], Obj]]: ...


class VirtualResources:
    """Answers to what is posted there."""

    def __init__(self, store: Store, access: Access) -> None:
        super().__init__()
        self._store = store
        self._access = access
        self._questions: dict[str, _Question] = {
            "selfsubjectreviews": self._ask_oneself,
            "tokenreviews": self._ask_token,
            "selfsubjectaccessreviews": self._ask_own_access,
            "subjectaccessreviews": self._ask_access,
            "localsubjectaccessreviews": self._ask_local_access,
            "selfsubjectrulesreviews": self._ask_rules,
        }

    def knows(self, kind: Kind) -> bool:
        return not kind.is_stored and kind.plural in self._questions

    def answer(self, kind: Kind, call: Call, request: Request, body: Obj) -> Obj:
        """Give the object with its status, or refuse a wrong one."""
        wrong = kind.strategy(body, None) if kind.strategy is not None else []
        spec = body.get("spec") or {}
        errors, find = self._questions[kind.plural](spec, call, request.user)
        if wrong or errors:
            raise statuses.invalid(kind, "", [*wrong, *errors])
        return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}, **({"spec": spec} if spec else {}),
                "status": find()}

    def _ask_oneself(self, spec: Obj, call: Call, user: User) -> tuple[list[FieldError], Callable[[], Obj]]:
        return [], lambda: {"userInfo": user.as_object()}

    def _ask_token(self, spec: Obj, call: Call, user: User) -> tuple[list[FieldError], Callable[[], Obj]]:
        return [], lambda: self._review_token(spec.get("token") or "", spec.get("audiences") or [AUDIENCE])

    def _review_token(self, token: str, audiences: list[str]) -> Obj:
        user = self._access.find_user(token, audiences)
        if user is None:
            return {"authenticated": False, "user": {}}
        return {"authenticated": True, "user": user.as_object(), "audiences": audiences}

    def _ask_own_access(self, spec: Obj, call: Call, user: User) -> tuple[list[FieldError], Callable[[], Obj]]:
        return (list(access_reviews.validate_access_review(spec, own=True)),
                lambda: access_reviews.review_access(self._access.policy, user, spec))

    def _ask_access(self, spec: Obj, call: Call, user: User) -> tuple[list[FieldError], Callable[[], Obj]]:
        return (list(access_reviews.validate_access_review(spec, own=False)),
                lambda: access_reviews.review_subject_access(self._access.policy, spec))

    def _ask_local_access(self, spec: Obj, call: Call, user: User) -> tuple[list[FieldError], Callable[[], Obj]]:
        return (list(access_reviews.validate_local_review(spec, call.namespace or "")),
                lambda: access_reviews.review_subject_access(self._access.policy, spec))

    def _ask_rules(self, spec: Obj, call: Call, user: User) -> tuple[list[FieldError], Callable[[], Obj]]:
        return [], lambda: access_reviews.review_rules(self._access.policy, user, spec)

    def request_token(self, kind: Kind, call: Call, body: Obj) -> Obj:
        """Give a token of a service account as an answer to a ``TokenRequest``."""
        try:
            spec = msgspec.convert(body.get("spec") or {}, _TokenSpec)
        except msgspec.ValidationError as error:
            raise statuses.bad_request(f"TokenRequest cannot be decoded: {error}") from None
        errors = list(_validate_token(spec))
        if errors:
            raise statuses.invalid(_Named(), "", errors)
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
        return {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
                "metadata": {"name": key[1], "namespace": key[0], "creationTimestamp": ages.now()},
                "spec": {"audiences": audiences, "expirationSeconds": int(lifetime),
                         "boundObjectRef": (body.get("spec") or {}).get("boundObjectRef")},
                "status": {"token": token, "expirationTimestamp": expires}}

    def _bind(self, namespace: str, wanted: _BoundObject) -> Binding:
        if (wanted.apiVersion, wanted.kind) not in _BINDING:
            group, _, version = wanted.apiVersion.rpartition("/")
            raise statuses.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={wanted.kind}")
        bucket, key = f"{wanted.kind.lower()}s", ("" if wanted.kind == "Node" else namespace, wanted.name)
        record = self._store.bucket(bucket).records.get(key)
        if record is None:
            raise statuses.not_found(_Named("", wanted.kind, bucket), wanted.name)
        if wanted.uid and wanted.uid != record.uid:
            raise statuses.conflict(_Named("", wanted.kind, bucket), wanted.name,
                                    f"the UID in the bound object reference ({wanted.uid}) does not match "
                                    f"the UID in record. The object might have been deleted and then recreated")
        return Binding(bucket, key, record.uid)


def _validate_token(spec: _TokenSpec) -> Iterator[FieldError]:
    lifetime = spec.expirationSeconds
    if lifetime is not None and lifetime < MIN_LIFETIME:
        yield statuses.invalid_value("spec.expirationSeconds", lifetime,
                                     "may not specify a duration less than 10 minutes")
    if lifetime is not None and lifetime > _MAX_LIFETIME:
        yield statuses.invalid_value("spec.expirationSeconds", lifetime,
                                     "may not specify a duration larger than 2^32 seconds")
