"""
The essence of an object: what is left without the system fields, the status, and the traces of frameworks.

Two states of an object with the same essence are the same for the change-detecting handlers.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from kopf._storage.annotation_names import KNOWN_PREFIXES, list_managed_prefixes
from kopf._values.bodies import Body, BodyEssence
from kopf._values.fields import FieldPath, FieldSpec, ensure, parse_field, resolve, without

_SYSTEM_STANZAS = frozenset({"apiVersion", "kind", "metadata", "status"})
_FAMILY = ".kopf.zalando.org"
"""Operators put their state under the subdomains of our own prefix, too."""
_SYSTEM_ANNOTATIONS = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})


def build_essence(body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
    """
    Extract the essence; nothing is deep-copied.

    ``extra_fields`` are included even if they are usually not essential, e.g. ``status`` or ``metadata.finalizers``.
    """
    obj = body.object
    essence: dict[str, Any] = {key: obj[key] for key in obj if key not in _SYSTEM_STANZAS}
    meta: dict[str, Any] = {}
    if obj.head.labels:
        meta["labels"] = dict(obj.head.labels)
    if obj.head.annotations and (annotations := drop_managed_annotations(obj.head.annotations)):
        meta["annotations"] = annotations
    if meta:
        essence["metadata"] = meta
    # The outer fields first: with only a part of a field included, the rest of it would seem to be there, too.
    for path in sorted(map(parse_field, extra_fields or ()), key=len):
        value = resolve(body, path)
        if path and value is not None and resolve(essence, path) is None:
            essence = _include(essence, path, value)
    return cast(BodyEssence, essence)


def _include(essence: dict[str, Any], path: FieldPath, value: Any) -> dict[str, Any]:
    """Put the value without modifying the stanzas that are shared with the body."""
    head = path[0]
    if len(path) > 1 and isinstance(essence.get(head), Mapping):
        return {**essence, head: _include(dict(essence[head]), path[1:], value)}
    ensure(essence, path, value)
    return essence


def drop_managed_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Leave only the annotations of users and applications."""
    prefixes = list_managed_prefixes(annotations)
    has_others = prefixes is not KNOWN_PREFIXES
    return {
        name: value
        for name, value in annotations.items()
        if not is_managed(name) and not (has_others and name.rpartition("/")[0] in prefixes)
    }


@functools.lru_cache(maxsize=10_000)  # there are few names on very many objects
def is_managed(name: str) -> bool:
    """Tell if the annotation is of a framework or of a tool for sure, and not of the users' applications."""
    prefix = name.rpartition("/")[0]
    return name in _SYSTEM_ANNOTATIONS or prefix in KNOWN_PREFIXES or prefix.endswith(_FAMILY)


def drop_annotations(essence: BodyEssence, *, prefix: str | None = None, names: Collection[str] = ()) -> BodyEssence:
    """Drop the annotations of the prefix and the named ones; the same essence is returned if there are none."""
    annotations = essence.get("metadata", {}).get("annotations") or {}
    start = f"{prefix}/" if prefix else None
    unwanted = [name for name in annotations if name in names or (start and name.startswith(start))]
    for name in unwanted:
        essence = cast(BodyEssence, without(essence, ("metadata", "annotations", name)))
    return essence


def drop_field(essence: BodyEssence, path: FieldPath) -> BodyEssence:
    """Drop the field, and the parents it leaves empty; the same essence is returned if there is no such field."""
    if resolve(essence, path) is None:
        return essence
    return cast(BodyEssence, without(essence, path))


class EssenceCleaner:
    """A part of all storages: what their descendants in existing operators clean the essences with, in place."""

    @staticmethod
    def remove_annotations(essence: BodyEssence, keys_to_remove: Collection[str]) -> None:
        """Remove the annotations from the essence."""
        annotations = cast("dict[str, str]", essence.get("metadata", {}).get("annotations") or {})
        for name in annotations.keys() & set(keys_to_remove):
            del annotations[name]

    @staticmethod
    def remove_empty_stanzas(essence: BodyEssence) -> None:
        """Remove those stanzas from the essence that are the same when they are empty as when they are absent."""
        whole = cast("dict[str, Any]", essence)
        metadata = whole.get("metadata", {})
        for parent, key in ((metadata, "labels"), (metadata, "annotations"), (whole, "metadata"), (whole, "status")):
            if not parent.get(key, True):
                del parent[key]
