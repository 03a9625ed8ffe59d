"""
Authorization by roles and bindings, see "Using RBAC Authorization".

A `Policy` is made from all roles and bindings at once, and made anew when any of them changes. It keeps the rules by
subjects, so that a request costs only as much as the rules of its user and their groups.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from kopf_cluster import statuses
from kopf_cluster.kinds.selectors import matches
from kopf_cluster.requests import SUPERUSERS, User

Obj: TypeAlias = Mapping[str, Any]

GROUP: Final = "rbac.authorization.k8s.io"

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a request: a verb on a resource, or on a path (then with nothing else)."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.allowed


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a role."""

    verbs: frozenset[str]
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    raw: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, raw: Obj) -> Rule:
        return cls(
            verbs=frozenset(raw.get("verbs") or ()),
            groups=frozenset(raw.get("apiGroups") or ()),
            resources=frozenset(raw.get("resources") or ()),
            names=frozenset(raw.get("resourceNames") or ()),
            paths=tuple(raw.get("nonResourceURLs") or ()),
            raw=raw,
        )

    def covers(self, asked: Attributes) -> bool:
        if asked.verb not in self.verbs and "*" not in self.verbs:
            return False
        if asked.path:
            return any(_covers_path(pattern, asked.path) for pattern in self.paths)
        return (
            (asked.group in self.groups or "*" in self.groups)
            and self._covers_resource(asked)
            and (not self.names or asked.name in self.names)
        )

    def _covers_resource(self, asked: Attributes) -> bool:
        resources = self.resources
        if "*" in resources or asked.full_resource in resources:
            return True
        return bool(asked.subresource) and f"*/{asked.subresource}" in resources


def _covers_path(pattern: str, path: str) -> bool:
    if pattern == "*":
        return True
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """The grant of one binding to one subject."""

    namespace: str | None
    """The namespace of the rules; none for all namespaces."""
    rules: tuple[Rule, ...]
    reason: str


class Policy:
    """All grants. Immutable."""

    def __init__(
        self,
        *,
        roles: Iterable[Obj] = (),
        cluster_roles: Iterable[Obj] = (),
        role_bindings: Iterable[Obj] = (),
        cluster_role_bindings: Iterable[Obj] = (),
    ) -> None:
        self._cluster_roles = {role["metadata"]["name"]: role for role in cluster_roles}
        self._roles = {(role["metadata"]["namespace"], role["metadata"]["name"]): role for role in roles}
        self._rules: dict[tuple[str, str], tuple[Rule, ...] | None] = {}
        self._grants: dict[str, list[Grant]] = {}
        self._broken: dict[str, list[tuple[str | None, str]]] = {}
        for binding in cluster_role_bindings:
            self._bind(binding, None)
        for binding in role_bindings:
            self._bind(binding, binding["metadata"]["namespace"])

    def _bind(self, binding: Obj, namespace: str | None) -> None:
        ref = binding["roleRef"]
        name = binding["metadata"]["name"]
        what = f'ClusterRoleBinding "{name}"' if namespace is None else f'RoleBinding "{name}/{namespace}"'
        rules = self.resolve(ref, namespace or "")
        for subject in binding.get("subjects") or ():
            grantee = _grantee(subject, namespace)
            if rules is None:
                problem = f'{ref["kind"].lower()}.{GROUP} "{ref["name"]}" not found'
                self._broken.setdefault(grantee, []).append((namespace, problem))
                continue
            reason = f'RBAC: allowed by {what} of {ref["kind"]} "{ref["name"]}" to {_subject_text(subject, namespace)}'
            self._grants.setdefault(grantee, []).append(Grant(namespace, rules, reason))

    @property
    def cluster_roles(self) -> Iterable[Obj]:
        return self._cluster_roles.values()

    def resolve(self, ref: Obj, namespace: str) -> tuple[Rule, ...] | None:
        """Return the rules of the role in a namespace; none if the role does not exist."""
        key = ("", ref["name"]) if ref["kind"] == "ClusterRole" else (namespace, ref["name"])
        if key not in self._rules:
            role = self._cluster_roles.get(key[1]) if not key[0] else self._roles.get(key)
            raw = None if role is None else aggregate(role, self._cluster_roles.values())
            self._rules[key] = None if raw is None else tuple(map(Rule.parse, raw))
        return self._rules[key]

    def authorize(self, user: User, asked: Attributes) -> Decision:
        """Decide on a request; the reason of a refusal names bound roles that do not exist."""
        if SUPERUSERS in user.groups:
            return Decision(True)
        for grant in _look_up(self._grants, user):
            if _holds(grant.namespace, asked) and any(rule.covers(asked) for rule in grant.rules):
                return Decision(True, grant.reason)
        problems = [problem for namespace, problem in _look_up(self._broken, user) if _holds(namespace, asked)]
        if not problems:
            return Decision(False)
        return Decision(False, f"RBAC: {problems[0]}" if len(problems) == 1 else f"RBAC: [{', '.join(problems)}]")

    def rules_for(self, user: User, namespace: str) -> Iterator[Rule]:
        """Yield all rules of the user in the namespace, including those for all namespaces."""
        if SUPERUSERS in user.groups:
            yield from map(Rule.parse, _EVERYTHING)
        for grant in _look_up(self._grants, user):
            if grant.namespace is None or grant.namespace == namespace:
                yield from grant.rules


