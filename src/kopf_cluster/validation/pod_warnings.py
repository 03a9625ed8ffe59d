"""
Warnings about strange, but valid, pods and templates, in the words of the API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster import codec, quantities
from kopf_cluster.kinds import objects
from kopf_cluster.statuses import quoted

Obj: TypeAlias = dict[str, Any]

_MAX_COMPARED: Final = 100
"""The maximal number of compared ports with the same number, as thousands of them must not take long."""

# The paths of the templates of pods.
_TEMPLATES: Final = {
    **dict.fromkeys(
        ("daemonsets", "deployments", "jobs", "replicasets", "replicationcontrollers", "statefulsets"), "spec.template"
    ),
    "cronjobs": "spec.jobTemplate.spec.template",
    "podtemplates": "template",
}
_OLD_LABELS: Final = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
}
_OLD_VOLUMES: Final = {
    "photonPersistentDisk": "v1.11, non-functional in v1.16+",
    "gitRepo": "v1.11",
    "scaleIO": "v1.16, non-functional in v1.22+",
    "flocker": "v1.22, non-functional in v1.25+",
    "storageos": "v1.22, non-functional in v1.25+",
    "quobyte": "v1.22, non-functional in v1.25+",
    "glusterfs": "v1.25, non-functional in v1.26+",
    "cephfs": "v1.28, non-functional in v1.31+",
    "rbd": "v1.28, non-functional in v1.31+",
}


def find_warnings(plural: str, new: Obj, old: Obj | None) -> Iterator[str]:
    """Yield warnings about a new pod, or about a new or changed template."""
    if plural == "pods" and old is None:
        if reasons := list(objects.label(new["metadata"]["name"])):
            yield (
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
                f"a DNS label is recommended: [{' '.join(reasons)}]"
            )
        yield from _look_at(new["spec"], "spec")
    elif path := _TEMPLATES.get(plural):
        template = codec.dig(new, *path.split("."))
        if template is not None and template != codec.dig(old, *path.split(".")):
            yield from _look_at(template.get("spec") or {}, f"{path}.spec")


def _look_at(spec: Obj, path: str) -> Iterator[str]:
    for label in spec.get("nodeSelector") or ():
        if label in _OLD_LABELS:
            since, better = _OLD_LABELS[label]
            yield f'{path}.nodeSelector[{label}]: deprecated since {since}; use "{better}" instead'
    for index, volume in enumerate(spec.get("volumes") or ()):
        for name in volume.keys() & _OLD_VOLUMES:
            yield f"{path}.volumes[{index}].{name}: deprecated in {_OLD_VOLUMES[name]}"
    yield from _find_repeated(spec, path, "hostAliases", "ip")
    yield from _find_repeated(spec, path, "imagePullSecrets", "name")
    containers = [
        (f"{path}.{field}[{index}]", container)
        for field in ("initContainers", "containers")
        for index, container in enumerate(spec.get(field) or ())
    ]
    for place, container in containers:
        yield from _find_fractions(container.get("resources") or {}, f"{place}.resources")
        yield from _find_hidden(container.get("env") or [], f"{place}.env")
    yield from _compare_ports(
        [
            (f"{place}.ports[{index}]", port)
            for place, container in containers
            for index, port in enumerate(container.get("ports") or ())
        ]
    )


def _find_repeated(spec: Obj, path: str, field: str, key: str) -> Iterator[str]:
    seen: set[Any] = set()
    for index, item in enumerate(spec.get(field) or ()):
        if (value := item.get(key)) in seen:
            yield f"{path}.{field}[{index}].{key}: duplicate {key} {quoted(value)}"
        seen.add(value)


def _find_fractions(resources: Obj, path: str) -> Iterator[str]:
    for kind in ("limits", "requests"):
        for name in ("memory", "ephemeral-storage"):
            value = (resources.get(kind) or {}).get(name)
            if value is not None and quantities.amount(str(value)).denominator != 1:
                yield f"{path}.{kind}[{name}]: fractional byte value {quoted(value)} is invalid, must be an integer"


def _find_hidden(variables: list[Obj], path: str) -> Iterator[str]:
    """Find variables that are defined again without using their previous values."""
    seen: set[Any] = set()
    for index, item in enumerate(variables):
        name, value = item.get("name"), item.get("value") or ""
        if name in seen and ("valueFrom" in item or f"$({name})" not in value or value == f"$({name})"):
            yield f"{path}[{index}]: hides previous definition of {quoted(name)}, which may be dropped when using apply"
        seen.add(name)


def _compare_ports(ports: list[tuple[str, Obj]]) -> Iterator[str]:
    """Find ports of the same number and protocol in all containers of the pod."""
    known: dict[tuple[Any, Any], list[tuple[str, str, int]]] = {}
    for place, port in ports:
        ip, number = port.get("hostIP") or "", port.get("hostPort") or 0
        others = known.setdefault((port.get("containerPort"), port.get("protocol")), [])
        for other_place, other_ip, other_number in others:
            if (ip, number) == (other_ip, other_number):
                yield f"{place}: duplicate port definition with {other_place}"
            elif not number or not other_number:
                yield f"{place}: overlapping port definition with {other_place}"
            elif number == other_number and bool(ip) != bool(other_ip):
                yield f"{place}: dangerously ambiguous port definition with {other_place}"
        if len(others) < _MAX_COMPARED:
            others.append((place, ip, number))
