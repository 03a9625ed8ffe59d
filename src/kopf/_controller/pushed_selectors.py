"""
Pushed selectors: the common filters of all handlers of a resource, so that the server can select the objects.

Only filters with the same meaning on both sides are pushed: equality, presence, and absence of labels, the name, and
the namespace. Callbacks are never pushed. If handlers want different values of a label, any of these values is
selected.

Handlers that block the deletion of objects push nothing: an object that has lost its label while the operator was down
would stay blocked.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence

from kopf._handlers.filter_criteria import ABSENT, PRESENT, MetaFilterToken
from kopf._handlers.handlers import ChangingHandler, ResourceHandler, SpawningHandler
from kopf._handlers.registry import HandlersOfResource
from kopf._settings.settings import WatchingSettings
from kopf._values.fields import FieldPath
from kopf._values.objects import ObjectMeta
from kopf._values.records import FrozenRecord, field
from kopf._values.resources import Resource

_MAX_VALUES = 50
"""The maximum of values of one label in a selector: it is a part of the URL, and servers limit those."""

# See "Labels and Selectors: Syntax and character set" of the Kubernetes documentation.
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}")
_LABEL_VALUE = re.compile(rf"({_NAME})?")
_FIELD_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:]{0,251}[A-Za-z0-9])?")
"""The names of some kinds, e.g. roles, have colons; no character here needs escaping."""

_FIELDS: Mapping[FieldPath, str] = {
    ("metadata", "name"): "metadata.name",
    ("metadata", "namespace"): "metadata.namespace",
}

Requirement = frozenset[str] | MetaFilterToken
"""The selected values of a label: any of these, any at all, or the absence of the label."""


class PushedSelectors(FrozenRecord, frozen=True):
    """The selectors for the objects of one resource; false if there are none."""

    labels: Mapping[str, Requirement] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.add_to({}).items())

    def add_to(self, selectors: Mapping[str, str]) -> dict[str, str]:
        """Combine the selectors with other ones, which are parameters of requests: all must match."""
        labels = ",".join(_format_label(key, requirement) for key, requirement in sorted(self.labels.items()))
        fields = ",".join(f"{key}={value}" for key, value in sorted(self.fields.items()))
        added = {"labelSelector": labels, "fieldSelector": fields}
        result = dict(selectors)
        for param, text in added.items():
            if text:
                result[param] = f"{result[param]},{text}" if result.get(param) else text
        return result

    def select(self, meta: ObjectMeta) -> bool:
        """Tell if the server would select the object."""
        labels = meta.labels or {}
        fields = {"metadata.name": meta.name, "metadata.namespace": meta.namespace}
        return all(_fits(labels.get(key), requirement) for key, requirement in self.labels.items()) and all(
            fields[key] == value for key, value in self.fields.items()
        )


def find_common(handlers: HandlersOfResource, resource: Resource, settings: WatchingSettings) -> PushedSelectors:
    """Find the common filters of all handlers of the resource; none if they must not be pushed."""
    everyone = [*handlers.indexing, *handlers.watching, *handlers.spawning, *handlers.changing]
    is_blocking = any(
        handler.requires_finalizer for handler in everyone if isinstance(handler, ChangingHandler | SpawningHandler)
    )
    if not settings.push_selectors or is_blocking or handlers.owners or handlers.is_used or not everyone:
        return PushedSelectors()
    keys = functools.reduce(set.intersection, (set(handler.labels or ()) for handler in everyone))
    requirements = {key: _unite([(handler.labels or {})[key] for handler in everyone]) for key in keys}
    labels = {key: item for key, item in requirements.items() if item is not None and _LABEL_KEY.fullmatch(key)}
    return PushedSelectors(labels, _find_field(everyone, resource))


def _unite(filters: Collection[object]) -> Requirement | None:
    """Unite the filters of one label; ``None`` if the server cannot select by the result."""
    if all(item is ABSENT for item in filters):
        return ABSENT
    values = frozenset(item for item in filters if isinstance(item, str))
    if not all(item is PRESENT or isinstance(item, str) for item in filters):
        return None
    if not all(_LABEL_VALUE.fullmatch(value) for value in values):
        return None  # the server would refuse it
    is_listed = 0 < len(values) <= _MAX_VALUES and PRESENT not in filters and (len(values) == 1 or "" not in values)
    return values if is_listed else PRESENT


def _find_field(handlers: Sequence[ResourceHandler], resource: Resource) -> Mapping[str, str]:
    field, value = handlers[0].field, handlers[0].value
    name = _FIELDS.get(field)
    if name is None or not isinstance(value, str) or not _FIELD_VALUE.fullmatch(value):
        return {}
    if not all(item.field == field and isinstance(item.value, str) and item.value == value for item in handlers):
        return {}
    return {name: value} if resource.namespaced or name != "metadata.namespace" else {}


def _format_label(key: str, requirement: Requirement) -> str:
    if requirement is PRESENT:
        return key
    if requirement is ABSENT:
        return f"!{key}"
    values = sorted(requirement) if isinstance(requirement, frozenset) else []
    return f"{key}={values[0]}" if len(values) == 1 else f"{key} in ({','.join(values)})"


def _fits(value: str | None, requirement: Requirement) -> bool:
    if isinstance(requirement, frozenset):
        return value in requirement
    return (value is None) is (requirement is ABSENT)
