"""Similar names: suggestions for names, and for selectors of resources, that do not exist."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from kopf._values.resources import Resource
from kopf._values.selectors import Selector

_CUTOFF = 0.75
"""The minimal similarity of names; 1 is for equal ones."""

_MAX_SUGGESTIONS = 3
"""The maximal number of suggested resources; several of them can have one name."""


def find_similar_names(name: str, known: Iterable[str], *, limit: int = 3, cutoff: float = 0.6) -> Sequence[str]:
    """
    Find similar names, the most similar one first.

    ``cutoff`` is the minimal similarity; 1 is for equal names.
    """
    import difflib  # only mistakes need it, and operators in production have none

    return difflib.get_close_matches(name, list(known), n=limit, cutoff=cutoff)


def suggest(selector: Selector, resources: Collection[Resource]) -> str | None:
    """
    Suggest similar resources in one sentence; ``None`` if there are none, or if the selector has no name.

    Resources with this name in another group or version have precedence over resources with a similar name.
    """
    name = _get_name(selector)
    if name is None:
        return None
    anywhere = dataclasses.replace(selector, arg1=None, arg2=None, arg3=None, group=None, version=None)
    namesakes = [item for item in resources if anywhere.check(dataclasses.replace(item, preferred=True))]
    if namesakes:
        asked = "/".join(part for part in (selector.group, selector.version) if part) or "the core API"
        return f"There is {_join(_choose_near(selector, namesakes))}, but {asked} is asked for."
    similar = _find_similar(name, _choose_near(selector, resources)) or _find_similar(name, resources)
    return f"Did you mean {_join(similar)}?" if similar else None


def _get_name(selector: Selector) -> str | None:
    names = (selector.any_name, selector.plural, selector.singular, selector.kind, selector.shortcut)
    return next((name for name in names if isinstance(name, str)), None)


def _choose_near(selector: Selector, resources: Collection[Resource]) -> Collection[Resource]:
    """Choose the resources of the same group, or all resources if there are none."""
    return [resource for resource in resources if resource.group == selector.group] or resources


def _find_similar(name: str, resources: Collection[Resource]) -> list[Resource]:
    """Find the resources with the most similar name in any letter case: users confuse kinds and names."""
    owners: dict[str, list[Resource]] = {}
    for resource in resources:
        for known in (resource.plural, resource.singular, resource.kind, *resource.shortcuts):
            if known and resource.preferred:
                owners.setdefault(known.lower(), []).append(resource)
    guesses = find_similar_names(name.lower(), owners, limit=1, cutoff=_CUTOFF)
    return [owner for guess in guesses for owner in owners[guess]]


def _join(resources: Iterable[Resource]) -> str:
    known = sorted({(resource.plural, resource.api_version) for resource in resources})
    return " or ".join(f"{plural!r} of {api}" for plural, api in known[:_MAX_SUGGESTIONS])
