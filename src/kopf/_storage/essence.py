"""
The essence of an object: all of it except for system fields, the status, and the annotations of frameworks.

Handlers of changes do not distinguish two states of an object with the same essence.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

from kopf._storage.annotation_names import KNOWN_PREFIXES, list_managed_prefixes
from kopf._values import codec
from kopf._values.bodies import Body, BodyEssence
from kopf._values.fields import FieldPath, FieldSpec, ensure, parse_field, resolve, without

logger = logging.getLogger("kopf.persistence")

_SYSTEM_STANZAS = frozenset({"apiVersion", "kind", "metadata", "status"})
_FAMILY = ".kopf.zalando.org"
"""Operators also use subdomains of Kopf's own prefix."""
_SYSTEM_ANNOTATIONS = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})


def build_essence(body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
    """
    Extract the essence, without deep copies.

    It includes ``extra_fields``, even if they are usually not essential, e.g. ``status`` or ``metadata.finalizers``.
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
    # The outer fields first: otherwise, a part of a field would look like the whole field.
    for path in sorted(map(parse_field, extra_fields or ()), key=len):
        value = resolve(body, path)
        if path and value is not None and resolve(essence, path) is None:
            essence = _include(essence, path, value)
    return cast(BodyEssence, essence)


def _include(essence: dict[str, Any], path: FieldPath, value: Any) -> dict[str, Any]:
    """Add the value without modifying the stanzas that the essence shares with the body."""
    head = path[0]
    if len(path) > 1 and isinstance(essence.get(head), Mapping):
        return {**essence, head: _include(dict(essence[head]), path[1:], value)}
    ensure(essence, path, value)
    return essence


def drop_managed_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Keep only the annotations of users and applications."""
    prefixes = list_managed_prefixes(annotations)
    has_others = prefixes is not KNOWN_PREFIXES
    return {
        name: value
        for name, value in annotations.items()
        if not is_managed(name) and not (has_others and name.rpartition("/")[0] in prefixes)
    }


@functools.lru_cache(maxsize=10_000)  # there are few names on very many objects
def is_managed(name: str) -> bool:
    """Tell if the annotation surely belongs to a framework or a tool, and not to an application."""
    prefix = name.rpartition("/")[0]
    return name in _SYSTEM_ANNOTATIONS or prefix in KNOWN_PREFIXES or prefix.endswith(_FAMILY)


def drop_annotations(essence: BodyEssence, *, prefix: str | None = None, names: Collection[str] = ()) -> BodyEssence:
    """Drop the annotations with the prefix and the named ones. Without any, return the same essence."""
    annotations = essence.get("metadata", {}).get("annotations") or {}
    start = f"{prefix}/" if prefix else None
    unwanted = [name for name in annotations if name in names or (start and name.startswith(start))]
    for name in unwanted:
        essence = cast(BodyEssence, without(essence, ("metadata", "annotations", name)))
    return essence


def drop_field(essence: BodyEssence, path: FieldPath) -> BodyEssence:
    """Drop the field, and its parents that become empty. Without the field, return the same essence."""
    if resolve(essence, path) is None:
        return essence
    return cast(BodyEssence, without(essence, path))


def check_object(stored: object) -> None:
    """Raise :class:`ValueError` if it is not a JSON object."""
    if not isinstance(stored, dict):
        raise ValueError(f"expected an object, got {type(stored).__name__}")


class StoredTexts:
    """Parses the JSON objects that a storage has written, and warns about malformed ones."""

    def __init__(self, warning: str, check: Callable[[Any], None] = check_object) -> None:
        """
        ``warning`` has placeholders for the details, the namespace, the name, and the problem.

        ``check`` raises :class:`ValueError` for malformed values.
        """
        self._warning = warning
        self._check = check
        self._warn = functools.lru_cache(maxsize=1000)(self._warn_anew)  # once, as Kopf reads them again and again

    def parse(self, text: str, body: Body, *details: str) -> Any:
        """Parse the text on this object; return ``None`` if it is malformed."""
        try:
            stored = codec.decode(text)
            self._check(stored)
        except ValueError as e:
            head = body.object.head
            self._warn(head.uid, *details, head.namespace or "", head.name, str(e))
            return None
        return stored

    def _warn_anew(self, uid: str, *details: str) -> None:
        logger.warning(self._warning, *details)


class EssenceCleaner:
    """A base class of all storages: subclasses in existing operators clean essences in place by these methods."""

    @staticmethod
    def remove_annotations(essence: BodyEssence, keys_to_remove: Collection[str]) -> None:
        """Remove the annotations from the essence."""
        annotations = cast("dict[str, str]", essence.get("metadata", {}).get("annotations") or {})
        for name in annotations.keys() & set(keys_to_remove):
            del annotations[name]

    @staticmethod
    def remove_empty_stanzas(essence: BodyEssence) -> None:
        """Remove empty stanzas from the essence, if they mean the same as absent ones."""
        whole = cast("dict[str, Any]", essence)
        metadata = whole.get("metadata", {})
        for parent, key in ((metadata, "labels"), (metadata, "annotations"), (whole, "metadata"), (whole, "status")):
            if not parent.get(key, True):
                del parent[key]
