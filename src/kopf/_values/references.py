"""
References to objects, as in Kubernetes events and in ``metadata.ownerReferences``.

A reference has only the known fields. Objects can lack a namespace (if cluster-scoped), or an API version and a kind
(items of listings), and the API accepts no nulls instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypedDict, cast

import msgspec

from kopf._values.bodies import Body
from kopf._values.objects import KubeObject


class ObjectReference(TypedDict, total=False):
    """A reference to any object: ``ObjectReference`` of the core/v1 API."""

    apiVersion: str
    """The group and the version, e.g. ``apps/v1``."""
    kind: str
    """The kind, e.g. ``Deployment``."""
    namespace: str
    """The namespace; absent for cluster-scoped objects."""
    name: str
    """The name of the object."""
    uid: str
    """The identity of the object: another object of the same name has another one."""


class OwnerReference(TypedDict, total=False):
    """A reference to an owner of an object: ``OwnerReference`` of the meta/v1 API."""

    controller: bool
    """Whether the owner manages the object; one owner at most."""
    blockOwnerDeletion: bool
    """Whether the owner stays until the object is gone, if the deletion is in the foreground."""
    apiVersion: str
    """The group and the version of the owner, e.g. ``apps/v1``."""
    kind: str
    """The kind of the owner."""
    name: str
    """The name of the owner, in the namespace of the object unless cluster-scoped."""
    uid: str
    """The identity of the owner."""


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
    Build a reference to the object, e.g. for events about it.

    :param body: the object, e.g. ``body`` of a handler. Fields that it lacks are absent in the reference, too.
    """
    if isinstance(body, Body):
        body = body.object
    if isinstance(body, KubeObject):  # without decoding: each log message has a reference
        head = body.head
        fields = [body.api_version, body.kind, head.name, head.uid, head.namespace]
    else:
        meta: Mapping[str, Any] = body.get("metadata") or {}
        # The models of the official client have their own names of fields when converted to dicts.
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
    Build a reference to the object as an owner of other objects. When the owner is deleted, these are deleted, too.

    See https://kubernetes.io/docs/concepts/architecture/garbage-collection/

    :param body: the owner, e.g. ``body`` of a handler.
    :param controller: whether the owner is the managing controller, of which an object can have only one; ``None``
        leaves the field out.
    :param block_owner_deletion: whether a foreground deletion of the owner waits for the child; ``None`` leaves the
        field out.
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
    Get the UIDs of the owners of these kinds (pairs of a group and a kind), each once.

    If the object cannot be decoded, return ``unreadable``.
    """
    try:
        references = _decode_owned(obj.raw).metadata.ownerReferences or ()
    except ValueError:
        return unreadable
    owners = (item.uid for item in references if (item.apiVersion.rpartition("/")[0], item.kind) in kinds)
    return tuple(dict.fromkeys(uid for uid in owners if uid))
