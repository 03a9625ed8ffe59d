"""
Ingresses: what is routed by which hosts and paths, and to where.
"""
from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError, invalid_value, required
from kopf_cluster.validation import object_names as names

Obj: TypeAlias = dict[str, Any]

_CLASS: Final = "kubernetes.io/ingress.class"  # the annotation from before there was the field
_BAD_PARTS: Final = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDS: Final = ("/..", "/.")
_WILDCARD: Final = re.compile(r"\*(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_WILDCARD_RULE: Final = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', "
    "regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')")


def validate(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    if not spec.get("rules") and "defaultBackend" not in spec:
        yield invalid_value("spec", None, "either `defaultBackend` or `rules` must be specified")
    if "defaultBackend" in spec:
        yield from _validate_backend(spec["defaultBackend"], "spec.defaultBackend")
    for index, rule in enumerate(spec.get("rules") or ()):
        yield from _validate_rule(rule, f"spec.rules[{index}]")
    for index, tls in enumerate(spec.get("tls") or ()):
        for number, host in enumerate(tls.get("hosts") or ()):
            yield from _validate_host(host, f"spec.tls[{index}].hosts[{number}]")
        if secret := tls.get("secretName"):
            for why in names.subdomain(secret):
                yield invalid_value(f"spec.tls[{index}].secretName", secret, why)
    named = spec.get("ingressClassName")
    for why in names.subdomain(named) if named is not None else ():
        yield invalid_value("spec.ingressClassName", named, why)
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
        if not http.get("paths"):
            yield required(f"{path}.http.paths")
        for index, item in enumerate(http.get("paths") or ()):
            yield from _validate_path(item, f"{path}.http.paths[{index}]")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _validate_host(host: str, path: str) -> Iterator[FieldError]:
    if "*" not in host:
        for why in names.subdomain(host):
            yield invalid_value(path, host, why)
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
            if not resource.get(field):
                yield required(f"{path}.resource.{field}")
        if group := resource.get("apiGroup"):
            for why in names.subdomain(group):
                yield invalid_value(f"{path}.resource.apiGroup", group, why)


def _validate_service(service: Obj, path: str) -> Iterator[FieldError]:
    name, port = service.get("name") or "", service.get("port") or {}
    if not name:
        yield required(f"{path}.service.name")
    for why in names.old_label(name) if name else ():
        yield invalid_value(f"{path}.service.name", name, why)
    if port.get("name") and port.get("number"):
        yield invalid_value(path, "", "cannot set both port name & port number")
    elif port.get("name"):
        for why in names.port_name(port["name"]):
            yield invalid_value(f"{path}.service.port.name", port["name"], why)
    elif port.get("number"):
        for why in names.port(port["number"]):
            yield invalid_value(f"{path}.service.port.number", port["number"], why)
    else:
        yield required(path, "port name or number is required")
