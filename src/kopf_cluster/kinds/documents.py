"""
OpenAPI documents of the built-in kinds: the schemas for clients, with descriptions, list types, and merge keys.

``kubectl explain`` shows them; ``kubectl apply`` takes from them how to merge lists. They are made on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kopf_cluster.kinds import structures
from kopf_cluster.kinds.structures import Node

Obj: TypeAlias = dict[str, Any]
Dialect: TypeAlias = Literal["v2", "v3"]

_PREFIXES: Final = {"v2": "#/definitions/", "v3": "#/components/schemas/"}
_SPECIAL: Final[dict[tuple[str, Dialect], Obj]] = {
    ("quantity", "v2"): {"type": "string"},
    ("quantity", "v3"): {"oneOf": [{"type": "string"}, {"type": "number"}]},
    ("int-or-string", "v2"): {"type": "string", "format": "int-or-string"},
    ("int-or-string", "v3"): {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    ("any", "v2"): {},
    ("any", "v3"): {},
}


def describe(definitions: Iterable[str], dialect: Dialect) -> Obj:
    """Return the schemas of the definitions, and of all definitions that they refer to, by their full names.

    They are for ``definitions`` in OpenAPI v2, and for ``components.schemas`` in v3.
    """
    made: Obj = {}
    pending = list(definitions)
    while pending:
        name = pending.pop()
        if name not in made:
            node = structures.read_node(name)
            made[name] = _definition(name, node, dialect)
            pending.extend(_references(node))
    return dict(sorted(made.items()))


def _definition(name: str, node: Node, dialect: Dialect) -> Obj:
    text, of_fields = msgspec.json.decode(structures.read_descriptions()[name], type=tuple[str, dict[str, str]])
    schema = _schema(node, dialect)
    for field, description in of_fields.items():
        schema["properties"][field]["description"] = description
    if text:
        schema["description"] = text
    if node.gvk:
        schema["x-kubernetes-group-version-kind"] = [
            {"group": group, "version": version, "kind": kind} for group, version, kind in node.gvk
        ]
    return schema


def _schema(node: Node, dialect: Dialect) -> Obj:
    schema: Obj = (
        refer(node.ref, dialect) if node.ref else dict(_SPECIAL.get((node.type, dialect), {"type": node.type}))
    )
    if node.format:
        schema["format"] = node.format
    if node.enum:
        schema["enum"] = list(node.enum)
    if node.fields is not None:
        schema["properties"] = {name: _schema(sub, dialect) for name, sub in node.fields.items()}
    if node.required:
        schema["required"] = list(node.required)
    if node.items is not None:
        schema["items"] = _schema(node.items, dialect)
    if node.values is not None:
        schema["additionalProperties"] = _schema(node.values, dialect)
    extensions = {
        "list-type": node.list_type,
        "list-map-keys": list(node.list_map_keys),
        "map-type": node.map_type,
        "patch-strategy": node.patch_strategy,
        "patch-merge-key": node.patch_merge_key,
    }
    schema.update((f"x-kubernetes-{word}", value) for word, value in extensions.items() if value)
    return schema


def refer(name: str, dialect: Dialect) -> Obj:
    """Return a schema that refers to a definition; v3 ignores siblings of `$ref`, so it needs a detour."""
    reference = {"$ref": _PREFIXES[dialect] + name}
    return reference if dialect == "v2" else {"allOf": [reference]}


def _references(node: Node) -> Iterator[str]:
    if node.ref:
        yield node.ref
    for sub in (*(node.fields or {}).values(), node.items, node.values):
        if sub is not None:
            yield from _references(sub)
