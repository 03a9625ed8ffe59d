"""
Services: their names, which are names of hosts, and their ports.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from kopf_cluster.kinds.objects import validate_labels
from kopf_cluster.statuses import FieldError, duplicate_value, invalid_value, required
from kopf_cluster.validation import object_names
from kopf_cluster.validation.item_names import validate_item_name

Obj: TypeAlias = dict[str, Any]


def validate(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    name, spec = new["metadata"].get("name") or "", new.get("spec") or {}
    for why in object_names.old_label(name) if name and old is None else ():
        yield invalid_value("metadata.name", name, why)
    is_external, ports = spec.get("type") == "ExternalName", spec.get("ports") or []
    if not ports and not is_external and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    if is_external:
        target = (spec.get("externalName") or "").removesuffix(".")
        if not target:
            yield required("spec.externalName")
        for why in object_names.subdomain(target) if target else ():
            yield invalid_value("spec.externalName", spec["externalName"], why)
    yield from _validate_ports(ports)
    yield from validate_labels(spec.get("selector") or {}, "spec.selector")


def _validate_ports(ports: Sequence[Obj]) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name") or ""
        yield from validate_item_name(name, f"{path}.name", names, needed=len(ports) > 1)
        for why in object_names.port(port.get("port") or 0):
            yield invalid_value(f"{path}.port", port.get("port") or 0, why)
        target = port.get("targetPort", 1)
        for why in object_names.port_name(target) if isinstance(target, str) else object_names.port(target):
            yield invalid_value(f"{path}.targetPort", target, why)
    taken: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        key = port.get("protocol") or "TCP", port.get("port")
        if key in taken:
            yield duplicate_value(f"spec.ports[{index}]", {
                "Name": "", "Protocol": key[0], "AppProtocol": None, "Port": key[1], "TargetPort": 0, "NodePort": 0})
        taken.add(key)
