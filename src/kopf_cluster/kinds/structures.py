"""
The structure of the built-in kinds: their fields, the types of these, and how lists are merged.

It is compiled from the data in ``data/`` on the first use of a kind, with all definitions of its fields; several kinds
share definitions. Nothing is loaded before the first use.

The terms follow the Kubernetes documentation: list types, map types, and map keys of "Server-Side Apply",
patch strategies and merge keys of "Update API Objects in Place Using kubectl patch" (strategic merge patches).
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import importlib.resources
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kopf_cluster.protobuf import messages
from kopf_cluster.statuses import FieldError, required, unsupported_value

Shape: TypeAlias = Literal[
    "object",
    "map",
    "array",
    "string",
    "boolean",
    "integer",
    "number",
    "quantity",
    "int-or-string",
    "any",
]
ListType: TypeAlias = Literal["", "atomic", "set", "map"]
MapType: TypeAlias = Literal["", "atomic", "granular"]

# Values that are a schema or something else. Structural schemas have no lists of schemas for items.
_SCHEMAS_OR: Final[Mapping[str, type | None]] = {
    f"{messages.SCHEMA}OrArray": None,
    f"{messages.SCHEMA}OrBool": bool,
    f"{messages.SCHEMA}OrStringArray": list,
}

_SCALARS: Final[Mapping[str, type | None]] = {"string": str, "boolean": bool}
_GO_SCALARS: Final = {
    "string": "string",
    "boolean": "bool",
    "integer": "int64",
    "number": "float64",
    "quantity": "resource.Quantity",
    "int-or-string": "intstr.IntOrString",
    "any": "v1.JSON",
}


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node of the data: a definition, or a field of one."""

    type: str = ""
    ref: str = ""
    format: str = ""
    fields: dict[str, Node] | None = None
    required: tuple[str, ...] = ()
    items: Node | None = None
    values: Node | None = None
    enum: tuple[str, ...] = ()
    preserve: bool = False
    gvk: tuple[tuple[str, str, str], ...] = ()
    list_type: ListType = msgspec.field(default="", name="list-type")
    list_map_keys: tuple[str, ...] = msgspec.field(default=(), name="list-map-keys")
    map_type: MapType = msgspec.field(default="", name="map-type")
    patch_strategy: str = msgspec.field(default="", name="patch-strategy")
    patch_merge_key: str = msgspec.field(default="", name="patch-merge-key")


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Structure:
    """The structure of one value of an object. It is shared, and must not be modified."""

    shape: Shape
    go_type: str
    """The name of the type in error messages of the API server, e.g. ``v1.PodSpec``."""
    definition: str = ""
    """The name of its own definition, if it has one, e.g. ``io.k8s.api.core.v1.PodSpec``."""
    exact: type | None = None
    """The Python type all values of which are valid; absent if values need a closer look."""
    format: str = ""
    fields: dict[str, Structure] = dataclasses.field(default_factory=dict)
    items: Structure | None = None
    """The items of the array, or the values of the map."""
    omitted: frozenset[str] = frozenset()
    """The fields whose empty values are the same as absent ones: no pointers in Go, and omitted from JSON."""
    required: tuple[str, ...] = ()
    enum: tuple[str, ...] = ()
    list_type: ListType = ""
    map_keys: tuple[str, ...] = ()
    """The fields that identify the items of lists of the type "map"."""
    map_type: MapType = ""
    patch_strategies: tuple[str, ...] = ()
    merge_key: str = ""
    """The field that identifies the items in strategic merge patches."""


_COMPILED: Final[dict[str, Structure]] = {}
_UNFINISHED: Final[dict[str, Structure]] = {}
"""Those that are compiled now. Clusters in other threads must not see them before all their fields are there."""
_COMPILING: Final = threading.RLock()


