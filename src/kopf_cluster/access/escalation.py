"""
Nobody may grant more than they have: the check of roles and bindings as they are written.

See "Privilege escalation prevention and bootstrapping" of "Using RBAC Authorization". Who may ``escalate`` the role or
``bind`` it, may grant anything by that.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from kopf_cluster import statuses
from kopf_cluster.access.authorizing import GROUP, Attributes, Obj, Policy, aggregate
from kopf_cluster.kinds.kind import Kind
from kopf_cluster.requests import SUPERUSERS, User

_ROLES: Final = frozenset({"roles", "clusterroles"})
_BINDINGS: Final = frozenset({"rolebindings", "clusterrolebindings"})
_SHOWN: Final = {"apiGroups": "APIGroups", "resources": "Resources", "resourceNames": "ResourceNames",
                 "nonResourceURLs": "NonResourceURLs", "verbs": "Verbs"}


def check(policy: Policy, user: User, kind: Kind, new: Obj, old: Obj | None) -> None:
    """Refuse the write (403) if it grants to anybody what the user does not have."""
    if kind.group != GROUP or SUPERUSERS in user.groups:
        return
    if kind.plural in _ROLES:
        _check_role(policy, user, kind, new, old)
    elif kind.plural in _BINDINGS:
        _check_binding(policy, user, kind, new, old)


def _check_role(policy: Policy, user: User, kind: Kind, new: Obj, old: Obj | None) -> None:
    rules: list[Obj] = new.get("rules") or []
    if new.get("aggregationRule"):
        rules = [*rules, *aggregate(new, policy.cluster_roles)]
    if old is not None and new.get("rules") == old.get("rules") \
            and new.get("aggregationRule") == old.get("aggregationRule"):
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
        policy: Policy, user: User, kind: Kind, name: str, namespace: str, rules: Iterable[Obj],
) -> None:
    held = list(policy.rules_for(user, namespace))
    missing = [raw for raw in rules if not all(any(rule.covers(asked) for rule in held) for asked in _split(raw))]
    if missing:
        groups = ", ".join(statuses.quoted(group) for group in user.groups)
        texts = "\n".join(_show(raw) for raw in missing)
        raise statuses.forbidden(kind, name, f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC '
                                             f"permissions not currently held:\n{texts}")


def _split(raw: Obj) -> Iterator[Attributes]:
    """Give all single permissions of a rule."""
    for verb, path in itertools.product(raw.get("verbs") or (), raw.get("nonResourceURLs") or ()):
        yield Attributes(verb, path=path)
    parts = (raw.get("verbs") or (), raw.get("apiGroups") or (), raw.get("resources") or (),
             raw.get("resourceNames") or ("",))
    for verb, group, resource, name in itertools.product(*parts):
        plural, _, subresource = resource.partition("/")
        yield Attributes(verb, group, plural, subresource, name=name)


def _show(raw: Obj) -> str:
    parts = (f"{shown}:[{', '.join(map(statuses.quoted, raw[field]))}]"
             for field, shown in _SHOWN.items() if raw.get(field))
    return "{" + ", ".join(parts) + "}"
