"""
The built-in resources as data: names, scope, verbs, subresources; see ``tools/generate_builtin_kinds.py``.

These are all that Kubernetes can serve. By default it serves only the stable versions, and so do we: alpha and
beta versions are "previews" here.
"""

from __future__ import annotations

import functools
import importlib.resources

import msgspec


class Subresource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A subresource: what can be done with it, and of which kind it is."""

    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


class Resource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One resource in one version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    definition: str
    """The name of its schema, for `structures.of_definition`."""
    verbs: tuple[str, ...]
    namespaced: bool = False
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """By which fields it can be selected, besides the name and the namespace."""
    generation: bool = False
    """Whether `metadata.generation` is kept."""
    shown_deleted: bool = False
    """Whether its deletion is answered with the last state of the object, even if that has gone."""
    subresources: dict[str, Subresource] = {}

    @property
    def is_stored(self) -> bool:
        """Whether there are objects of the kind; the others are only questions to the server, e.g. access reviews."""
        return "list" in self.verbs and "create" in self.verbs

    @property
    def is_preview(self) -> bool:
        return "alpha" in self.version or "beta" in self.version


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kubernetes: str
    sources: tuple[str, ...]
    kinds: tuple[Resource, ...]


@functools.cache
def read_resources() -> tuple[Resource, ...]:
    """Give all resources, groups and versions and names in the order in which the API server lists them."""
    return _read().kinds


def kubernetes_version() -> str:
    """Tell of which version of Kubernetes the resources are."""
    return _read().kubernetes


@functools.cache
def _read() -> _Data:
    return msgspec.json.decode(
        importlib.resources.files(__package__).joinpath("data/kinds.json").read_bytes(), type=_Data
    )
