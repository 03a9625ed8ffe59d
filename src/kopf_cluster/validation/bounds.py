"""
Numbers that have bounds in kinds of few fields: leases, priority classes, the priorities of API services.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError, forbidden_value, invalid_value, required
from kopf_cluster.validation import object_names
from kopf_cluster.validation.numbers import not_negative

Obj: TypeAlias = dict[str, Any]

_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_MAX_PRIORITY: Final = 1_000_000_000  # of those that users make


def validate_lease(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")
    yield from not_negative(spec, "spec", "leaseTransitions")


def validate_priority_class(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    name, value = new["metadata"].get("name") or "", new.get("value") or 0
    if not name.startswith("system-"):
        if value > _MAX_PRIORITY:
            yield forbidden_value("value", f"maximum allowed value of a user defined priority is {_MAX_PRIORITY}")
    elif value != _SYSTEM_PRIORITIES.get(name):
        why = (f"value of {name} PriorityClass must be {_SYSTEM_PRIORITIES[name]}" if name in _SYSTEM_PRIORITIES
               else f"{name} is not a known system priority class")
        yield forbidden_value("metadata.name", "priority class names with 'system-' prefix are reserved for system use "
                                               f"only. error: {why}")


def validate_api_service(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    name, spec = new["metadata"].get("name"), new.get("spec") or {}
    group, version, service = spec.get("group") or "", spec.get("version") or "", spec.get("service")
    if name != (wanted := f"{version}.{group}"):
        yield invalid_value("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"')
    if not group and version != "v1":
        yield required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    for why in object_names.subdomain(group) if group else ():
        yield invalid_value("spec.group", group, why)
    for why in object_names.old_label(version):
        yield invalid_value("spec.version", version, why)
    for field, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        if not 0 < (spec.get(field) or 0) <= most:
            yield invalid_value(f"spec.{field}", spec.get(field) or 0, f"must be positive and less than {most}")
    yield from _validate_trust(spec, is_local=service is None)
    if service is not None:
        for field in ("namespace", "name"):
            if not service.get(field):
                yield required(f"spec.service.{field}")


def _validate_trust(spec: Obj, *, is_local: bool) -> Iterator[FieldError]:
    bundle, is_blind = spec.get("caBundle") or "", spec.get("insecureSkipTLSVerify")
    if is_local and bundle:
        size = len(bundle) * 3 // 4 - bundle.count("=")
        yield invalid_value("spec.caBundle", f"{size} bytes", "local APIServices may not have a caBundle")
    if is_blind and (is_local or bundle):
        yield invalid_value("spec.insecureSkipTLSVerify", True,
                            "local APIServices may not have insecureSkipTLSVerify" if is_local
                            else "may not be true if caBundle is present")
