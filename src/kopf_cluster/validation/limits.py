"""
How many there may be: disruption budgets, quotas.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from ..kinds import quantities
from ..statuses import FieldError, invalid_value
from .nested_selectors import validate_selector
from .numbers import number_or_percent

Obj: TypeAlias = dict[str, Any]

_COUNTED: Final = frozenset({
    "configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services",
    "services.loadbalancers", "services.nodeports"})
_MEASURED: Final = frozenset({
    "cpu", "memory", "ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu",
    "requests.memory", "requests.ephemeral-storage", "requests.storage"})


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
