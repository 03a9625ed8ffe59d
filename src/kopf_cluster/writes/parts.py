"""
Which part of an object a write may change: all but the status, only the status, or what another subresource is for.

The rest is taken from the previous state, whatever the client sends: see "Subresources" of the API conventions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kopf_cluster.kinds import certificates
from kopf_cluster.kinds.kind import Kind, Obj

# By which subresources the metadata are never changed; and of which built-in kinds they are not by the status.
_OWN_METADATA: Final = frozenset({"binding", "ephemeralcontainers", "resize"})
_OWN_METADATA_OF_STATUS: Final = frozenset(
    {
        "apiservices.apiregistration.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "flowschemas.flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "resourceclaims.resource.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "volumeattachments.storage.k8s.io",
    }
)
# Of all others, the status brings its metadata with it, for historical reasons; with these exceptions.
_KEPT_BY_STATUS: Final = {"deployments.apps": ("labels",), "pods": ("ownerReferences",)}


def take(kind: Kind, subresource: str, old: Obj, new: Obj) -> Obj:
    """Give the new state with only that taken which the (sub)resource is for; the metadata are settled elsewhere."""
    if not subresource or subresource not in _TAKERS:
        if kind.has_status:
            copy_field(old, new, "status")
        return new
    result = _TAKERS[subresource](kind, old, new)
    result["metadata"] = _take_metadata(kind, subresource, old["metadata"], new.get("metadata"))
    return result


def _take_metadata(kind: Kind, subresource: str, old: Obj, wanted: Any) -> Any:
    """Take the metadata as far as the subresource may change them; in any case, the version that they are based on."""
    if not kind.custom and subresource not in _OWN_METADATA and kind.bucket not in _OWN_METADATA_OF_STATUS:
        if isinstance(wanted, dict):
            wanted = dict(wanted)
            for field in _KEPT_BY_STATUS.get(kind.bucket, ()):
                copy_field(old, wanted, field)
        return wanted
    metadata = dict(old)
    if isinstance(wanted, dict):
        metadata["resourceVersion"] = wanted.get("resourceVersion")
        metadata["uid"] = wanted.get("uid") or metadata["uid"]
        copy_field(wanted, metadata, "managedFields")
    return metadata


def _take_status(kind: Kind, old: Obj, new: Obj) -> Obj:
    result = dict(old)
    copy_field(new, result, "status")
    if kind.bucket == "certificatesigningrequests.certificates.k8s.io" and isinstance(result.get("status"), dict):
        result["status"] = certificates.settle(result["status"], old.get("status") or {}, keep=True)
    return result


def _take_approval(kind: Kind, old: Obj, new: Obj) -> Obj:
    """Only the conditions are taken: whether a certificate is approved or denied."""
    status, wanted = dict(old.get("status") or {}), new.get("status")
    copy_field(wanted if isinstance(wanted, dict) else {}, status, "conditions")
    return {**old, "status": certificates.settle(status, old.get("status") or {})}


def _take_finalizers(kind: Kind, old: Obj, new: Obj) -> Obj:
    """Only the finalizers in the spec are taken: those of namespaces."""
    spec, wanted = dict(old.get("spec") or {}), new.get("spec")
    copy_field(wanted if isinstance(wanted, dict) else {}, spec, "finalizers")
    return {**old, "spec": spec}


def _take_binding(kind: Kind, old: Obj, new: Obj) -> Obj:
    """It is made by the server itself: both the node and the condition are taken."""
    return new


def _take_ephemeral_containers(kind: Kind, old: Obj, new: Obj) -> Obj:
    spec, wanted = dict(old.get("spec") or {}), new.get("spec")
    copy_field(wanted if isinstance(wanted, dict) else {}, spec, "ephemeralContainers")
    return {**old, "spec": spec}


def _take_sizes(kind: Kind, old: Obj, new: Obj) -> Obj:
    """Only the resources of the containers are taken."""
    spec, wanted = dict(old.get("spec") or {}), new.get("spec")
    for field in ("containers", "initContainers"):
        sizes = {item.get("name"): item for item in _dicts(wanted.get(field) if isinstance(wanted, dict) else None)}
        if field in spec:
            spec[field] = [_resize(item, sizes.get(item.get("name"), {})) for item in _dicts(spec[field])]
    return {**old, "spec": spec}


def _resize(container: Obj, wanted: Obj) -> Obj:
    return {**container, **{name: wanted[name] for name in ("resources", "resizePolicy") if name in wanted}}


def _dicts(value: Any) -> list[Obj]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def copy_field(source: Obj, target: Obj, field: str) -> None:
    """Let the field be the same in both; nulls and absent fields are the same thing."""
    if source.get(field) is None:
        target.pop(field, None)
    else:
        target[field] = source[field]


_TAKERS: Final[dict[str, Callable[[Kind, Obj, Obj], Obj]]] = {
    "status": _take_status,
    "approval": _take_approval,
    "binding": _take_binding,
    "finalize": _take_finalizers,
    "ephemeralcontainers": _take_ephemeral_containers,
    "resize": _take_sizes,
}
