"""Pruning of custom resources: fields that their schemas do not declare are removed before the objects are stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kopf_cluster.kinds.schemas import Schema
from kopf_cluster.kinds.structures import KNOWN_METADATA


def prune(value: Any, schema: Schema, path: str, *, root: bool = False) -> Iterator[str]:
    """Remove unknown fields in place, and yield their paths."""
    if isinstance(value, dict):
        known = schema.properties
        for name in list(value):
            sub_path = f"{path}.{name}" if path else name
            if (root or schema.embedded) and name in ("apiVersion", "kind", "metadata"):
                continue
            if name in known:
                yield from prune(value[name], known[name], sub_path)
            elif schema.additional is not None:
                yield from prune(value[name], schema.additional, sub_path)
            elif not schema.preserves and not schema.additional_anything:
                del value[name]
                yield sub_path
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            yield from prune(item, schema.items, f"{path}[{index}]")


def prune_embedded(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Remove unknown fields from the metadata of embedded objects in place, and yield their paths."""
    if not schema.embeds:
        return
    if isinstance(value, dict):
        metadata = value.get("metadata")
        if schema.embedded and isinstance(metadata, dict):
            for name in [name for name in metadata if name not in KNOWN_METADATA]:
                del metadata[name]
                yield f"{path}.metadata.{name}"
        for name, item in value.items():
            sub = schema.properties.get(name, schema.additional)
            if sub is not None:
                yield from prune_embedded(item, sub, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            yield from prune_embedded(item, schema.items, f"{path}[{index}]")
