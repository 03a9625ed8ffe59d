"""Roles: the rules as the objects of RBAC, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kopf._packaging.rules import Rule
from kopf._values.permissions import make_rule

Obj = dict[str, Any]

_GROUP = "rbac.authorization.k8s.io"


class Account(NamedTuple):
    """The service account of an operator; its name is that of the roles, too."""

    name: str
    namespace: str


def merge_rules(rules: Sequence[Rule]) -> list[Obj]:
    """Make the items of ``rules`` for one role: those that differ only in the resources are one."""
    merged: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for rule in rules:
        merged.setdefault((rule.group, rule.verbs, rule.names), []).append(rule.resource)
    return [make_rule(group, resources, verbs, names) for (group, verbs, names), resources in merged.items()]


def make_roles(rules: Sequence[Rule], name: str) -> list[Obj]:
    """Make the roles: one for each namespace, and one for the whole cluster, as far as there is anything in them."""
    return [
        _make(namespace, "Role", name, rules=merge_rules([rule for rule in rules if rule.namespace == namespace]))
        for namespace in sorted({rule.namespace for rule in rules})
    ]


def make_bindings(roles: Sequence[Obj], account: Account) -> list[Obj]:
    """Make the bindings that give the roles to the service account."""
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    return [
        _make(
            role["metadata"].get("namespace", ""),
            "RoleBinding",
            account.name,
            roleRef={"apiGroup": _GROUP, "kind": role["kind"], "name": account.name},
            subjects=[subject],
        )
        for role in roles
    ]


def _make(namespace: str, kind: str, name: str, **content: Any) -> Obj:
    prefix = "" if namespace else "Cluster"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{_GROUP}/v1", "kind": f"{prefix}{kind}", "metadata": metadata, **content}
