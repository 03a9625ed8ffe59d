"""
The head of a new state: its metadata as the client wants them, with all that a client may not decide on.

The rules are those of the API conventions ("Metadata") and of "API Concepts" ("Generated values").
"""

from __future__ import annotations

from typing import Any, Final

from kopf_cluster import statuses
from kopf_cluster.kinds import objects, pruning, structures
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.structures import DEFINITION
from kopf_cluster.writes.parts import copy_field

# What only the server decides: the values are taken from the previous state whatever the client says.
_SERVER_FIELDS: Final = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")

_ANY_VERSION: Final = "0"
"""The resource version that is as good as none: for the storage of the API server, it is a number, and none is zero."""


def compose(kind: Kind, body: Obj, metadata: Obj) -> Obj:
    """Put an object together of its settled metadata and all the rest."""
    rest = {key: value for key, value in body.items() if key not in objects.HEAD_FIELDS}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest}


def begin_metadata(kind: Kind, namespace: str, raw: Any) -> Obj:
    """Give the metadata of an object to be created, without what only the server sets; or refuse wrong ones."""
    metadata = _read_metadata(kind, raw)
    if metadata.get("resourceVersion", _ANY_VERSION) != _ANY_VERSION:
        raise statuses.unknown_error("resourceVersion should not be set on objects to be created")
    if kind.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            raise statuses.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
    else:
        metadata.pop("namespace", None)
    for field in (*_SERVER_FIELDS, "resourceVersion"):
        metadata.pop(field, None)
    return metadata


def update_metadata(kind: Kind, old: Obj, new: Obj, need_version: bool) -> Obj:
    """Take the client's metadata with all that it may not decide on, or refuse a conflict."""
    known, name = old["metadata"], old["metadata"]["name"]
    if new.get("apiVersion", kind.api_version) != kind.api_version or new.get("kind", kind.kind) != kind.kind:
        raise statuses.bad_request(
            f"the API version in the data ({new.get('apiVersion')}) and the kind ({new.get('kind')}) do not match "
            f"the expected API version ({kind.api_version}) and the kind ({kind.kind})"
        )
    metadata = _read_metadata(kind, new.get("metadata"))
    if metadata.setdefault("uid", known["uid"]) != known["uid"]:
        raise statuses.conflict(
            kind,
            name,
            f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {known['uid']}",
        )
    if metadata.get("resourceVersion") == _ANY_VERSION:
        del metadata["resourceVersion"]
    if need_version and "resourceVersion" not in metadata:
        text = "Invalid value: 0x0: must be specified for an update"
        error = statuses.FieldError("metadata.resourceVersion", "FieldValueInvalid", text)
        raise statuses.invalid(kind, name, [error])
    if metadata.setdefault("resourceVersion", known["resourceVersion"]) != known["resourceVersion"]:
        raise statuses.modified(kind, name)
    for field in ("name", "namespace"):
        if metadata.setdefault(field, known.get(field)) != known.get(field):
            raise statuses.bad_request(
                f"the {field} of the object ({metadata[field]}) does not match "
                f"the {field} on the URL ({known.get(field) or ''})"
            )
    for field in _SERVER_FIELDS:
        copy_field(known, metadata, field)
    return {field: value for field, value in metadata.items() if value is not None}


def _read_metadata(kind: Kind, raw: Any) -> Obj:
    try:
        return objects.settle_metadata(raw)
    except ValueError as error:
        found = _find_mistyped(kind, raw)
        why, conversion = (str(error), "") if found is None else (str(found), found.conversion)
        raise statuses.Undecodable(kind.kind, kind.version, why, conversion) from None


def _find_mistyped(kind: Kind, raw: Any) -> pruning.MistypedError | None:
    """Find what the API server would find mistyped in the metadata; those of custom kinds, it decodes alone."""
    try:
        if kind.definition:
            pruning.prune({"metadata": raw}, structures.of_definition(kind.definition))
        else:
            pruning.prune(raw, structures.of_definition(DEFINITION))
    except pruning.MistypedError as error:
        return error
    return None


# The token of the service account in new pods: a volume, and where it is mounted.
#
# See "Bound service account token volume mechanism" of the Kubernetes documentation.

MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
PREFIX: Final = "kube-api-access-"
_MODE: Final = 0o644
_LIFETIME: Final = 3607  # seconds; as long as the real one asks for


def mount_token(spec: Obj, account: Obj, suffix: str) -> None:
    """Add the volume to a pod and its containers, in place, unless the pod or the account declines."""
    wanted = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    containers = [
        container
        for container in spec.get("initContainers", []) + spec.get("containers", [])
        if all(mount.get("mountPath") != MOUNT_PATH for mount in container.get("volumeMounts", ()))
    ]
    if not wanted or not containers:
        return
    known = [volume["name"] for volume in spec.get("volumes", ()) if volume.get("name", "").startswith(PREFIX)]
    name = known[0] if known else f"{PREFIX}{suffix}"  # those of copied pods go on to be used
    for container in containers:
        mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
        container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
    if known:
        return
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    spec["volumes"] = [
        *spec.get("volumes", ()),
        {
            "name": name,
            "projected": {
                "defaultMode": _MODE,
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": _LIFETIME, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [namespace]}},
                ],
            },
        },
    ]
