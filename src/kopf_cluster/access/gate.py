"""
Who asks, and whether they may: certificates, tokens, impersonation, and the policy as of the stored roles and bindings.

The rules are those of "Authenticating" ("User impersonation") and "Using RBAC Authorization". By default, everything
is allowed to everybody who is known.
"""
from __future__ import annotations

import dataclasses
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from kopf_cluster import codec, statuses
from kopf_cluster.access import escalation
from kopf_cluster.access.authorizing import ALLOW_ALL, GROUP, Attributes, Decision, Policy, forbidden
from kopf_cluster.access.tokens import AUDIENCE, Tokens, service_account
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.requests import ADMINISTRATOR, SUPERUSERS, Call, Identity, Request, User, asking
from kopf_cluster.store.storage import Change, Store

Authorization: TypeAlias = Literal["always-allow", "rbac"]

ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))

#: What strangers may ask for anyway; the roles can allow them more.
OPEN_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})

_ROLES, _CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
_BINDINGS, _CLUSTER_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"
_BUCKETS: Final = frozenset({_ROLES, _CLUSTER_ROLES, _BINDINGS, _CLUSTER_BINDINGS})
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_AUTHENTICATION: Final = "authentication.k8s.io"
_EXTRA: Final = "impersonate-extra-"


class Access:
    """Decides on requests before anybody else sees them."""

    def __init__(self, store: Store, tokens: Tokens, *, token: str, authorization: Authorization,
                 administrator: str) -> None:
        super().__init__()
        self.tokens = tokens
        self._store = store
        self._enforced = authorization == "rbac"
        self._policy: Policy | None = None
        self.administrator = dataclasses.replace(ADMINISTRATOR, name=administrator)
        """To whom the token belongs."""
        self.set_token(token)

    def set_token(self, token: str) -> None:
        """Let this token be the administrator's, and the previous one nobody's."""
        self._token = token.encode()

    def observe(self, bucket: str, change: Change) -> None:
        if bucket in _BUCKETS:
            self._policy = None

    @property
    def policy(self) -> Policy:
        """All that is granted as of now."""
        if not self._enforced:
            return ALLOW_ALL
        if self._policy is None:
            self._policy = Policy(roles=self._select(_ROLES), cluster_roles=self._select(_CLUSTER_ROLES),
                                  role_bindings=self._select(_BINDINGS),
                                  cluster_role_bindings=self._select(_CLUSTER_BINDINGS))
        return self._policy

    def _select(self, bucket: str) -> list[Obj]:
        return [codec.decode(b"{" + record.data) for record in self._store.bucket(bucket).select()]

    def authenticate(self, identity: Identity) -> User:
        """Tell who asks, or refuse: 401 if their token is wrong, 403 if they may not act as somebody else."""
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
        """Tell whose token it is, if it is good for any of the audiences."""
        if AUDIENCE in audiences and hmac.compare_digest(token.encode(errors="surrogateescape"), self._token):
            return self.administrator
        return self.tokens.find(token, self._store, audiences)

    def check_escalation(self, kind: Kind, new: Obj, old: Obj | None) -> None:
        """Refuse a write by which somebody is granted more than the one has who writes."""
        if self._enforced:
            escalation.check(self.policy, asking.get(), kind, new, old)

    def _impersonate(self, user: User, headers: Mapping[str, Sequence[str]]) -> User:
        name, groups = headers.get("impersonate-user", [""])[0], headers.get("impersonate-group", ())
        if not name:
            raise statuses.internal("groups cannot be impersonated without impersonating a user")
        uid = headers.get("impersonate-uid", [""])[0]
        extra = {key.removeprefix(_EXTRA): tuple(values) for key, values in headers.items() if key.startswith(_EXTRA)}
        namespace, colon, account = name.removeprefix(_SERVICE_ACCOUNT).partition(":")
        is_account = name.startswith(_SERVICE_ACCOUNT) and bool(colon and namespace and account)
        asked = [Attributes("impersonate", resource="serviceaccounts", namespace=namespace, name=account)
                 if is_account else Attributes("impersonate", resource="users", name=name)]
        asked += [Attributes("impersonate", resource="groups", name=group) for group in groups]
        asked += [Attributes("impersonate", _AUTHENTICATION, "uids", name=uid)] if uid else []
        asked += [Attributes("impersonate", _AUTHENTICATION, "userextras", key, name=value)
                  for key, values in extra.items() for value in values]
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
        """Refuse to create what is not there yet by a request that is allowed only to change it."""
        if self._enforced:
            self._require(request.user, Attributes("create", call.group, call.plural, call.subresource,
                                                   call.namespace or "", call.name or ""))

    def _require(self, user: User, asked: Attributes) -> None:
        if SUPERUSERS not in user.groups:
            is_known = self._enforced or user.name != ANONYMOUS.name
            decision = self.policy.authorize(user, asked) if is_known else Decision(asked.path in OPEN_PATHS)
            if not decision:
                raise forbidden(user, asked, decision)


def _read_certificate(subject: Sequence[tuple[str, str]]) -> User | None:
    """Give the user of a verified certificate: the name is the common one, the groups are the organizations."""
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
