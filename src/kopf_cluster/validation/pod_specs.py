"""
Pods, alone and in templates: containers with unique names, ports, variables, mounts of existing volumes, resources,
probes, security contexts. Affinities and tolerations are in `scheduling`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from kopf_cluster import quantities
from kopf_cluster.kinds import objects
from kopf_cluster.kinds.objects import validate_labels
from kopf_cluster.statuses import (
    FieldError,
    duplicate_value,
    forbidden_value,
    invalid_value,
    invalid_values,
    needed,
    not_found_value,
    required,
)
from kopf_cluster.validation import fields
from kopf_cluster.validation.fields import Obj, each, not_negative, unique, validate_item_name, within
from kopf_cluster.validation.scheduling import validate_affinity, validate_spread, validate_tolerations

_DEFAULT_GRACE: Final = 30  # seconds
_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_SOURCES: Final = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"


def validate_pod(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Yield all errors in a new pod; nothing that can be changed in an existing pod is validated here."""
    if old is not None:
        return
    spec = new.get("spec") or {}
    yield from validate_spec(spec, "spec")
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            image = container.get("image") or ""
            if image != image.strip():  # templates are not that strict
                yield invalid_value(
                    f"spec.{field}[{index}].image", image, "must not have leading or trailing whitespace"
                )


