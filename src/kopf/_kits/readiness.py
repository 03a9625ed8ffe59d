"""
Readiness: whether an object has become what its specification says, according to its status.

The rules are the ones of ``kstatus``, see "Status" in https://github.com/kubernetes-sigs/cli-utils: some kinds have
their own rules; all others, including custom resources, are judged by their conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kopf._handlers.handler_errors import TemporaryError

Obj = Mapping[str, Any]

_RECHECKING_DELAY = 10.0
"""The delay of the next check, in seconds, for handlers that do not own the objects."""


class NotReadyError(TemporaryError):
    """Some objects are not ready yet. Kopf calls the handler again when they are."""


def require_ready(*objs: Obj | None) -> None:
    """
    Continue only if all these objects are ready, see :func:`is_ready`; otherwise, retry the handler later.

    In reconcilers, it ends the call without a failure: Kopf calls them again when the child changes. In other
    handlers, it is a temporary error: Kopf retries them in 10 seconds, or when an owned object changes.

    :raises NotReadyError: if any of the objects is not ready.
    """
    missing = [_name(obj) for obj in objs if not is_ready(obj)]
    if missing:
        raise NotReadyError(f"Not ready yet: {', '.join(missing)}.", delay=_RECHECKING_DELAY)


def is_ready(obj: Obj | None) -> bool:
    """
    Tell whether the object has reached its desired state, as far as that is known. Absent objects are not ready.

    Deployments and other sets of pods are ready if all replicas are of the newest template and available. Jobs: if they
    have succeeded. Pods: if they are ready or have succeeded. Volume claims: if they are bound. Services: if they have
    their addresses. All other objects are ready if their condition ``Ready`` or ``Available``, if any, is true; but not
    while they are ``Reconciling`` or ``Stalled``.

    Objects are not ready while they are being deleted, or until their controller has seen the newest specification.
    """
    if not obj:
        return False
    meta, status = obj.get("metadata") or {}, obj.get("status")
    if not isinstance(status, Mapping):  # custom resources can have anything there
        status = {}
    if meta.get("deletionTimestamp"):
        return False
    observed, generation = str(status.get("observedGeneration")), meta.get("generation")  # it is a text in some kinds
    if observed.isdecimal() and generation is not None and int(observed) < generation:
        return False
    group, _, _ = str(obj.get("apiVersion") or "").rpartition("/")
    rule = _RULES.get((group, str(obj.get("kind"))), _is_generally_ready)
    return rule(obj.get("spec") or {}, status)


def _get_conditions(status: Obj) -> dict[str, str]:
    items = status.get("conditions")
    items = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list | tuple) else []
    return {str(item.get("type")): str(item.get("status")) for item in items}


def _is_generally_ready(spec: Obj, status: Obj) -> bool:
    conditions = _get_conditions(status)
    if conditions.get("Stalled") == "True" or conditions.get("Reconciling") == "True":
        return False
    return conditions.get("Ready", conditions.get("Available", "True")) == "True"


def _is_deployment_ready(spec: Obj, status: Obj) -> bool:
    replicas, updated = spec.get("replicas", 1), status.get("updatedReplicas", 0)
    is_rolled_out = updated >= replicas and status.get("replicas", 0) <= updated
    is_available = status.get("availableReplicas", 0) >= updated and _get_conditions(status).get("Available") == "True"
    return status.get("observedGeneration") is not None and is_rolled_out and is_available


def _is_replica_set_ready(spec: Obj, status: Obj) -> bool:
    return _count_ready(spec.get("replicas", 1), status, "fullyLabeledReplicas", "readyReplicas", "availableReplicas")


def _is_stateful_set_ready(spec: Obj, status: Obj) -> bool:
    strategy = spec.get("updateStrategy") or {}
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    is_updated = (
        strategy.get("type") == "OnDelete"
        or (partition and status.get("updatedReplicas", 0) >= spec.get("replicas", 1) - partition)
        or status.get("currentRevision") == status.get("updateRevision")
    )
    return bool(is_updated) and _count_ready(spec.get("replicas", 1), status, "readyReplicas")


def _is_daemon_set_ready(spec: Obj, status: Obj) -> bool:
    return "desiredNumberScheduled" in status and _count_ready(
        status["desiredNumberScheduled"],
        status,
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberReady",
    )


def _count_ready(wanted: int, status: Obj, *fields: str) -> bool:
    return status.get("observedGeneration") is not None and all(status.get(field, 0) >= wanted for field in fields)


def _is_pod_ready(spec: Obj, status: Obj) -> bool:
    return status.get("phase") == "Succeeded" or _get_conditions(status).get("Ready") == "True"


def _is_service_ready(spec: Obj, status: Obj) -> bool:
    if spec.get("type") == "LoadBalancer":
        return bool((status.get("loadBalancer") or {}).get("ingress"))
    return spec.get("type") == "ExternalName" or bool(spec.get("clusterIP"))


_RULES: Mapping[tuple[str, str], Callable[[Obj, Obj], bool]] = {
    ("apps", "Deployment"): _is_deployment_ready,
    ("apps", "ReplicaSet"): _is_replica_set_ready,
    ("apps", "StatefulSet"): _is_stateful_set_ready,
    ("apps", "DaemonSet"): _is_daemon_set_ready,
    ("batch", "Job"): lambda spec, status: _get_conditions(status).get("Complete") == "True",
    ("", "Pod"): _is_pod_ready,
    ("", "Service"): _is_service_ready,
    ("", "PersistentVolumeClaim"): lambda spec, status: status.get("phase") == "Bound",
    ("", "Namespace"): lambda spec, status: status.get("phase") == "Active",
    ("apiextensions.k8s.io", "CustomResourceDefinition"): lambda spec, status: (
        _get_conditions(status).get("Established") == "True"
    ),
}


def _name(obj: Obj | None) -> str:
    meta = (obj or {}).get("metadata") or {}
    return f"{(obj or {}).get('kind') or 'an absent object'} {meta.get('name') or ''}".rstrip()
