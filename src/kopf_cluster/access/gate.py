"""
Authentication and authorization: certificates, tokens, impersonation, and the policy of the stored roles and bindings.

The rules follow "Authenticating" ("User impersonation") and "Using RBAC Authorization". By default, all known
users may do everything.
"""

from __future__ import annotations

import dataclasses
import hmac
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from kopf_cluster import codec, statuses
from kopf_cluster.access.authorizing import ALLOW_ALL, GROUP, Attributes, Decision, Policy, aggregate, forbidden
from kopf_cluster.access.tokens import AUDIENCE, Tokens, service_account
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.requests import ADMINISTRATOR, SUPERUSERS, Call, Identity, Request, User, asking
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Change

Authorization: TypeAlias = Literal["always-allow", "rbac", "rbac-with-owners"]

ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))

OPEN_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})
"""The paths that anonymous users may get; roles can allow more."""

_ROLES, _CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
_BINDINGS, _CLUSTER_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"
_BUCKETS: Final = frozenset({_ROLES, _CLUSTER_ROLES, _BINDINGS, _CLUSTER_BINDINGS})
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_AUTHENTICATION: Final = "authentication.k8s.io"
_EXTRA: Final = "impersonate-extra-"


class Access:
    """Authenticates and authorizes all requests."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        tokens: Tokens,
        *,
        token: str,
        authorization: Authorization,
        administrator: str,
    ) -> None:
        self.tokens = tokens
        self._store = store
        self._registry = registry
        self._enforced = authorization != "always-allow"
        self._protects_owners = authorization == "rbac-with-owners"
        self._policy: Policy | None = None
        self.administrator = dataclasses.replace(ADMINISTRATOR, name=administrator)
        """The user with the administrator's token."""
        self.set_token(token)

    def set_token(self, token: str) -> None:
        """Replace the token of the administrator."""
        self._token = token.encode()

    def observe(self, bucket: str, change: Change) -> None:
        if bucket in _BUCKETS:
            self._policy = None

    @property
    def policy(self) -> Policy:
        """The current policy."""
        if not self._enforced:
            return ALLOW_ALL
        if self._policy is None:
            self._policy = Policy(
                roles=self._select(_ROLES),
                cluster_roles=self._select(_CLUSTER_ROLES),
                role_bindings=self._select(_BINDINGS),
                cluster_role_bindings=self._select(_CLUSTER_BINDINGS),
            )
        return self._policy

    def _select(self, bucket: str) -> list[Obj]:
        return [codec.decode(b"{" + record.data) for record in self._store.bucket(bucket).select()]

    def authenticate(self, identity: Identity) -> User:
        """Return the user, or refuse: 401 for a wrong token, 403 for a forbidden impersonation."""
        impersonation = identity.impersonation
        scheme, _, token = identity.authorization.partition(" ")
        user = _read_certificate(identity.certificate) if identity.certificate else None
        if user is None and scheme.lower() == "bearer" and token.strip():
            user = self.find_user(token)
            if user is None:
                raise statuses.unauthorized()
        user = user or ANONYMOUS
        return self._impersonate(user, impersonation) if impersonation else user

    def find_user(self, token: str, audiences: Iterable[str] = (AUDIENCE,)) -> User | None:
        """Return the user of a token, if it is valid for any of the audiences."""
        if AUDIENCE in audiences and hmac.compare_digest(token.encode(errors="surrogateescape"), self._token):
            return self.administrator
        return self.tokens.find(token, self._store, audiences)

    def guard(self, kind: Kind, new: Obj, old: Obj | None) -> None:
        """Refuse a write that grants more than its author has, or sets owners without permission."""
        if self._enforced:
            check_escalation(self.policy, asking.get(), kind, new, old)
        if self._protects_owners:
            check_owner_references(self.policy, asking.get(), self._registry, kind, new, old)

    def _impersonate(self, user: User, headers: Mapping[str, Sequence[str]]) -> User:
        name, groups = headers.get("impersonate-user", [""])[0], headers.get("impersonate-group", ())
        if not name:
            raise statuses.internal("groups cannot be impersonated without impersonating a user")
        uid = headers.get("impersonate-uid", [""])[0]
        extra = {key.removeprefix(_EXTRA): tuple(values) for key, values in headers.items() if key.startswith(_EXTRA)}
        namespace, colon, account = name.removeprefix(_SERVICE_ACCOUNT).partition(":")
        is_account = name.startswith(_SERVICE_ACCOUNT) and bool(colon and namespace and account)
        asked = [
            Attributes("impersonate", resource="serviceaccounts", namespace=namespace, name=account)
            if is_account
            else Attributes("impersonate", resource="users", name=name)
        ]
        asked += [Attributes("impersonate", resource="groups", name=group) for group in groups]
        asked += [Attributes("impersonate", _AUTHENTICATION, "uids", name=uid)] if uid else []
        asked += [
            Attributes("impersonate", _AUTHENTICATION, "userextras", key, name=value)
            for key, values in extra.items()
            for value in values
        ]
        for attributes in asked:
            self._require(user, attributes)
        if is_account and not groups:
            groups = service_account(namespace, account).groups
        known = "system:authenticated" if name != ANONYMOUS.name else "system:unauthenticated"
        return User(name, tuple(dict.fromkeys([*groups, known])), uid, extra)

    def authorize(self, call: Call, request: Request) -> None:
        """Refuse the request (403) if it is not allowed."""
        if self._enforced or request.user.name == ANONYMOUS.name:
            self._require(request.user, _attributes(call, request))

    def authorize_creation(self, call: Call, request: Request) -> None:
        """Refuse a creation by a request that is only allowed to change existing objects."""
        if self._enforced:
            self._require(
                request.user,
                Attributes("create", call.group, call.plural, call.subresource, call.namespace or "", call.name or ""),
            )

    def _require(self, user: User, asked: Attributes) -> None:
        if SUPERUSERS not in user.groups:
            is_known = self._enforced or user.name != ANONYMOUS.name
            decision = self.policy.authorize(user, asked) if is_known else Decision(asked.path in OPEN_PATHS)
            if not decision:
                raise forbidden(user, asked, decision)


