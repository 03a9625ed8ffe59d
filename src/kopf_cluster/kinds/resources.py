"""
The built-in resources as data: names, scope, verbs, subresources; see ``tools/generate_builtin_kinds.py``.

These are all resources of Kubernetes. By default, it serves only the stable versions, and so does the local cluster;
alpha and beta versions are "previews" here.
"""

from __future__ import annotations

import functools
import importlib.resources

import msgspec


class Subresource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A subresource: its kind, and its verbs."""

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
    """The fields for field selectors, besides the name and the namespace."""
    generation: bool = False
    """Whether `metadata.generation` is kept."""
    shown_deleted: bool = False
    """Whether the answer to its deletion is the last state of the object, even if that is gone."""
    subresources: dict[str, Subresource] = {}

    @property
    def is_stored(self) -> bool:
        """Whether objects of the kind are stored; other kinds are only questions to the server, e.g. access reviews."""
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
    """Return all resources in the order of the API server."""
    return _read().kinds


def kubernetes_version() -> str:
    """Return the version of Kubernetes that has these resources."""
    return _read().kubernetes


@functools.cache
def _read() -> _Data:
    return msgspec.json.decode(
        importlib.resources.files(__package__).joinpath("data/kinds.json").read_bytes(), type=_Data
    )