def of_definition(name: str) -> Structure:
    """Return the structure of a definition by its full name; raise `KeyError` if there is none.

    Each definition is compiled once, so that definitions can contain each other.
    """
    found = _COMPILED.get(name)
    if found is None:
        with _COMPILING:
            found = _COMPILED.get(name) or _UNFINISHED.get(name) or _define(name)
    return found


def _define(name: str) -> Structure:
    is_outermost, node = not _UNFINISHED, read_node(name)
    found = _UNFINISHED[name] = _make_shape(node, name)
    try:
        _fill(found, node)
        if name in _SCHEMAS_OR:
            found.exact, found.items = _SCHEMAS_OR[name], of_definition(messages.SCHEMA)
        if is_outermost:
            _COMPILED.update(_UNFINISHED)
    finally:
        if is_outermost:
            _UNFINISHED.clear()
    return found


def read_node(name: str) -> Node:
    """Return a definition of the data; raise `KeyError` if there is none."""
    return msgspec.json.decode(_definitions()[name], type=Node)


def is_defined(name: str) -> bool:
    """Whether there is a definition of this name."""
    return name in _definitions()


@functools.cache
def read_descriptions() -> Mapping[str, msgspec.Raw]:
    """Return the encoded descriptions of all definitions: each is its text, and the texts of its fields."""
    return _load("descriptions")


@functools.cache
def _definitions() -> Mapping[str, msgspec.Raw]:
    return _load("structures")


def _load(name: str) -> Mapping[str, msgspec.Raw]:
    packed = importlib.resources.files(__package__).joinpath(f"data/{name}.json.gz").read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=dict[str, msgspec.Raw])


def _compile(node: Node) -> Structure:
    if node.ref:
        shared = of_definition(node.ref)
        is_plain = not (node.patch_strategy or node.map_type or node.list_type or node.patch_merge_key)
        return shared if is_plain else dataclasses.replace(shared, **_merging(node, shared))
    made = _make_shape(node, "")
    _fill(made, node)
    return made


def _fill(target: Structure, node: Node) -> None:
    for name, sub in (node.fields or {}).items():
        target.fields[name] = _compile(sub)
    inner = node.items or node.values
    if inner is not None:
        target.items = _compile(inner)
        prefix = "map[string]" if target.shape == "map" else "[]"
        target.go_type = prefix + target.items.go_type


def _make_shape(node: Node, name: str) -> Structure:
    shape = _shape_of(node)
    return Structure(
        shape=shape,
        go_type=_go_type(node, shape, name),
        definition=name,
        exact=_SCALARS.get(shape) if not node.format else None,
        format=node.format,
        omitted=frozenset(messages.find_omitted(name)),
        required=node.required,
        enum=node.enum,
        list_type=node.list_type,
        map_keys=node.list_map_keys,
        map_type=node.map_type,
        patch_strategies=tuple(node.patch_strategy.split(",")) if node.patch_strategy else (),
        merge_key=node.patch_merge_key,
    )


def _merging(node: Node, shared: Structure) -> dict[str, Any]:
    """The merge strategy of one use of a definition; the rest is shared with the definition."""
    made = _make_shape(node, "")
    return {
        "list_type": made.list_type or shared.list_type,
        "map_keys": made.map_keys or shared.map_keys,
        "map_type": made.map_type or shared.map_type,
        "merge_key": made.merge_key or shared.merge_key,
        "patch_strategies": made.patch_strategies or shared.patch_strategies,
    }


def _shape_of(node: Node) -> Shape:
    match node.type:
        case "object" if node.preserve:
            return "any"
        case "object" if node.values is not None:
            return "map"
        case "object" | "array" | "string" | "boolean" | "integer" | "number" | "quantity" | "int-or-string" as same:
            return same
    return "any"


def _go_type(node: Node, shape: Shape, name: str) -> str:
    """Return the name of the type in Go: the last part of the package and the name, e.g. ``v1.PodSpec``."""
    if name:
        return ".".join(name.split(".")[-2:])
    if shape == "integer":
        return node.format or "int64"
    return _GO_SCALARS.get(shape, shape)


