"""
Kinds by any name that `kubectl` takes: plural, singular, short, or that of the kind; with or without the group.

See "Resource types" of the reference of kubectl: ``deployments``, ``deploy``, ``Deployment``, ``deployments.apps``,
``deployments.v1.apps``. Names are not case-sensitive; of several groups with the same name, the first one wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kopf_cluster import statuses
from kopf_cluster.kinds.kind import Kind
from kopf_cluster.kinds.registry import Registry


def find_kind(registry: Registry, text: str) -> Kind:
    """Find the kind by whatever name it is called, or raise the refusal (404) if there is none."""
    name, _, rest = text.lower().partition(".")
    version, dot, group = rest.partition(".")
    exact = _find(registry, name, group, version) if dot else None
    found = exact or _find(registry, name, rest or None) or (_find_by_prefix(registry, name, rest) if rest else None)
    if found is None:
        raise statuses.APIStatus(404, "NotFound", f'the server doesn\'t have a resource type "{text}"')
    return found


def find_kind_of(registry: Registry, manifest: Mapping[str, Any]) -> Kind:
    """Find the kind of an object, or raise the refusal (400)."""
    for field in ("apiVersion", "kind"):
        if not manifest.get(field):
            raise statuses.bad_request(f"the manifest has no {field}: it is not an object of Kubernetes")
    group, _, version = str(manifest["apiVersion"]).rpartition("/")
    kind = registry.find_by_kind(group, version, str(manifest["kind"]))
    if kind is None:
        raise statuses.bad_request(
            f'no matches for kind "{manifest["kind"]}" in version '
            f'"{manifest["apiVersion"]}"; is its definition applied already?'
        )
    return kind


def _find(registry: Registry, name: str, group: str | None, version: str | None = None) -> Kind | None:
    groups = registry.groups() if group is None else [group]
    return next((kind for kind in _kinds(registry, groups, version) if name in _names_of(kind)), None)


def _find_by_prefix(registry: Registry, name: str, prefix: str) -> Kind | None:
    """As kubectl, accept the beginning of a group, e.g. ``sc.storage``, if there is no such group as a whole."""
    groups = [group for group in registry.groups() if group.startswith(prefix)]
    return next((kind for kind in _kinds(registry, groups, None) if name in _names_of(kind)), None)


def _kinds(registry: Registry, groups: list[str], version: str | None) -> Iterator[Kind]:
    for group in groups:
        for known in registry.versions(group):
            if version in (None, known):
                yield from registry.kinds(group, known)


def _names_of(kind: Kind) -> set[str]:
    return {kind.plural, kind.singular, kind.kind.lower(), *kind.short_names}
