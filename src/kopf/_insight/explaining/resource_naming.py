"""Names of resources as kubectl users write them: plural, singular, short, kind; in any letter case; with the group."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from kopf._values.resources import Resource
from kopf._values.selectors import Selector


def find_resources(name: str, resources: Collection[Resource]) -> list[Resource]:
    """Find those of the name, sorted; several if it is ambiguous, none if it is unknown or makes no sense."""
    try:
        exact = [item for item in resources if name == repr(item)]
        found = exact or Selector(name).select(resources)
        if not found:  # kinds are mostly written in lower case there
            lowered = {_lower(item): item for item in resources}
            found = [lowered[item] for item in Selector(name.lower()).select(lowered)]
    except TypeError:
        return []
    return sorted(found, key=repr)


def _lower(resource: Resource) -> Resource:
    return dataclasses.replace(resource, kind=None if resource.kind is None else resource.kind.lower())