def _look_up(table: Mapping[str, Sequence[T]], user: User) -> Iterator[T]:
    """Yield the entries of a user and of their groups."""
    for grantee in (f"User/{user.name}", *(f"Group/{group}" for group in user.groups)):
        yield from table.get(grantee, ())


_EVERYTHING: Final[tuple[Obj, ...]] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


class _AllowAll(Policy):
    """Grants everything to all users."""

    def authorize(self, user: User, asked: Attributes) -> Decision:
        return Decision(True)

    def rules_for(self, user: User, namespace: str) -> Iterator[Rule]:
        return map(Rule.parse, _EVERYTHING)


ALLOW_ALL: Final = _AllowAll()


def _holds(namespace: str | None, asked: Attributes) -> bool:
    return namespace is None or (not asked.path and namespace == asked.namespace)


def _grantee(subject: Obj, namespace: str | None) -> str:
    """Return the kind and the name of a user or a group; service accounts are users."""
    if subject["kind"] == "ServiceAccount":
        place = subject.get("namespace") or namespace or ""
        return f"User/system:serviceaccount:{place}:{subject['name']}"
    return f"{subject['kind']}/{subject['name']}"


def _subject_text(subject: Obj, namespace: str | None) -> str:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f'{subject["kind"]} "{name}"'


def aggregate(role: Obj, cluster_roles: Iterable[Obj]) -> list[Obj]:
    """Return the rules of a role; an aggregated one has the rules of all cluster roles that it selects by labels."""
    pool = list(cluster_roles)
    rules: list[Obj] = []
    seen: set[str] = set()

    def collect(one: Obj) -> None:
        selectors = (one.get("aggregationRule") or {}).get("clusterRoleSelectors")
        if not selectors:
            rules.extend(rule for rule in one.get("rules") or () if rule not in rules)
            return
        seen.add(one["metadata"]["name"])
        for other in pool:
            labels = other["metadata"].get("labels") or {}
            if other["metadata"]["name"] not in seen and any(matches(selector, labels) for selector in selectors):
                collect(other)

    collect(role)
    return rules


def forbidden(user: User, asked: Attributes, decision: Decision) -> statuses.APIStatus:
    """Make the refusal (403) of a request in the words of kube-apiserver."""
    who = f"User {statuses.quoted(user.name)} cannot {asked.verb}"
    if asked.path:
        return statuses.APIStatus(403, "Forbidden", f"forbidden: {who} path {statuses.quoted(asked.path)}", details={})
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    why = f'{who} resource "{asked.full_resource}" in API group "{asked.group}" {where}'
    if decision.reason:
        why += f": {decision.reason}"
    what = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    if asked.name:
        what += f' "{asked.name}"'
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return statuses.APIStatus(
        403, "Forbidden", f"{what} is forbidden: {why}", details={key: value for key, value in details.items() if value}
    )
