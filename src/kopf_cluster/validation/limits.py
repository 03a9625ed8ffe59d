"""
How many there may be, and how much: disruption budgets, quotas, ranges of limits.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster.kinds import quantities
from kopf_cluster.statuses import FieldError, duplicate_value, forbidden_value, invalid_value, required
from kopf_cluster.validation.nested_selectors import validate_selector
from kopf_cluster.validation.numbers import number_or_percent

Obj: TypeAlias = dict[str, Any]

_COUNTED: Final = frozenset({
    "configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services",
    "services.loadbalancers", "services.nodeports"})
_MEASURED: Final = frozenset({
    "cpu", "memory", "ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu",
    "requests.memory", "requests.ephemeral-storage", "requests.storage"})

# Of each resource, the first must not be greater than the second; the field that is blamed, and whose value is shown.
_ORDERED: Final = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest",
     "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest",
     "default request value {} is greater than max value {}"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest",
     "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"))


def validate_budget(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        shown = {"MinAvailable": least, "MaxUnavailable": most, "Selector": spec.get("selector"),
                 "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy")}
        yield invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            yield from number_or_percent(spec[field], f"spec.{field}", most=100)
    yield from validate_selector(spec.get("selector") or {}, "spec.selector")


def validate_quota(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    for name, value in ((new.get("spec") or {}).get("hard") or {}).items():
        path, amount = f"spec.hard[{name}]", quantities.amount(value)
        if "/" not in name and name not in _COUNTED | _MEASURED and "hugepages-" not in name:
            yield invalid_value(path, name, "must be a standard resource type or fully qualified")
            yield invalid_value(path, name, "must be a standard resource for quota")
        if amount < 0:
            yield invalid_value(path, value, "must be greater than or equal to 0")
        if name in _COUNTED and amount.denominator != 1:
            yield invalid_value(path, value, "must be an integer")


def validate_range(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, limit in enumerate((new.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{index}]", limit.get("type") or ""
        if kind in seen:
            yield duplicate_value(f"{path}.type", kind)
        seen.add(kind)
        if kind == "Pod":
            for field in ("default", "defaultRequest"):
                if limit.get(field):
                    yield forbidden_value(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
        if kind == "PersistentVolumeClaim" and not any("storage" in (limit.get(one) or ()) for one in ("min", "max")):
            yield required(f"{path}.limits",
                           "either minimum or maximum storage value is required, but neither was provided")
        yield from _validate_order(limit, path)


def _validate_order(limit: Obj, path: str) -> Iterator[FieldError]:
    for lower, upper, blamed, shown, text in _ORDERED:
        least, most = limit.get(lower) or {}, limit.get(upper) or {}
        for name in sorted(least.keys() & most.keys()):
            if quantities.amount(least[name]) > quantities.amount(most[name]):
                yield invalid_value(f"{path}.{blamed}[{name}]", limit[shown][name],
                                    text.format(least[name], most[name]))
    for name, ratio in (limit.get("maxLimitRequestRatio") or {}).items():
        if quantities.amount(ratio) < 1:
            yield invalid_value(f"{path}.maxLimitRequestRatio[{name}]", ratio, f"ratio {ratio} is less than 1")
