"""Permissions: what to add to the roles of an operator when the cluster refuses something, in a form to be pasted."""

from __future__ import annotations

from collections.abc import Iterable

from kopf._values.resources import Resource


def format_rule(resource: Resource, verbs: Iterable[str], *, subresource: str | None = None) -> str:
    """Write the RBAC rule that permits the verbs on the resource: one line of YAML, an item for ``rules``."""
    group = resource.group or '""'
    name = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return f"- {{apiGroups: [{group}], resources: [{name}], verbs: [{', '.join(verbs)}]}}"


def format_advice(
    resource: Resource, verbs: Iterable[str], *, namespace: str | None = None, subresource: str | None = None
) -> str:
    """Say which rule to add, and to which role."""
    role = "a ClusterRole" if namespace is None else f"a ClusterRole, or a Role in the namespace {namespace!r},"
    return f"Add this rule to {role} of the operator: {format_rule(resource, verbs, subresource=subresource)}"
