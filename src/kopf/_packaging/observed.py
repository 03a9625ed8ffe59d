"""Observations: the requests in an audit of the local cluster, as rules; and the resources of definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kopf._packaging.rules import Rule, RuleSet, Situation
from kopf._values.resources import Resource

_OTHERS = ("kubectl", "helm", "Mozilla", "kopf-local-cluster")
"""The user agents of people and of the local cluster's own methods: their requests do not come from the operator."""
_OPEN_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")
"""The API groups that are open to all users."""


def merge_observed(rules: Iterable[Rule], requests: Iterable[Mapping[str, Any]], situation: Situation) -> list[Rule]:
    """Add the requests of an audit of a local cluster to the rules. Raises :class:`LookupError` if it is not one."""
    merged = RuleSet()
    for rule in rules:
        resource, _, subresource = rule.resource.partition("/")
        merged.add(
            [rule.namespace or None],
            Resource(rule.group, "", resource),
            rule.verbs,
            subresource=subresource,
            names=rule.names,
        )
    for request in requests:
        namespace, resource = request["namespace"] or None, request["resource"]
        is_own = not request["agent"].startswith(_OTHERS) and request["group"] not in _OPEN_GROUPS
        if resource and request["code"] < 400 and is_own:
            is_served = namespace is None or None in situation.scopes or namespace in situation.scopes
            scopes = situation.scopes if is_served and namespace is not None else {namespace}
            target = Resource(request["group"], "", resource)
            merged.add(scopes, target, [request["verb"]], subresource=request["subresource"])
    return merged.list()


def list_defined(definitions: Iterable[Mapping[str, Any]]) -> Iterator[Resource]:
    """List the resources of these definitions. Raises :class:`LookupError` if they are incomplete."""
    for definition in definitions:
        spec = definition["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            if version.get("served", True):
                yield Resource(
                    group=spec["group"],
                    version=version["name"],
                    plural=names["plural"],
                    kind=names["kind"],
                    singular=names.get("singular") or names["kind"].lower(),
                    shortcuts=frozenset(names.get("shortNames") or ()),
                    categories=frozenset(names.get("categories") or ()),
                    subresources=frozenset(version.get("subresources") or ()),
                    namespaced=spec["scope"] == "Namespaced",
                    preferred=bool(version.get("storage")),
                )
