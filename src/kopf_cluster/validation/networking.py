"""
The network: services, ingresses, network policies.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kopf_cluster.kinds import objects
from kopf_cluster.kinds.objects import validate_labels
from kopf_cluster.statuses import (
    FieldError,
    duplicate_value,
    forbidden_value,
    invalid_value,
    invalid_values,
    needed,
    required,
)
from kopf_cluster.validation import fields
from kopf_cluster.validation.fields import Obj, each, validate_item_name, validate_selector

_CLASS: Final = "kubernetes.io/ingress.class"  # the annotation from before there was the field
_BAD_PARTS: Final = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDS: Final = ("/..", "/.")
_WILDCARD: Final = re.compile(r"\*(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_WILDCARD_RULE: Final = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', "
    "regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def validate_ingress(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    if not spec.get("rules") and "defaultBackend" not in spec:
        yield invalid_value("spec", None, "either `defaultBackend` or `rules` must be specified")
    if "defaultBackend" in spec:
        yield from _validate_backend(spec["defaultBackend"], "spec.defaultBackend")
    yield from each(spec, "rules", "spec", _validate_rule)
    for index, tls in enumerate(spec.get("tls") or ()):
        yield from each(tls, "hosts", f"spec.tls[{index}]", _validate_host)
        if secret := tls.get("secretName"):
            yield from invalid_values(f"spec.tls[{index}].secretName", secret, objects.subdomain(secret))
    named = spec.get("ingressClassName")
    yield from invalid_values("spec.ingressClassName", named, objects.subdomain(named) if named is not None else ())
    annotated = (new["metadata"].get("annotations") or {}).get(_CLASS)
    if old is None and named is not None and annotated is not None and annotated != named:
        yield invalid_value(f"annotations.{_CLASS}", annotated, "must match `ingressClassName` when both are specified")


def _validate_rule(rule: Obj, path: str) -> Iterator[FieldError]:
    if host := rule.get("host"):
        if _is_address(host):
            yield invalid_value(f"{path}.host", host, "must be a DNS name, not an IP address")
        yield from _validate_host(host, f"{path}.host")
    http = rule.get("http")
    if http is not None:
        yield from needed(f"{path}.http.paths", http.get("paths"))
        yield from each(http, "paths", f"{path}.http", _validate_path)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _validate_host(host: str, path: str) -> Iterator[FieldError]:
    if "*" not in host:
        yield from invalid_values(path, host, objects.subdomain(host))
    elif not _WILDCARD.fullmatch(host):
        yield invalid_value(path, host, _WILDCARD_RULE)


def _validate_path(item: Obj, path: str) -> Iterator[FieldError]:
    kind, text = item.get("pathType"), item.get("path") or ""
    if kind is None:
        yield required(f"{path}.pathType", "pathType must be specified")
        return
    if not text.startswith("/") and (text or kind in ("Exact", "Prefix")):
        yield invalid_value(f"{path}.path", text, "must be an absolute path")
    if kind in ("Exact", "Prefix"):
        for part in _BAD_PARTS:
            if part in text:
                yield invalid_value(f"{path}.path", text, f"must not contain '{part}'")
        for end in _BAD_ENDS:
            if text.endswith(end):
                yield invalid_value(f"{path}.path", text, f"cannot end with '{end}'")
    yield from _validate_backend(item.get("backend") or {}, f"{path}.backend")


def _validate_backend(backend: Obj, path: str) -> Iterator[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield invalid_value(path, "", "cannot set both resource and service backends")
    elif service is not None:
        yield from _validate_service(service, path)
    elif resource is None:
        yield invalid_value(path, "", "resource or service backend is required")
    else:
        for field in ("kind", "name"):
            yield from needed(f"{path}.resource.{field}", resource.get(field))
        if group := resource.get("apiGroup"):
            yield from invalid_values(f"{path}.resource.apiGroup", group, objects.subdomain(group))


def _validate_service(service: Obj, path: str) -> Iterator[FieldError]:
    name, port = service.get("name") or "", service.get("port") or {}
    yield from needed(f"{path}.service.name", name)
    yield from invalid_values(f"{path}.service.name", name, objects.old_label(name) if name else ())
    if port.get("name") and port.get("number"):
        yield invalid_value(path, "", "cannot set both port name & port number")
    elif port.get("name"):
        yield from invalid_values(f"{path}.service.port.name", port.get("name"), fields.port_name(port["name"]))
    elif port.get("number"):
        yield from invalid_values(f"{path}.service.port.number", port.get("number"), fields.port(port["number"]))
    else:
        yield required(path, "port name or number is required")


# Services: their names, which are host names, and their ports.


def validate_service(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    name, spec = new["metadata"].get("name") or "", new.get("spec") or {}
    yield from invalid_values("metadata.name", name, objects.old_label(name) if name and old is None else ())
    is_external, ports = spec.get("type") == "ExternalName", spec.get("ports") or []
    if not ports and not is_external and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    if is_external:
        target = (spec.get("externalName") or "").removesuffix(".")
        yield from needed("spec.externalName", target)
        yield from invalid_values(
            "spec.externalName", spec.get("externalName"), objects.subdomain(target) if target else ()
        )
    yield from _validate_ports(ports)
    yield from validate_labels(spec.get("selector") or {}, "spec.selector")


def _validate_ports(ports: Sequence[Obj]) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name") or ""
        yield from validate_item_name(name, f"{path}.name", names, needed=len(ports) > 1)
        yield from invalid_values(f"{path}.port", port.get("port") or 0, fields.port(port.get("port") or 0))
        target = port.get("targetPort", 1)
        yield from invalid_values(
            f"{path}.targetPort", target, fields.port_name(target) if isinstance(target, str) else fields.port(target)
        )
    taken: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        key = port.get("protocol") or "TCP", port.get("port")
        if key in taken:
            yield duplicate_value(
                f"spec.ports[{index}]",
                {"Name": "", "Protocol": key[0], "AppProtocol": None, "Port": key[1], "TargetPort": 0, "NodePort": 0},
            )
        taken.add(key)


# Network policies: the selected pods, and their allowed peers.

_CIDR: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def validate_network_policy(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from validate_selector(spec.get("podSelector") or {}, "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{index}]"
            yield from each(rule, "ports", path, _validate_port)
            yield from each(rule, peers, path, _validate_peer)


def _validate_port(port: Obj, path: str) -> Iterator[FieldError]:
    number, last = port.get("port"), port.get("endPort")
    if number is not None:
        yield from invalid_values(
            f"{path}.port", number, fields.port_name(number) if isinstance(number, str) else fields.port(number)
        )
    if last is None:
        return
    if number is None:
        yield required(f"{path}.port", "must be specified when `endPort` is specified")
    elif isinstance(number, str):
        yield invalid_value(f"{path}.endPort", last, "may not be specified when `port` is non-numeric")
    elif last < number:
        yield invalid_value(f"{path}.endPort", last, "must be greater than or equal to `port`")
    yield from invalid_values(f"{path}.endPort", last, fields.port(last))


def _validate_peer(peer: Obj, path: str) -> Iterator[FieldError]:
    for field in ("podSelector", "namespaceSelector"):
        yield from validate_selector(peer.get(field) or {}, f"{path}.{field}")
    block = peer.get("ipBlock")
    if block is not None:
        yield from _validate_block(block, f"{path}.ipBlock")
    if not peer:
        yield required(path, "must specify a peer")
    elif block is not None and len(peer) > 1:
        yield forbidden_value(path, "may not specify both ipBlock and another peer")


def _validate_block(block: Obj, path: str) -> Iterator[FieldError]:
    cidr = block.get("cidr") or ""
    if not cidr:
        yield required(f"{path}.cidr")
        return
    network = _read_network(cidr)
    if network is None:
        yield invalid_value(f"{path}.cidr", cidr, _CIDR)
    for index, text in enumerate(block.get("except") or ()):
        part = _read_network(text)
        if part is None:
            yield invalid_value(f"{path}.except[{index}]", text, _CIDR)
        elif network is not None and (
            part.version != network.version
            or part == network
            or part.network_address not in network
            or part.prefixlen < network.prefixlen
        ):
            yield invalid_value(f"{path}.except[{index}]", text, "must be a strict subset of `cidr`")


def _read_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None