# The validation of objects of built-in kinds: absent required fields, unknown values of enums.
#
# The server has such rules in code, kind by kind. Here they come from the published schemas, except for the status,
# which controllers write. Numbers are never required, even if the schemas say so: an absent one is a zero.

# The schemas require these fields, but the server accepts them empty or absent.
_TOLERATED: Final = frozenset(
    {
        ("v1.CSINodeSpec", "drivers"),
        ("v1.ControllerRevision", "data"),
        ("v1.EndpointSlice", "endpoints"),
        ("v1.Event", "involvedObject"),
        ("v1.Event", "metadata"),
        ("v1.HTTPHeader", "value"),
        ("v1.LimitRangeSpec", "limits"),
        ("v1.Sysctl", "value"),
        ("v1.TokenRequestSpec", "audiences"),
    }
)
_REASONS: Final = {
    ("v1.PolicyRule", "verbs"): "verbs must contain at least one value",
}
# The absent objects whose inner required fields the server reports instead.
_INSIDE: Final = {"v1.JobTemplateSpec": "spec.template.spec.containers", "v1.PodTemplateSpec": "spec.containers"}

_LEFT_OUT: Final = frozenset({"metadata", "status"})
_REQUIRABLE: Final = frozenset({"object", "array", "string", "int-or-string", "quantity"})


def validate(obj: dict[str, Any], structure: Structure) -> Iterator[FieldError]:
    """Yield all errors in an object that has been pruned already."""
    yield from _validate_fields(obj, structure, "", _LEFT_OUT)
    spec = structure.fields.get("spec")
    if spec is not None and "spec" not in obj and "spec" not in structure.required:
        yield from _validate_fields({}, spec, "spec.")


def _validate_fields(
    value: dict[str, Any],
    structure: Structure,
    path: str,
    left_out: frozenset[str] = frozenset(),
) -> Iterator[FieldError]:
    for name in structure.required:
        if not value.get(name) and name not in left_out:
            yield from _miss(structure, name, value, path)
    fields = structure.fields
    for name, item in value.items():
        kind = type(item)
        if kind is dict or kind is list:
            if name not in left_out:
                yield from _validate_contents(item, fields[name], f"{path}{name}")
        elif kind is str:
            allowed = fields[name].enum
            if allowed and item and item not in allowed:
                yield unsupported_value(f"{path}{name}", item, allowed)


def _validate_contents(value: Any, structure: Structure, path: str) -> Iterator[FieldError]:
    if structure.shape == "object":
        yield from _validate_fields(value, structure, f"{path}.")
    elif structure.items is not None and structure.items.shape in ("object", "array", "map"):
        items = value.items() if structure.shape == "map" else enumerate(value)
        for key, item in items:
            yield from _validate_contents(item, structure.items, f"{path}[{key}]")


def _miss(structure: Structure, name: str, value: dict[str, Any], path: str) -> Iterator[FieldError]:
    known = structure.go_type, name
    missed = structure.fields[name]
    if known in _TOLERATED or missed.shape not in _REQUIRABLE or value.get(name) == 0:
        return
    if inside := _INSIDE.get(missed.go_type):
        yield required(f"{path}{name}.{inside}")
    elif missed.shape != "object" or not missed.required:
        if not (missed.shape == "object" and value.get(name) == {}):
            yield required(f"{path}{name}", _REASONS.get(known, ""))
    elif name not in value:
        yield from _validate_fields({}, missed, f"{path}{name}.")


# The metadata of objects, see `ObjectMeta` of ``meta/v1``: the fields that clients may set.

DEFINITION: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
"""The name of the definition with the types."""

KNOWN_METADATA: Final = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "managedFields",
    }
)
"""The fields of metadata; the former link to the object is not among them."""
