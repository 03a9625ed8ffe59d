"""
The metadata of objects: the fields and the types, as in `ObjectMeta` of ``meta/v1``.
"""
from __future__ import annotations

from typing import Any, Final

import msgspec


class OwnerReference(msgspec.Struct):
    apiVersion: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None


class Metadata(msgspec.Struct):
    """The types of the metadata that clients may set; only used to refuse what does not fit."""

    name: str | None = None
    generateName: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None
    generation: int | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    deletionGracePeriodSeconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    ownerReferences: list[OwnerReference] | None = None
    managedFields: list[dict[str, Any]] | None = None


#: The fields that metadata can have; the link is only known to be ignored.
KNOWN_METADATA: Final = frozenset(Metadata.__struct_fields__)
