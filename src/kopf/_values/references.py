"""
References to objects: what the Kubernetes API puts into events and into ``metadata.ownerReferences``.

Only what is known is put into a reference: objects can lack a namespace (when cluster-scoped), or
an API version and a kind (in the items of listings), and the API takes no nulls in place of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypedDict, cast

import msgspec

from kopf._values.bodies import Body
from kopf._values.objects import KubeObject


class ObjectReference(TypedDict, total=False):
    """A reference to any object; see ``ObjectReference`` of the core/v1 API."""

    apiVersion: str
    kind: str
    namespace: str
    name: str
    uid: str


class OwnerReference(TypedDict, total=False):
    """A reference to an owner of an object; see ``OwnerReference`` of the meta/v1 API."""

    controller: bool
    blockOwnerDeletion: bool
    apiVersion: str
    kind: str
    name: str
    uid: str


class _Owner(msgspec.Struct):
    apiVersion: str = ""
    kind: str = ""
    uid: str = ""


class _OwnedMetadata(msgspec.Struct):
    ownerReferences: list[_Owner] | None = None


class _Owned(msgspec.Struct):
    metadata: _OwnedMetadata


_decode_owned = msgspec.json.Decoder(_Owned).decode


def build_object_reference(body: Mapping[str, Any]) -> ObjectReference:
    """
    Build a reference to the object, e.g. for the events about it.

    The fields that the object does not have are absent in the reference, too.
    """
    if isinstance(body, Body):
        body = body.object
    if isinstance(body, KubeObject):  # with nothing decoded: references are built for all logged messages
        head = body.head
        fields = [body.api_version, body.kind, head.name, head.uid, head.namespace]
    else:
        meta: Mapping[str, Any] = body.get("metadata") or {}
        # The models of the official clients have names of their own when they are converted to dicts.
        api_version = body.get("apiVersion") or body.get("api_version")
        fields = [api_version, body.get("kind"), meta.get("name"), meta.get("uid"), meta.get("namespace")]
    known = zip(("apiVersion", "kind", "name", "uid", "namespace"), fields, strict=True)
    return cast(ObjectReference, {key: value for key, value in known if value})


def build_owner_reference(
    body: Mapping[str, Any],
    *,
    controller: bool | None = True,
    block_owner_deletion: bool | None = True,
) -> OwnerReference:
    """
    Build a reference to the object as the owner of other objects: they are deleted when the owner is.

    :param controller: whether the owner is also the managing controller; an object can have only one such.
    :param block_owner_deletion: whether the owner stays until this child is gone in foreground deletions.

    Both flags are absent if ``None``. See https://kubernetes.io/docs/concepts/architecture/garbage-collection/
    """
    meta: Mapping[str, Any] = body.get("metadata") or {}
    fields = {
        "controller": controller,
        "blockOwnerDeletion": block_owner_deletion,
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "name": meta.get("name"),
        "uid": meta.get("uid"),
    }
    return cast(OwnerReference, {key: value for key, value in fields.items() if value or value is False})


def list_owner_uids(
    obj: KubeObject, kinds: Collection[tuple[str, str | None]], *, unreadable: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """
    Get the uids of those who own the object and are of these kinds (with their groups), each once.

    If the object cannot be decoded, it is what is given for ``unreadable``.
    """
    try:
        references = _decode_owned(obj.raw).metadata.ownerReferences or ()
    except ValueError:
        return unreadable
    owners = (item.uid for item in references if (item.apiVersion.rpartition("/")[0], item.kind) in kinds)
    return tuple(dict.fromkeys(uid for uid in owners if uid))
