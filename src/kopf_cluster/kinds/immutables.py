"""
Immutable fields of built-in kinds; the API server has these rules in code.

The sources are the descriptions of the fields in the API reference, and the messages of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster import codec
from kopf_cluster.kinds import certificates
from kopf_cluster.statuses import FieldError, forbidden_value, invalid_value

Obj: TypeAlias = dict[str, Any]

_TEXT: Final = "field is immutable"
_FIELDS: Final = {
    "daemonsets.apps": ("spec.selector",),
    "deployments.apps": ("spec.selector",),
    "replicasets.apps": ("spec.selector",),
    "jobs.batch": ("spec.selector", "spec.completionMode", "spec.template"),
    "controllerrevisions.apps": ("data",),
    "storageclasses.storage.k8s.io": ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
    "priorityclasses.scheduling.k8s.io": ("value", "preemptionPolicy"),
    "ingressclasses.networking.k8s.io": ("spec.controller",),
    "endpointslices.discovery.k8s.io": ("addressType",),
    "runtimeclasses.node.k8s.io": ("handler",),
}
_STATEFUL: Final = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)
_STATEFUL_TEXT: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_POD_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)
_CLAIM_TEXT: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"
)
_MUTABLE_IN_PODS: Final = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")


def validate(place: str, new: Obj, old: Obj) -> Iterator[FieldError]:
    """Yield all forbidden changes in the bucket, or in its subresource (``pods/resize``)."""
    for path in _FIELDS.get(place, ()):
        value, before = (codec.dig(obj, *path.split(".")) for obj in (new, old))
        if value != before and (before is not None or place != "endpointslices.discovery.k8s.io"):
            yield invalid_value(path, value, _TEXT)
    if place in _RULES:
        yield from _RULES[place](new, old)


def _validate_role_reference(new: Obj, old: Obj) -> Iterator[FieldError]:
    if new.get("roleRef") != old.get("roleRef"):
        yield invalid_value("roleRef", new.get("roleRef"), "cannot change roleRef")


def _validate_stateful_set(new: Obj, old: Obj) -> Iterator[FieldError]:
    if _rest(new, _STATEFUL) != _rest(old, _STATEFUL):
        yield forbidden_value("spec", _STATEFUL_TEXT)


def _rest(obj: Obj, without: frozenset[str]) -> Obj:
    return {name: value for name, value in (obj.get("spec") or {}).items() if name not in without}


def _validate_service(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Refuse a new address of a service, unless it has no address any more."""
    spec, known = new.get("spec") or {}, old.get("spec") or {}
    address, before = spec.get("clusterIP"), known.get("clusterIP")
    if before and address != before and "ExternalName" not in (spec.get("type"), known.get("type")):
        yield invalid_value("spec.clusterIPs[0]", spec.get("clusterIPs") or [address], "may not change once set")


def _validate_pod(new: Obj, old: Obj) -> Iterator[FieldError]:
    if len(codec.dig_objects(new, "spec", "containers")) != len(codec.dig_objects(old, "spec", "containers")):
        yield forbidden_value("spec.containers", "pod updates may not add or remove containers")
    elif _fixed_part(new) != _fixed_part(old):
        yield forbidden_value("spec", _POD_TEXT + _show_difference(_fixed_part(old), _fixed_part(new)))


def _validate_ephemeral_containers(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Refuse changes and removals of existing ephemeral containers."""
    path, left = (
        "spec.ephemeralContainers",
        {item.get("name"): item for item in codec.dig_objects(new, "spec", "ephemeralContainers")},
    )
    for before in codec.dig_objects(old, "spec", "ephemeralContainers"):
        name = before.get("name")
        if name not in left:
            yield forbidden_value(path, f'existing ephemeral containers "{name}" may not be removed\n')
        elif left[name] != before:
            difference = _show_difference(before, left[name])
            yield forbidden_value(path, f'existing ephemeral containers "{name}" may not be changed\n{difference}')


def _fixed_part(pod: Obj) -> Obj:
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if name not in _MUTABLE_IN_PODS}
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [
                {name: value for name, value in item.items() if name != "image"}
                for item in codec.dig_objects(pod, "spec", field)
            ]
    return spec


def _validate_claim(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Refuse changes, except for the size of a bound claim, and the first choice of the volume and the class."""
    spec, known = new.get("spec") or {}, old.get("spec") or {}
    free = {"volumeAttributesClassName", *({"volumeName", "storageClassName"} - known.keys())}
    if (new.get("status") or {}).get("phase") == "Bound":
        spec, known = _without_size(spec), _without_size(known)
    spec, known = ({name: value for name, value in each.items() if name not in free} for each in (spec, known))
    if spec != known:
        yield forbidden_value("spec", _CLAIM_TEXT + _show_difference(known, spec))


def _without_size(spec: Obj) -> Obj:
    resources = spec.get("resources") or {}
    requests = {name: value for name, value in (resources.get("requests") or {}).items() if name != "storage"}
    return {**spec, "resources": {**resources, "requests": requests}}


def _show_difference(old: Obj, new: Obj) -> str:
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return "".join(
        f"{sign} {name}: {codec.encode(source[name]).decode()}\n"
        for name in names
        for sign, source in (("-", old), ("+", new))
        if name in source
    )


_RULES: Final[dict[str, Callable[[Obj, Obj], Iterator[FieldError]]]] = {
    "certificatesigningrequests.certificates.k8s.io/approval": certificates.validate_approval,
    "certificatesigningrequests.certificates.k8s.io/status": certificates.validate_status,
    "clusterrolebindings.rbac.authorization.k8s.io": _validate_role_reference,
    "persistentvolumeclaims": _validate_claim,
    "pods": _validate_pod,
    "pods/ephemeralcontainers": _validate_ephemeral_containers,
    "rolebindings.rbac.authorization.k8s.io": _validate_role_reference,
    "services": _validate_service,
    "statefulsets.apps": _validate_stateful_set,
}
