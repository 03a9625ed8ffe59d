"""
How the values of a kind are put together: which lists are sets or are keyed, and what is one value as a whole.

That is all that merging and field ownership need of a schema. Here it is taken from the schemas of custom
resources and from the data of built-in kinds; and there is a topology of the data with no schema at all, where maps
are merged field by field and lists are replaced, as in the API server.
The rules are those of "Server-Side Apply" in the Kubernetes documentation ("Merge strategy").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

from kopf_cluster.kinds import structures

ListType: TypeAlias = Literal["atomic", "set", "map"]
MapType: TypeAlias = Literal["granular", "atomic"]


class Topology(Protocol):
    """The place of a value: what it is merged by if it is a list or a map; scalars need nothing."""

    @property
    def list_type(self) -> ListType: ...

    @property
    def map_type(self) -> MapType: ...

    @property
    def keys(self) -> Mapping[str, Any]:
        """The keys of items for the lists of the type ``map``: the names to the defaults, or to none."""
        ...

    def is_named(self, name: str) -> bool:
        """Whether the field is declared by its name, i.e. is not just one of the keys of a map."""
        ...

    def field(self, name: str) -> Topology | None:
        """Give the topology of a field or of a map's value; none if the schema does not know such a field."""
        ...

    def items(self) -> Topology: ...


class _Deduced:
    """Anything: maps by their fields, lists as a whole."""

    list_type: Final[ListType] = "atomic"
    map_type: Final[MapType] = "granular"
    keys: Final[Mapping[str, Any]] = {}

    def is_named(self, name: str) -> bool:
        return False

    def field(self, name: str) -> Topology:
        return self

    def items(self) -> Topology:
        return self


DEDUCED: Final[Topology] = _Deduced()


class SchemaTopology:
    """The topology as told by a structural OpenAPI v3 schema of a custom resource definition.

    The nodes are made when they are first asked for and are kept, so one topology is to be made for one version
    of a definition. The schema must not be modified meanwhile.
    """

    __slots__ = ("_fields", "_items", "_properties", "_schema", "_standard", "_values", "keys", "list_type", "map_type")

    def __init__(self, schema: Mapping[str, Any], *, root: bool = False) -> None:
        self._schema = schema
        self._properties: Mapping[str, Any] = schema.get("properties") or {}
        self._standard = _STANDARD if root or schema.get("x-kubernetes-embedded-resource") else {}
        self._fields: dict[str, Topology] = {}
        self._items: Topology | None = None
        self._values: Topology | None = None
        self.list_type: ListType = schema.get("x-kubernetes-list-type") or "atomic"
        self.map_type: MapType = schema.get("x-kubernetes-map-type") or "granular"
        self.keys: Mapping[str, Any] = {}
        if self.list_type == "map":
            fields = (schema.get("items") or {}).get("properties") or {}
            self.keys = {
                key: (fields.get(key) or {}).get("default")
                for key in sorted(schema.get("x-kubernetes-list-map-keys") or ())
            }

    def is_named(self, name: str) -> bool:
        return name in self._properties or name in self._standard

    def field(self, name: str) -> Topology | None:
        if name in self._standard:
            return self._standard[name]
        if name in self._properties:
            if name not in self._fields:
                self._fields[name] = SchemaTopology(self._properties[name])
            return self._fields[name]
        additional = self._schema.get("additionalProperties")
        if isinstance(additional, Mapping):
            if self._values is None:
                self._values = SchemaTopology(additional)
            return self._values
        return DEDUCED if additional is True or self._schema.get("x-kubernetes-preserve-unknown-fields") else None

    def items(self) -> Topology:
        if self._items is None:
            items = self._schema.get("items")
            self._items = SchemaTopology(items) if isinstance(items, Mapping) else DEDUCED
        return self._items


class BuiltinTopology:
    """The topology of a built-in kind."""

    __slots__ = ("_fields", "_structure", "_values", "keys", "list_type", "map_type")

    def __init__(self, structure: structures.Structure) -> None:
        self._structure = structure
        self._fields: dict[str, BuiltinTopology] = {}
        self._values: BuiltinTopology | None = None
        self.list_type: ListType = structure.list_type or "atomic"
        self.map_type: MapType = structure.map_type or "granular"
        self.keys: Mapping[str, Any] = {key: _KEY_DEFAULTS.get(key) for key in sorted(structure.map_keys)}

    def is_named(self, name: str) -> bool:
        return name in self._structure.fields

    def field(self, name: str) -> Topology | None:
        found = self._fields.get(name)
        if found is None and name in self._structure.fields:
            found = self._fields[name] = BuiltinTopology(self._structure.fields[name])
        if found is not None:
            return found
        if self._structure.shape == "map":
            return self.items()
        return DEDUCED if self._structure.shape == "any" else None

    def items(self) -> Topology:
        if self._structure.items is None:
            return DEDUCED
        if self._values is None:
            self._values = BuiltinTopology(self._structure.items)
        return self._values


# The only keys of lists that may be absent in built-in kinds: those of the ports of containers and of services.
_KEY_DEFAULTS: Final = {"protocol": "TCP"}

_ANYTHING: Final[Mapping[str, Any]] = {"x-kubernetes-preserve-unknown-fields": True}
_TEXTS: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": {"type": "string"}}
_SCALAR: Final[Mapping[str, Any]] = {"type": "string"}
_SCALARS: Final = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)

_STANDARD: Final[dict[str, Topology]] = {"apiVersion": DEDUCED, "kind": DEDUCED}

METADATA: Final[Topology] = SchemaTopology(
    {
        "properties": {
            **dict.fromkeys(_SCALARS, _SCALAR),
            "labels": _TEXTS,
            "annotations": _TEXTS,
            "finalizers": {"items": _SCALAR, "x-kubernetes-list-type": "set"},
            "ownerReferences": {
                "items": {**_ANYTHING, "x-kubernetes-map-type": "atomic"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
            },
            "managedFields": {"items": _ANYTHING, "x-kubernetes-list-type": "atomic"},
        },
    }
)
"""The metadata of all kinds, as in ``io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta``."""
_STANDARD["metadata"] = METADATA

WITHOUT_SCHEMA: Final[Topology] = SchemaTopology(_ANYTHING, root=True)
"""Objects of a kind with no schema: only their metadata is known."""