def _read_certificate(subject: Sequence[tuple[str, str]]) -> User | None:
    """Return the user of a verified certificate: the common name is the user, the organizations are groups."""
    names = [value for name, value in subject if name == "commonName"]
    groups = [value for name, value in subject if name == "organizationName"]
    return User(names[-1], (*dict.fromkeys([*groups, "system:authenticated"]),)) if names else None


def _attributes(call: Call, request: Request) -> Attributes:
    if not call.plural:
        return Attributes(call.verb, path="/" + "/".join(request.path))
    name, namespace = call.name or "", call.namespace or ""
    if not name and call.verb in ("list", "watch", "deletecollection"):  # as clients read or watch one object
        field, _, value = request.query.get("fieldSelector", "").partition("=")
        name = value.removeprefix("=") if field == "metadata.name" and "," not in value else ""
    if call.plural == "namespaces" and not call.group and call.name:
        namespace = call.name
    return Attributes(call.verb, call.group, call.plural, call.subresource, namespace, name)


# Users may not grant more than they have, unless they may ``escalate`` or ``bind`` the role.
#
# See "Privilege escalation prevention and bootstrapping" of "Using RBAC Authorization".

_ROLE_KINDS: Final = frozenset({"roles", "clusterroles"})
_BINDING_KINDS: Final = frozenset({"rolebindings", "clusterrolebindings"})
_SHOWN: Final = {
    "apiGroups": "APIGroups",
    "resources": "Resources",
    "resourceNames": "ResourceNames",
    "nonResourceURLs": "NonResourceURLs",
    "verbs": "Verbs",
}


def check_escalation(policy: Policy, user: User, kind: Kind, new: Obj, old: Obj | None) -> None:
    """Refuse the write (403) if it grants permissions that the user does not have."""
    if kind.group != GROUP or SUPERUSERS in user.groups:
        return
    if kind.plural in _ROLE_KINDS:
        _check_role(policy, user, kind, new, old)
    elif kind.plural in _BINDING_KINDS:
        _check_binding(policy, user, kind, new, old)