def validate_spec(spec: Obj, path: str, more_volumes: Collection[str] = ()) -> Iterator[FieldError]:
    """Yield all errors in the spec of a pod; more volumes can be defined elsewhere."""
    volumes = spec.get("volumes") or []
    yield from validate_volumes(volumes, f"{path}.volumes")
    yield from _validate_containers(spec, path, {volume.get("name") for volume in volumes} | set(more_volumes))
    yield from validate_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    yield from validate_pod_context(spec.get("securityContext") or {}, f"{path}.securityContext")
    yield from validate_affinity(spec.get("affinity") or {}, f"{path}.affinity")
    yield from validate_spread(spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints")
    yield from invalid_values(
        f"{path}.serviceAccountName",
        spec.get("serviceAccountName"),
        objects.subdomain(spec.get("serviceAccountName") or "default"),
    )
    deadline = spec.get("activeDeadlineSeconds")
    yield from within(
        f"{path}.activeDeadlineSeconds", deadline, 1, 2**31 - 1, "must be between 1 and 2147483647, inclusive"
    )
    for field in ("hostname", "subdomain"):
        yield from invalid_values(
            f"{path}.{field}", spec.get(field), objects.label(spec[field]) if spec.get(field) else ()
        )
    yield from not_negative(spec, path, "terminationGracePeriodSeconds")
    yield from validate_tolerations(spec.get("tolerations") or [], f"{path}.tolerations")


def _validate_containers(spec: Obj, path: str, mountable: Collection[Any]) -> Iterator[FieldError]:
    grace = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
    containers, initial = spec.get("containers") or [], spec.get("initContainers") or []
    for field, items, others in (("containers", containers, []), ("initContainers", initial, containers)):
        taken = {item.get("name") for item in others}
        for index, container in enumerate(items):
            place = f"{path}.{field}[{index}]"
            yield from _validate_container(container, place, mountable)
            if (name := container.get("name")) in taken and name:
                yield duplicate_value(f"{place}.name", name)
            taken.add(name)
            if items is initial and container.get("restartPolicy") != "Always":
                yield from forbid_probes(container, place)
            else:
                yield from validate_probes(container, place, grace)


def _validate_container(container: Obj, path: str, mountable: Collection[Any]) -> Iterator[FieldError]:
    name, image = container.get("name") or "", container.get("image") or ""
    yield from needed(f"{path}.name", name)
    yield from invalid_values(f"{path}.name", name, objects.label(name) if name else ())
    yield from needed(f"{path}.image", image)
    yield from _validate_ports(container.get("ports") or (), f"{path}.ports")
    yield from each(container, "env", path, _validate_variable)
    yield from _validate_mounts(container.get("volumeMounts") or (), f"{path}.volumeMounts", mountable)
    yield from _validate_resources(container.get("resources") or {}, f"{path}.resources")
    yield from validate_container_context(container.get("securityContext") or {}, f"{path}.securityContext")


def _validate_ports(ports: Sequence[Obj], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        name, number = port.get("name") or "", port.get("containerPort") or 0
        wrong = list(fields.port_name(name)) if name else []
        yield from invalid_values(f"{path}[{index}].name", name, wrong)
        if name and not wrong and name in names:
            yield duplicate_value(f"{path}[{index}].name", name)
        names.add(name)
        yield from needed(f"{path}[{index}].containerPort", number)
        yield from invalid_values(f"{path}[{index}].containerPort", number, fields.port(number) if number else ())
        yield from invalid_values(
            f"{path}[{index}].hostPort", port.get("hostPort"), fields.port(port.get("hostPort") or 1)
        )


def _validate_variable(variable: Obj, path: str) -> Iterator[FieldError]:
    name, source = variable.get("name") or "", variable.get("valueFrom")
    yield from needed(f"{path}.name", name)
    yield from invalid_values(f"{path}.name", name, fields.variable(name))
    if source is not None:
        if not source:
            yield invalid_value(f"{path}.valueFrom", "", _SOURCES)
        elif variable.get("value"):
            yield invalid_value(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
        elif len(source) > 1:
            yield invalid_value(f"{path}.valueFrom", "", "may not have more than one field specified at a time")
        for field in ("configMapKeyRef", "secretKeyRef"):
            if field in source and not source[field].get("name"):
                yield required(f"{path}.valueFrom.{field}.name")


def _validate_mounts(mounts: Sequence[Obj], path: str, mountable: Collection[Any]) -> Iterator[FieldError]:
    places: set[str] = set()
    for index, mount in enumerate(mounts):
        name, place = mount.get("name") or "", mount.get("mountPath") or ""
        yield from needed(f"{path}[{index}].name", name)
        if name not in mountable:
            yield not_found_value(f"{path}[{index}].name", name)
        yield from needed(f"{path}[{index}].mountPath", place)
        if place in places:
            yield invalid_value(f"{path}[{index}].mountPath", place, "must be unique")
        places.add(place)


def _validate_resources(resources: Obj, path: str) -> Iterator[FieldError]:
    limits: Obj = resources.get("limits") or {}
    for name, value in limits.items():
        yield from _validate_resource(name, value, f"{path}.limits[{name}]")
    for name, value in (resources.get("requests") or {}).items():
        yield from _validate_resource(name, value, f"{path}.requests[{name}]")
        if name in limits and quantities.amount(value) > quantities.amount(limits[name]):
            yield invalid_value(
                f"{path}.requests", value, f"must be less than or equal to {name} limit of {limits[name]}"
            )


def _validate_resource(name: str, value: str, path: str) -> Iterator[FieldError]:
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        yield invalid_value(path, name, "must be a standard resource type or fully qualified")
        yield invalid_value(path, name, "must be a standard resource for containers")
    if quantities.amount(value) < 0:
        yield invalid_value(path, value, "must be greater than or equal to 0")


# Volumes of pods: each has a name and exactly one source, which names what it takes.

# What must be named in a source, though the published schemas do not say so.
_NAMES: Final = {"configMap": "name", "secret": "secretName"}


# In the order in which the server checks the sources; all after the first present one are too many.
_ORDER: Final = (
    "emptyDir",
    "hostPath",
    "secret",
    "nfs",
    "persistentVolumeClaim",
    "downwardAPI",
    "configMap",
    "projected",
    "csi",
    "ephemeral",
    "image",
)


def validate_volumes(volumes: Sequence[Obj], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        yield from _validate_source(volume, f"{path}[{index}]")
        yield from validate_item_name(volume.get("name") or "", f"{path}[{index}].name", names)


def _validate_source(volume: Obj, path: str) -> Iterator[FieldError]:
    first, *others = sorted((name for name in volume if name != "name"), key=_rank) or [""]
    field = _NAMES.get(first)
    if field is not None and not volume[first].get(field):
        yield required(f"{path}.{first}.{field}")
    for name in others:
        yield forbidden_value(f"{path}.{name}", "may not specify more than 1 volume type")


def _rank(source: str) -> int:
    return _ORDER.index(source) if source in _ORDER else len(_ORDER)


# Probes of containers, and the hooks of their lifecycle.
#
# See "Configure Liveness, Readiness and Startup Probes" and "Container Lifecycle Hooks".

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")

_NOT_WHILE_STARTING: Final = "may not be set for init containers without restartPolicy=Always"
_HEADER: Final = re.compile(r"[-A-Za-z0-9]+")
_HEADER_RULE: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', "
    "regex used for validation is '[-A-Za-z0-9]+')"
)


def validate_probes(container: Obj, path: str, grace: int) -> Iterator[FieldError]:
    """Yield all errors in the hooks and the probes; the grace is the grace period of the pod, in seconds."""
    lifecycle = container.get("lifecycle") or {}
    for field in _HOOKS:
        if field in lifecycle:
            yield from _validate_handler(lifecycle[field], f"{path}.lifecycle.{field}", grace)
    for field in _PROBES:
        if field in container:
            yield from _validate_probe(container[field], f"{path}.{field}", grace, is_gate=field == "readinessProbe")


def forbid_probes(container: Obj, path: str) -> Iterator[FieldError]:
    """Refuse hooks and probes of containers that must end before the pod starts."""
    for field in ("lifecycle", *_PROBES):
        if field in container:
            yield forbidden_value(f"{path}.{field}", _NOT_WHILE_STARTING)


def _validate_probe(probe: Obj, path: str, grace: int, *, is_gate: bool) -> Iterator[FieldError]:
    yield from _validate_handler(probe, path, grace)
    yield from not_negative(
        probe, path, "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"
    )
    own = probe.get("terminationGracePeriodSeconds")
    yield from within(f"{path}.terminationGracePeriodSeconds", own, 1, math.inf, "must be greater than 0")
    if is_gate and own is not None:
        yield invalid_value(f"{path}.terminationGracePeriodSeconds", own, "must not be set for readinessProbes")
    if not is_gate and probe.get("successThreshold", 1) != 1:
        yield invalid_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _validate_handler(owner: Obj, path: str, grace: int) -> Iterator[FieldError]:
    present = [name for name in _HANDLERS if name in owner]
    if not present:
        yield required(path, "must specify a handler type")
        return
    yield from _validate_action(present[0], owner[present[0]], f"{path}.{present[0]}", grace)
    for name in present[1:]:
        yield forbidden_value(f"{path}.{name}", "may not specify more than 1 handler type")


def _validate_action(kind: str, action: Obj, path: str, grace: int) -> Iterator[FieldError]:
    if kind == "exec":
        yield from needed(f"{path}.command", action.get("command"))
    elif kind == "sleep":
        seconds = action.get("seconds") or 0
        if not 0 <= seconds <= grace:
            yield invalid_value(
                path, seconds, f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            )
    else:
        port = action.get("port", 0)
        yield from invalid_values(
            f"{path}.port", port, fields.port_name(port) if isinstance(port, str) else fields.port(port)
        )
        for header in action.get("httpHeaders") or ():
            if not _HEADER.fullmatch(header.get("name") or ""):
                yield invalid_value(f"{path}.httpHeaders", header.get("name") or "", _HEADER_RULE)


# Security contexts: the users and the privileges of the processes.


_ID_RULE: Final = "must be between 0 and 2147483647, inclusive"


def validate_pod_context(context: Obj, path: str) -> Iterator[FieldError]:
    yield from _validate_ids(context, path, "fsGroup", "runAsUser", "runAsGroup")
    yield from each(context, "supplementalGroups", path, _validate_id)
    names: set[str] = set()
    for index, setting in enumerate(context.get("sysctls") or ()):
        yield from unique(setting.get("name") or "", f"{path}.sysctls[{index}].name", names)
    yield from _validate_profiles(context, path)


def validate_container_context(context: Obj, path: str) -> Iterator[FieldError]:
    yield from _validate_ids(context, path, "runAsUser", "runAsGroup")
    yield from _validate_profiles(context, path)
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            yield invalid_value(
                path, context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            )
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            yield invalid_value(
                path,
                context,
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            )


def _validate_ids(context: Obj, path: str, *fields: str) -> Iterator[FieldError]:
    for field in fields:
        yield from _validate_id(context.get(field), f"{path}.{field}")


def _validate_id(number: int | None, path: str) -> Iterator[FieldError]:
    return within(path, number, 0, 2**31 - 1, _ID_RULE)


def _validate_profiles(context: Obj, path: str) -> Iterator[FieldError]:
    for field, name in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile = context.get(field)
        if profile is None:
            continue
        kind, local = profile.get("type") or "", profile.get("localhostProfile")
        yield from needed(f"{path}.{field}.type", kind, f"type is required when {field} is set")
        if kind == "Localhost" and not local:
            yield required(f"{path}.{field}.localhostProfile", f"must be set when {name} type is Localhost")
        elif kind != "Localhost" and local is not None:
            yield invalid_value(
                f"{path}.{field}.localhostProfile", local, f"can only be set when {name} type is Localhost"
            )
