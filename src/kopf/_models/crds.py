"""Definitions of custom resources, made from the models of all versions of a kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kopf._handlers.declarations import DeclarationError, find_class_place, put_place
from kopf._handlers.registry import OperatorRegistry
from kopf._models.custom_resources import CustomResource
from kopf._models.structural import JSON
from kopf._models.versions import ResourceDescription, make_version

Model = type[CustomResource[Any, Any]]

_SHARED = ("group", "kind", "plural", "singular", "scope", "short_names", "categories")
"""The fields that all versions of a kind have in common."""


def list_models(registry: OperatorRegistry) -> list[Model]:
    """List all declared models, and the models of handlers; each once."""
    named = (selector.model for selector in registry.get_selectors())
    found: dict[object, None] = dict.fromkeys((*registry.models, *named))
    return [model for model in found if isinstance(model, type) and issubclass(model, CustomResource)]


def make_definitions(models: Iterable[Model]) -> list[JSON]:
    """
    Make the CustomResourceDefinitions, sorted by their names: one definition for all versions of a kind.

    Raises :class:`kopf.DeclarationError` if the versions contradict each other.
    """
    groups: dict[str, list[ResourceDescription]] = {}
    for model in dict.fromkeys(models):
        groups.setdefault(model.resource.name, []).append(model.resource)
    problems = [problem for group in groups.values() for problem in _find_clashes(group)]
    problems += _find_clashes_of_kinds([group[0] for group in groups.values()])
    if problems:
        raise DeclarationError(*problems)
    return [_make_definition(groups[name]) for name in sorted(groups)]


def _find_clashes(group: list[ResourceDescription]) -> list[str]:
    first, *others = group
    problems = [
        f"{other.kind} of {other.version} and {first.kind} of {first.version} are versions of one kind, but their "
        f"{name} differ: {getattr(other, name)!r} and {getattr(first, name)!r}."
        for other in others
        for name in _SHARED
        if getattr(other, name) != getattr(first, name)
    ]
    versions = [item.version for item in group]
    if len({*versions}) < len(versions):
        problems.append(f"{first.kind} is declared twice as {first.group}/{max(versions, key=versions.count)}.")
    stored = [item.version for item in group if item.storage]
    if len(stored) != 1:
        said = ", ".join(stored) or "none"
        problems.append(f"{first.kind}: exactly one version must have storage=True, but these have it: {said}.")
    return [put_place(find_class_place(group[-1].cls), problem) for problem in problems]


def _find_clashes_of_kinds(firsts: list[ResourceDescription]) -> list[str]:
    """Find different definitions with the same name in one group."""
    seen: dict[tuple[str, str], ResourceDescription] = {}
    problems = []
    for item in firsts:
        for name in dict.fromkeys((item.kind, item.plural, item.singular, *item.short_names)):
            other = seen.setdefault((item.group, name), item)
            if other is not item:
                text = f"{item.cls.__name__} and {other.cls.__name__} of {item.group} have the same name {name!r}."
                problems.append(put_place(find_class_place(item.cls), text))
    return problems


def _make_definition(group: list[ResourceDescription]) -> JSON:
    first = group[0]
    names: JSON = {
        "kind": first.kind,
        "listKind": f"{first.kind}List",
        "plural": first.plural,
        "singular": first.singular,
        "shortNames": [*first.short_names],
        "categories": [*first.categories],
    }
    versions = sorted(group, key=lambda item: _get_priority(item.version))
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": first.name},
        "spec": {
            "group": first.group,
            "names": {name: value for name, value in names.items() if value},
            "scope": first.scope,
            "versions": [make_version(item) for item in versions],
        },
    }


def _get_priority(version: str) -> tuple[int, int, int]:
    """Get the sorting key of a version: the newest one first, as in the discovery of Kubernetes."""
    major, stage, minor = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version).groups()  # type: ignore[union-attr]
    return {None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0)