def _check_role(policy: Policy, user: User, kind: Kind, new: Obj, old: Obj | None) -> None:
    rules: list[Mapping[str, Any]] = new.get("rules") or []
    if new.get("aggregationRule"):
        rules = [*rules, *aggregate(new, policy.cluster_roles)]
    if (
        old is not None
        and new.get("rules") == old.get("rules")
        and new.get("aggregationRule") == old.get("aggregationRule")
    ):
        return
    namespace, name = new["metadata"].get("namespace") or "", new["metadata"].get("name") or ""
    if not policy.authorize(user, Attributes("escalate", GROUP, kind.plural, namespace=namespace, name=name)):
        _require_held(policy, user, kind, name, namespace, rules)


def _check_binding(policy: Policy, user: User, kind: Kind, new: Obj, old: Obj | None) -> None:
    reference = new.get("roleRef") or {}
    if old is not None and (new.get("subjects"), reference) == (old.get("subjects"), old.get("roleRef")):
        return
    namespace, name = new["metadata"].get("namespace") or "", new["metadata"].get("name") or ""
    plural, role = f"{str(reference.get('kind', '')).lower()}s", str(reference.get("name", ""))
    if policy.authorize(user, Attributes("bind", GROUP, plural, namespace=namespace, name=role)):
        return
    rules = policy.resolve(reference, namespace)
    if rules is None:
        what = f'{plural}.{GROUP} "{role}" not found'
        raise statuses.APIStatus(404, "NotFound", what, details={"name": role, "group": GROUP, "kind": plural})
    _require_held(policy, user, kind, name, namespace, [rule.raw for rule in rules])


def _require_held(
    policy: Policy,
    user: User,
    kind: Kind,
    name: str,
    namespace: str,
    rules: Iterable[Mapping[str, Any]],
) -> None:
    held = list(policy.rules_for(user, namespace))
    missing = [raw for raw in rules if not all(any(rule.covers(asked) for rule in held) for asked in _split(raw))]
    if missing:
        groups = ", ".join(statuses.quoted(group) for group in user.groups)
        texts = "\n".join(_show(raw) for raw in missing)
        raise statuses.forbidden(
            kind,
            name,
            f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC '
            f"permissions not currently held:\n{texts}",
        )


def _split(raw: Mapping[str, Any]) -> Iterator[Attributes]:
    """Yield all single permissions of a rule."""
    for verb, path in itertools.product(raw.get("verbs") or (), raw.get("nonResourceURLs") or ()):
        yield Attributes(verb, path=path)
    parts = (
        raw.get("verbs") or (),
        raw.get("apiGroups") or (),
        raw.get("resources") or (),
        raw.get("resourceNames") or ("",),
    )
    for verb, group, resource, name in itertools.product(*parts):
        plural, _, subresource = resource.partition("/")
        yield Attributes(verb, group, plural, subresource, name=name)


def _show(raw: Mapping[str, Any]) -> str:
    parts = (
        f"{shown}:[{', '.join(map(statuses.quoted, raw[field]))}]" for field, shown in _SHOWN.items() if raw.get(field)
    )
    return "{" + ", ".join(parts) + "}"


# Owner references are protected, too, if that is wanted.
#
# The rules follow the admission plugin ``OwnerReferencesPermissionEnforcement``, see "Admission Control in
# Kubernetes". Few clusters have it; OpenShift does.


def check_owner_references(
    policy: Policy, user: User, registry: Registry, kind: Kind, new: Obj, old: Obj | None
) -> None:
    """Refuse the write (403) if the user may not delete the object, or may not block the deletion of its new owners."""
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
    """Yield the needed permissions for these references; those for unknown kinds are never granted."""
    for item in references:
        group, _, version = str(item.get("apiVersion", "")).rpartition("/")
        owner = registry.find_by_kind(group, version, str(item.get("kind", "")))
        plural, is_namespaced = ("", False) if owner is None else (owner.plural, owner.namespaced)
        where = namespace if is_namespaced else ""
        yield Attributes("update", group, plural, "finalizers", where, str(item.get("name", "")))
