"""
The merge strategies of the values of a kind: which lists are sets or are keyed, and which values are atomic.

Merging and field ownership need nothing else from a schema. Topologies come from the schemas of custom resources and
from the data of built-in kinds; without a schema, maps are merged field by field, and lists are replaced, as in the API
server.
The rules follow "Server-Side Apply" in the Kubernetes documentation ("Merge strategy").
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, TypeAlias

from kopf_cluster.kinds import structures

ListType: TypeAlias = Literal["atomic", "set", "map"]
MapType: TypeAlias = Literal["granular", "atomic"]


class Topology:
    """The merge strategy of a value: of a list or a map; scalars need none.

    Topologies of inner values are made on the first use, and kept for declared fields and items. So there
    must be one topology for one version of a definition, and the schema must not be modified.

    Parameters:
        list_type: Whether a list is atomic, a set, or has items with keys.
        map_type: Whether a map is atomic.
        keys: The keys of items for the lists of the type ``map``: the names to the defaults, or to none.
        names: The names of the declared fields.
        find: Returns the topology of a field or of a map's value; none if the schema does not know the field.
        items: Returns the topology of the items of a list.
    """

    __slots__ = ("_fields", "_find", "_names", "items", "keys", "list_type", "map_type")

    def __init__(
        self,
        list_type: ListType,
        map_type: MapType,
        keys: Mapping[str, Any],
        names: Collection[str],
        find: Callable[[str], Topology | None],
        items: Callable[[], Topology],
    ) -> None:
        self.list_type: ListType = list_type
        self.map_type: MapType = map_type
        self.keys = keys
        self.items = items
        self._names = names
        self._find = find
        self._fields: dict[str, Topology | None] = {}

    def is_named(self, name: str) -> bool:
        """Whether the field is declared by its name, instead of being a key of a map."""
        return name in self._names

    def field(self, name: str) -> Topology | None:
        """Return the topology of a field or of a map's value; none if the schema does not know the field."""
        if name not in self._names:
            return self._find(name)
        if name not in self._fields:
            self._fields[name] = self._find(name)
        return self._fields[name]


DEDUCED: Final[Topology] = Topology("atomic", "granular", {}, (), lambda name: DEDUCED, lambda: DEDUCED)
"""The topology without a schema: maps are granular, lists are atomic."""

_STANDARD: Final = frozenset({"apiVersion", "kind", "metadata"})

# The only list keys that may be absent in built-in kinds, in the ports of containers and services.
_KEY_DEFAULTS: Final = {"protocol": "TCP"}


def of_schema(schema: Mapping[str, Any], *, root: bool = False) -> Topology:
    """Make the topology from a structural schema of a custom resource definition."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    standard = _STANDARD if root or schema.get("x-kubernetes-embedded-resource") else ()
    items, additional = schema.get("items"), schema.get("additionalProperties")
    list_type: ListType = schema.get("x-kubernetes-list-type") or "atomic"
    keys = schema.get("x-kubernetes-list-map-keys") or () if list_type == "map" else ()
    fields = (items or {}).get("properties") or {}

    @functools.cache
    def find_inner(inner: Literal["items", "additionalProperties"]) -> Topology:
        return of_schema(schema[inner]) if isinstance(schema.get(inner), Mapping) else DEDUCED

    def find(name: str) -> Topology | None:
        if name in standard:
            return _of_metadata() if name == "metadata" else DEDUCED
        if name in properties:
            return of_schema(properties[name])
        if additional not in (None, False) or schema.get("x-kubernetes-preserve-unknown-fields"):
            return find_inner("additionalProperties")
        return None

    return Topology(
        list_type,
        schema.get("x-kubernetes-map-type") or "granular",
        {key: (fields.get(key) or {}).get("default") for key in sorted(keys)},
        {*properties, *standard},
        find,
        functools.partial(find_inner, "items"),
    )


@functools.cache
def _of_metadata() -> Topology:
    return of_structure(structures.of_definition(structures.DEFINITION))


def of_structure(structure: structures.Structure) -> Topology:
    """Make the topology from the data of built-in kinds."""

    @functools.cache
    def find_items() -> Topology:
        return of_structure(structure.items) if structure.items is not None else DEDUCED

    def find(name: str) -> Topology | None:
        if name in structure.fields:
            return of_structure(structure.fields[name])
        if structure.shape == "map":
            return find_items()
        return DEDUCED if structure.shape == "any" else None

    keys = {key: _KEY_DEFAULTS.get(key) for key in sorted(structure.map_keys)}
    list_type, map_type = structure.list_type or "atomic", structure.map_type or "granular"
    return Topology(list_type, map_type, keys, structure.fields.keys(), find, find_items)
