"""Permissions: the rules to add to the roles of an operator when the cluster refuses something, ready to paste."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kopf._values.resources import Resource


def make_rule(group: str, resources: Iterable[str], verbs: Iterable[str], names: Iterable[str] = ()) -> dict[str, Any]:
    """Make an RBAC rule, an item of ``rules`` in a role. Without names, it is for all objects."""
    rule = {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}
    return {**rule, "resourceNames": [*names]} if names else rule


def show_rule(rule: Mapping[str, Any]) -> str:
    """Write an RBAC rule in one line, as YAML without double quotes: JSON logs would escape these."""
    return f"{{{', '.join(f'{key}: [{_join(values)}]' for key, values in rule.items())}}}"


def _join(values: Iterable[str]) -> str:
    return ", ".join(value if value[:1].isalpha() else f"'{value}'" for value in values)


def format_rule(resource: Resource, verbs: Iterable[str], *, subresource: str | None = None) -> str:
    """Write an RBAC rule that permits the verbs on the resource: one line of YAML, an item of ``rules``."""
    name = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return f"- {show_rule(make_rule(resource.group, [name], verbs))}"


def format_advice(
    resource: Resource, verbs: Iterable[str], *, namespace: str | None = None, subresource: str | None = None
) -> str:
    """Tell which rule to add, and to which role."""
    rule = format_rule(resource, verbs, subresource=subresource)
    return f"Add this rule to {name_role(namespace)} of the operator: {rule}"


def name_role(namespace: str | None) -> str:
    """Name the role for a rule."""
    return "a ClusterRole" if namespace is None else f"a ClusterRole, or a Role in the namespace {namespace!r},"
