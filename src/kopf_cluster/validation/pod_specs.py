"""
Pods, alone and in templates: containers with unique names, ports, variables, mounts of existing volumes, resources.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, TypeAlias

from ..kinds import quantities
from ..statuses import FieldError, duplicate_value, invalid_value, not_found_value, required
from . import object_names
from .item_names import validate_item_name
from .numbers import not_negative

Obj: TypeAlias = dict[str, Any]

_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_SOURCES: Final = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"


def validate(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Give everything that is wrong with a pod; of an existing one, only what can be changed matters."""
    if old is None:
        yield from validate_spec(new.get("spec") or {}, "spec")


def validate_spec(spec: Obj, path: str) -> Iterator[FieldError]:
    volumes = spec.get("volumes") or []
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        yield from validate_item_name(volume.get("name") or "", f"{path}.volumes[{index}].name", names)
    mountable = {volume.get("name") for volume in volumes}
    containers, initial = spec.get("containers") or [], spec.get("initContainers") or []
    for field, items, others in (("containers", containers, []), ("initContainers", initial, containers)):
        taken = {item.get("name") for item in others}
        for index, container in enumerate(items):
            yield from _validate_container(container, f"{path}.{field}[{index}]", mountable)
            if (name := container.get("name")) in taken and name:
                yield duplicate_value(f"{path}.{field}[{index}].name", name)
            taken.add(name)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2 ** 31:
        yield invalid_value(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    for why in object_names.subdomain(spec.get("serviceAccountName") or "default"):
        yield invalid_value(f"{path}.serviceAccountName", spec["serviceAccountName"], why)
    yield from not_negative(spec, path, "terminationGracePeriodSeconds")


def _validate_container(container: Obj, path: str, mountable: Collection[Any]) -> Iterator[FieldError]:
    name, image = container.get("name") or "", container.get("image") or ""
    if not name:
        yield required(f"{path}.name")
    for why in object_names.label(name) if name else ():
        yield invalid_value(f"{path}.name", name, why)
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from _validate_ports(container.get("ports") or (), f"{path}.ports")
    for index, variable in enumerate(container.get("env") or ()):
        yield from _validate_variable(variable, f"{path}.env[{index}]")
    yield from _validate_mounts(container.get("volumeMounts") or (), f"{path}.volumeMounts", mountable)
    yield from _validate_resources(container.get("resources") or {}, f"{path}.resources")


def _validate_ports(ports: Sequence[Obj], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        name, number = port.get("name") or "", port.get("containerPort") or 0
        wrong = list(object_names.port_name(name)) if name else []
        for why in wrong:
            yield invalid_value(f"{path}[{index}].name", name, why)
        if name and not wrong and name in names:
            yield duplicate_value(f"{path}[{index}].name", name)
        names.add(name)
        if not number:
            yield required(f"{path}[{index}].containerPort")
        for why in object_names.port(number) if number else ():
            yield invalid_value(f"{path}[{index}].containerPort", number, why)
        for why in object_names.port(port.get("hostPort") or 1):
            yield invalid_value(f"{path}[{index}].hostPort", port["hostPort"], why)


def _validate_variable(variable: Obj, path: str) -> Iterator[FieldError]:
    name, source = variable.get("name") or "", variable.get("valueFrom")
    if not name:
        yield required(f"{path}.name")
    for why in object_names.variable(name):
        yield invalid_value(f"{path}.name", name, why)
    if source is not None:
        if not source:
            yield invalid_value(f"{path}.valueFrom", "", _SOURCES)
        elif variable.get("value"):
            yield invalid_value(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
        elif len(source) > 1:
            yield invalid_value(f"{path}.valueFrom", "", "may not have more than one field specified at a time")


def _validate_mounts(mounts: Sequence[Obj], path: str, mountable: Collection[Any]) -> Iterator[FieldError]:
    places: set[str] = set()
    for index, mount in enumerate(mounts):
        name, place = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{path}[{index}].name")
        if name not in mountable:
            yield not_found_value(f"{path}[{index}].name", name)
        if not place:
            yield required(f"{path}[{index}].mountPath")
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
            yield invalid_value(f"{path}.requests", value,
                                f"must be less than or equal to {name} limit of {limits[name]}")


def _validate_resource(name: str, value: str, path: str) -> Iterator[FieldError]:
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        yield invalid_value(path, name, "must be a standard resource type or fully qualified")
        yield invalid_value(path, name, "must be a standard resource for containers")
    if quantities.amount(value) < 0:
        yield invalid_value(path, value, "must be greater than or equal to 0")
