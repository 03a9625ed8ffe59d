"""
Computed cells of the built-in kinds in the Table output: the values in ``kubectl get`` that are no plain fields.

The functions accept objects with absent or strange fields, and always return something to show.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kopf_cluster import ages, jsonpaths
from kopf_cluster.codec import dig, dig_objects
from kopf_cluster.kinds.kind import Obj

NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"
_UNSET: Final = "<unset>"
_ROLE: Final = "node-role.kubernetes.io/"
_SHOWN: Final = 3  # hosts and endpoints; the others are only counted


def age_of(obj: Obj) -> Any:
    return ages.age(obj["metadata"].get("creationTimestamp"))


def _count(obj: Obj, *names: str) -> int:
    value = dig(obj, *names)
    return value if isinstance(value, int) else 0


def _join(values: Iterable[Any], *, limit: int | None = None, default: str = NONE) -> str:
    texts = [str(value) for value in values]
    more = f" + {len(texts) - limit} more..." if limit is not None and len(texts) > limit else ""
    return (",".join(texts[:limit]) + more) or default


def _show_labels(value: Any) -> str:
    return _join(f"{key}={item}" for key, item in sorted(value.items())) if isinstance(value, dict) else NONE


def _text(*names: str, default: str) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        value = dig(obj, *names)
        return default if value is None else jsonpaths.as_text(value)

    return cell


def _size(*names: str) -> Callable[[Obj], Any]:
    return lambda obj: len(dig_objects(obj, *names))


def _typed(*names: str, of: str, field: str, default: str) -> Callable[[Obj], Any]:
    """Show the field of the first item of this type in a list."""
    return lambda obj: next(
        (item.get(field) or "" for item in dig_objects(obj, *names) if item.get("type") == of), default
    )


# --- Pods and workloads.


def _pod_ready(obj: Obj) -> str:
    statuses = dig_objects(obj, "status", "containerStatuses")
    return f"{sum(bool(item.get('ready')) for item in statuses)}/{len(dig_objects(obj, 'spec', 'containers'))}"


def _pod_status(obj: Obj) -> Any:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for item in dig_objects(obj, "status", "containerStatuses"):
        reason = dig(item, "state", "waiting", "reason") or dig(item, "state", "terminated", "reason")
        if reason:
            return reason
    return dig(obj, "status", "reason") or dig(obj, "status", "phase") or "Unknown"


def _readiness_gates(obj: Obj) -> str:
    gates = [gate.get("conditionType") for gate in dig_objects(obj, "spec", "readinessGates")]
    true = {item.get("type") for item in dig_objects(obj, "status", "conditions") if item.get("status") == "True"}
    return f"{sum(gate in true for gate in gates)}/{len(gates)}" if gates else NONE


def _selector(*names: str) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        selector = dig(obj, *names)
        return _show_labels(selector.get("matchLabels", selector) if isinstance(selector, dict) else None)

    return cell


def _job_completions(obj: Obj) -> str:
    completions, parallelism = dig(obj, "spec", "completions"), _count(obj, "spec", "parallelism")
    wanted = completions if completions is not None else f"1 of {parallelism}" if parallelism > 1 else 1
    return f"{_count(obj, 'status', 'succeeded')}/{wanted}"


def _job_status(obj: Obj) -> str:
    for condition in dig_objects(obj, "status", "conditions"):
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed", "Suspended"):
            return str(condition["type"])
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else "Running"


def _job_duration(obj: Obj) -> str:
    start, end = _time(dig(obj, "status", "startTime")), _time(dig(obj, "status", "completionTime"))
    if start is None:
        return ""
    return ages.human_duration(int(((end or ages.moment()) - start).total_seconds()))


def _time(value: Any) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(value) if isinstance(value, str) else None


def _last_schedule(obj: Obj) -> str:
    last = dig(obj, "status", "lastScheduleTime")
    return ages.age(last) if last else NONE


def _controller(obj: Obj) -> str:
    for owner in dig_objects(obj, "metadata", "ownerReferences"):
        if owner.get("controller"):
            group, slash, _ = str(owner.get("apiVersion", "")).partition("/")
            kind = str(owner.get("kind", "")).lower()
            return f"{kind}.{group}/{owner.get('name')}" if slash else f"{kind}/{owner.get('name')}"
    return NONE


def _pair(*names: str, of: tuple[str, str], default: str = "") -> Callable[[Obj], Any]:
    """Show two fields of an inner object."""

    def cell(obj: Obj) -> Any:
        inner = dig(obj, *names)
        return "/".join(str(inner.get(field)) for field in of) if isinstance(inner, dict) else default

    return cell


def _metrics(obj: Obj) -> str:
    """Show the current and the wanted values; in the version 1, there is only the utilization of CPU."""
    old = dig(obj, "spec", "targetCPUUtilizationPercentage")
    if old is not None:
        return _show_metric("cpu", dig(obj, "status", "currentCPUUtilizationPercentage"), old, "%")
    current = {str(dig(item, "resource", "name")): item for item in dig_objects(obj, "status", "currentMetrics")}
    shown = []
    for metric in dig_objects(obj, "spec", "metrics"):
        source = next((value for value in metric.values() if isinstance(value, dict)), {})
        name = str(dig(source, "name") or dig(source, "metric", "name") or "")
        for field, unit in (("averageUtilization", "%"), ("averageValue", ""), ("value", "")):
            if (wanted := dig(source, "target", field)) is not None:
                shown.append(_show_metric(name, dig(current.get(name, {}), "resource", "current", field), wanted, unit))
                break
    return ", ".join(shown[:2]) + (f" + {len(shown) - 2} more..." if len(shown) > 2 else "") or NONE


def _show_metric(name: str, current: Any, wanted: Any, unit: str) -> str:
    known = _UNKNOWN if current is None else f"{current}{unit}"
    return f"{name}: {known}/{wanted}{unit}"


# --- Services and their addresses.


def _ports(obj: Obj) -> str:
    def show(port: Obj) -> str:
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"

    return _join(show(port) for port in dig_objects(obj, "spec", "ports"))


def _addresses(obj: Obj) -> list[str]:
    return [
        str(item.get("ip") or item.get("hostname") or "")
        for item in dig_objects(obj, "status", "loadBalancer", "ingress")
    ]


def _service_addresses(obj: Obj) -> str:
    external = dig(obj, "spec", "externalIPs") or []
    match dig(obj, "spec", "type"):
        case "ExternalName":
            return str(dig(obj, "spec", "externalName") or NONE)
        case "LoadBalancer":
            return _join([*_addresses(obj), *external], default="<pending>")
    return _join(external)


def _endpoints(obj: Obj) -> str:
    shown = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in dig_objects(obj, "subsets")
        for port in dig_objects(subset, "ports")
        for address in dig_objects(subset, "addresses")
    ]
    return _join(shown, limit=_SHOWN)


# --- Nodes and volumes.


def _node_status(obj: Obj) -> str:
    ready = _typed("status", "conditions", of="Ready", field="status", default=_UNKNOWN)(obj)
    status = {"True": "Ready", _UNKNOWN: "Unknown"}.get(ready, "NotReady")
    return f"{status},SchedulingDisabled" if dig(obj, "spec", "unschedulable") is True else status


def _node_roles(obj: Obj) -> str:
    labels = obj["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)} | {labels.get("kubernetes.io/role")}
    return _join(sorted(filter(None, roles)))


def _access_modes(part: str) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
        modes = dig(obj, part, "accessModes")
        return ",".join(short.get(mode, str(mode)) for mode in modes) if isinstance(modes, list) else ""

    return cell


# --- Roles, quotas, requests, events.


def _subjects(kind: str) -> Callable[[Obj], Any]:
    def show(subject: Obj) -> str:
        name = str(subject.get("name"))
        return f"{subject.get('namespace')}/{name}" if kind == "ServiceAccount" else name

    return lambda obj: _join(
        (show(item) for item in dig_objects(obj, "subjects") if item.get("kind") == kind), default=""
    )


def _quota(*, limits: bool) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        hard, used = dig(obj, "status", "hard") or {}, dig(obj, "status", "used") or {}
        return ", ".join(
            f"{name}: {used.get(name, 0)}/{value}"
            for name, value in sorted(hard.items())
            if name.startswith("limits.") is limits
        )

    return cell


def _request_condition(obj: Obj) -> str:
    kinds = {item.get("type") for item in dig_objects(obj, "status", "conditions")}
    state = next((kind for kind in ("Denied", "Approved") if kind in kinds), "Pending")
    failed = ",Failed" if "Failed" in kinds else ""
    return state + failed + (",Issued" if dig(obj, "status", "certificate") else "")


def _requested_duration(obj: Obj) -> str:
    seconds = dig(obj, "spec", "expirationSeconds")
    return ages.human_duration(seconds) if isinstance(seconds, int) else NONE


def _component_status(obj: Obj) -> str:
    healthy = _typed("conditions", of="Healthy", field="status", default="")(obj)
    return {"True": "Healthy", "False": "Unhealthy"}.get(healthy, "Unknown")


def _param_ref(obj: Obj) -> str:
    ref = dig(obj, "spec", "paramRef")
    if not isinstance(ref, dict):
        return _UNSET
    return f"{ref['namespace']}/{ref.get('name')}" if ref.get("namespace") else f"*/{ref.get('name')}"


def _event_first_seen(obj: Obj) -> str:
    return ages.age(obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime"))


def _event_last_seen(obj: Obj) -> str:
    seen = dig(obj, "series", "lastObservedTime") or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    return ages.age(seen) if seen else _event_first_seen(obj)


def _event_object(obj: Obj) -> str:
    ref = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{str(ref.get('kind', '')).lower()}/{ref.get('name', '')}"


def _event_source(obj: Obj) -> str:
    component = dig(obj, "source", "component") or obj.get("reportingComponent") or obj.get("reportingController")
    return ", ".join(filter(None, (component, dig(obj, "source", "host"))))


CELLS: Final[Mapping[str, Callable[[Obj], Any]]] = {
    "age": age_of,
    "created": lambda obj: obj["metadata"].get("creationTimestamp"),
    "data-count": lambda obj: sum(
        len(value) for field in ("data", "binaryData") if isinstance(value := obj.get(field), dict)
    ),
    "phase": lambda obj: "Terminating" if obj["metadata"].get("deletionTimestamp") else dig(obj, "status", "phase"),
    "webhooks": _size("webhooks"),
    "drivers": _size("spec", "drivers"),
    "validations": _size("spec", "validations"),
    "mutations": _size("spec", "mutations"),
    "param-kind": _pair("spec", "paramKind", of=("apiVersion", "kind"), default=_UNSET),
    "param-ref": _param_ref,
    "pod-ready": _pod_ready,
    "pod-status": _pod_status,
    "pod-restarts": lambda obj: str(
        sum(_count(item, "restartCount") for item in dig_objects(obj, "status", "containerStatuses"))
    ),
    "readiness-gates": _readiness_gates,
    "template-labels": lambda obj: _show_labels(dig(obj, "template", "metadata", "labels")),
    "replicas-ready": lambda obj: f"{_count(obj, 'status', 'readyReplicas')}/{_count(obj, 'spec', 'replicas')}",
    "replicas": _text("spec", "replicas", default="0"),
    "current": _text("status", "replicas", default="0"),
    "updated": _text("status", "updatedReplicas", default="0"),
    "available": _text("status", "availableReplicas", default="0"),
    "ready": _text("status", "readyReplicas", default="0"),
    "ds-desired": _text("status", "desiredNumberScheduled", default="0"),
    "ds-current": _text("status", "currentNumberScheduled", default="0"),
    "ds-ready": _text("status", "numberReady", default="0"),
    "ds-updated": _text("status", "updatedNumberScheduled", default="0"),
    "ds-available": _text("status", "numberAvailable", default="0"),
    "node-selector": lambda obj: _show_labels(dig(obj, "spec", "template", "spec", "nodeSelector")),
    "selector": _selector("spec", "selector"),
    "pod-selector": _selector("spec", "podSelector"),
    "job-selector": _selector("spec", "jobTemplate", "spec", "selector"),
    "job-completions": _job_completions,
    "job-status": _job_status,
    "job-duration": _job_duration,
    "suspend": lambda obj: "True" if dig(obj, "spec", "suspend") else "False",
    "active": _size("status", "active"),
    "last-schedule": _last_schedule,
    "controller": _controller,
    "scale-target": _pair("spec", "scaleTargetRef", of=("kind", "name")),
    "metrics": _metrics,
    "min-pods": _text("spec", "minReplicas", default=_UNSET),
    "hpa-replicas": _text("status", "currentReplicas", default="0"),
    "min-available": _text("spec", "minAvailable", default="N/A"),
    "max-unavailable": _text("spec", "maxUnavailable", default="N/A"),
    "allowed-disruptions": _text("status", "disruptionsAllowed", default="0"),
    "ports": _ports,
    "service-addresses": _service_addresses,
    "hosts": lambda obj: _join(
        (rule["host"] for rule in dig_objects(obj, "spec", "rules") if rule.get("host")), limit=_SHOWN, default="*"
    ),
    "addresses": lambda obj: _join(_addresses(obj), default=""),
    "ingress-ports": lambda obj: "80, 443" if dig_objects(obj, "spec", "tls") else "80",
    "endpoints": _endpoints,
    "slice-endpoints": lambda obj: _join(
        (address for item in dig_objects(obj, "endpoints") for address in item.get("addresses") or ()),
        limit=_SHOWN,
        default=_UNSET,
    ),
    "slice-ports": lambda obj: _join(
        (item.get("port") for item in dig_objects(obj, "ports")), limit=_SHOWN, default=_UNSET
    ),
    "parameters": lambda obj: _scoped_name(dig(obj, "spec", "parameters")),
    "node-status": _node_status,
    "node-roles": _node_roles,
    "internal-ip": _typed("status", "addresses", of="InternalIP", field="address", default=NONE),
    "external-ip": _typed("status", "addresses", of="ExternalIP", field="address", default=NONE),
    "capacity": _text("status", "capacity", "storage", default=""),
    "claim": _pair("spec", "claimRef", of=("namespace", "name")),
    "offered-modes": _access_modes("spec"),
    "granted-modes": _access_modes("status"),
    "volume": _text("spec", "volumeName", default=""),
    "storage-class": _text("spec", "storageClassName", default=""),
    "attributes-class": _text("spec", "volumeAttributesClassName", default=_UNSET),
    "reason": _text("status", "reason", default=""),
    "expansion": _text("allowVolumeExpansion", default="false"),
    "token-requests": lambda obj: (
        _UNSET
        if dig(obj, "spec", "tokenRequests") is None
        else ",".join(str(item.get("audience", "")) for item in dig_objects(obj, "spec", "tokenRequests"))
    ),
    "attached": _text("status", "attached", default="false"),
    "global-default": _text("globalDefault", default="false"),
    "component-status": _component_status,
    "health-message": _typed("conditions", of="Healthy", field="message", default=""),
    "health-error": _typed("conditions", of="Healthy", field="error", default=""),
    "is-dangling": _typed("status", "conditions", of="Dangling", field="status", default="?"),
    "api-service": _pair("spec", "service", of=("namespace", "name"), default="Local"),
    "is-available": _typed("status", "conditions", of="Available", field="status", default=_UNKNOWN),
    "role": _pair("roleRef", of=("kind", "name")),
    "users": _subjects("User"),
    "groups": _subjects("Group"),
    "service-accounts": _subjects("ServiceAccount"),
    "quota-requests": _quota(limits=False),
    "quota-limits": _quota(limits=True),
    "request-condition": _request_condition,
    "requested-duration": _requested_duration,
    "event-last-seen": _event_last_seen,
    "event-first-seen": _event_first_seen,
    "event-count": lambda obj: dig(obj, "series", "count") or obj.get("count") or obj.get("deprecatedCount") or 1,
    "event-object": _event_object,
    "event-source": _event_source,
    "event-subobject": _text("involvedObject", "fieldPath", default=""),
    "event-message": lambda obj: obj.get("message") or obj.get("note") or "",
}


def _scoped_name(ref: Any) -> str:
    if not isinstance(ref, dict):
        return NONE
    kind = f"{ref.get('kind')}.{ref['apiGroup']}" if ref.get("apiGroup") else str(ref.get("kind"))
    return f"{kind}/{ref.get('name')}"
