"""
Autoscalers: their targets, numbers of replicas, metrics, and behavior.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from kopf_cluster import quantities
from kopf_cluster.statuses import (
    FieldError,
    forbidden_value,
    invalid_value,
    needed,
    one_of,
    required,
)
from kopf_cluster.validation.fields import Obj, each, within

# In the order in which the server checks the sources; it validates only the first present one in full.
_SOURCES: Final = ("object", "external", "pods", "resource", "containerResource")
_TYPES: Final = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_TARGETS: Final = ("Utilization", "Value", "AverageValue")

_UNGROUPED: Final = "ReplicationController"  # the only one that can be scaled in the core group

_MAX_WINDOW: Final = 3600  # seconds
_MAX_PERIOD: Final = 1800  # seconds


def validate_autoscaler(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    yield from within("spec.minReplicas", least, 1, math.inf, "must be greater than or equal to 1")
    yield from within("spec.maxReplicas", most, 1, math.inf, "must be greater than 0")
    if least is not None and most < least:
        yield invalid_value("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    target = spec.get("scaleTargetRef") or {}
    yield from _validate_reference(target, "spec.scaleTargetRef")
    known = {} if old is None else (old.get("spec") or {}).get("scaleTargetRef") or {}
    if any(target.get(field) != known.get(field) for field in ("apiVersion", "kind")):
        yield from _validate_version(target, "spec.scaleTargetRef", grouped=target.get("kind") != _UNGROUPED)
    yield from each(spec, "metrics", "spec", _validate_metric)
    yield from within(
        "spec.metrics[0].resource.target.averageUtilization",  # it is a metric in v2
        spec.get("targetCPUUtilizationPercentage"),
        1,
        math.inf,
        "must be greater than 0",
    )
    behavior = spec.get("behavior") or {}
    for field in ("scaleUp", "scaleDown"):
        if behavior.get(field) is not None:
            yield from _validate_rules(behavior[field], f"spec.behavior.{field}")


def _validate_reference(reference: Obj, path: str) -> Iterator[FieldError]:
    for field in ("kind", "name"):
        yield from _validate_segment(reference.get(field) or "", f"{path}.{field}", "")


def _validate_version(reference: Obj, path: str, *, grouped: bool) -> Iterator[FieldError]:
    version = reference.get("apiVersion") or ""
    if version.count("/") > 1:
        yield invalid_value(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    elif grouped and not version.rpartition("/")[0]:
        yield invalid_value(f"{path}.apiVersion", version, "apiVersion must specify API group")


def _validate_segment(name: str, path: str, missing: str) -> Iterator[FieldError]:
    """Validate a name that must fit in a URL."""
    yield from needed(path, name, missing)
    if name in (".", ".."):
        yield invalid_value(path, name, f"may not be '{name}'")
    for char in "/%":
        if char in name:
            yield invalid_value(path, name, f"may not contain '{char}'")


def _validate_metric(metric: Obj, path: str) -> Iterator[FieldError]:
    kind = metric.get("type") or ""
    yield from needed(f"{path}.type", kind, "must specify a metric source type")
    yield from one_of(f"{path}.type", kind, _TYPES)
    present = [source for source in _SOURCES if metric.get(source) is not None]
    if present:
        yield from _validate_source(present[0], metric[present[0]], f"{path}.{present[0]}")
    wanted = _TYPES.get(kind, "")
    if wanted and wanted not in present:
        yield required(f"{path}.{wanted}", "must populate information for the given metric source")
    if len(present) > 1:
        for source in present:
            if source != wanted:
                yield forbidden_value(f"{path}.{source}", "must populate the given metric source only")


def _validate_source(kind: str, source: Obj, path: str) -> Iterator[FieldError]:
    target = source.get("target") or {}
    if kind == "object":
        yield from _validate_reference(source.get("describedObject") or {}, f"{path}.describedObject")
        yield from _validate_version(source.get("describedObject") or {}, f"{path}.describedObject", grouped=False)
    if kind in ("resource", "containerResource"):
        yield from needed(f"{path}.name", source.get("name"), "must specify a resource name")
        if kind == "containerResource" and not source.get("container"):
            yield required(f"{path}.container", "must specify a container")
    else:
        name = (source.get("metric") or {}).get("name") or ""
        yield from _validate_segment(name, f"{path}.metric.name", "must specify a metric name")
    yield from _validate_target(target, f"{path}.target")
    yield from _validate_choice(kind, target, f"{path}.target")


def _validate_target(target: Obj, path: str) -> Iterator[FieldError]:
    kind = target.get("type") or ""
    yield from needed(f"{path}.type", kind, "must specify a metric target type")
    if kind not in _TARGETS:
        yield invalid_value(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    for field in ("value", "averageValue"):
        if (amount := target.get(field)) is not None and quantities.amount(amount) <= 0:
            yield invalid_value(f"{path}.{field}", amount, "must be positive")
    percent = target.get("averageUtilization")
    yield from within(f"{path}.averageUtilization", percent, 1, math.inf, "must be greater than 0")


def _validate_choice(kind: str, target: Obj, path: str) -> Iterator[FieldError]:
    """Validate the choice of the target: each source allows some forms, and only one at a time."""
    given = {field for field in ("value", "averageValue", "averageUtilization") if target.get(field) is not None}
    if kind == "object" and not given & {"value", "averageValue"}:
        yield required(f"{path}.averageValue", "must set either a target value or averageValue")
    if kind == "external":
        yield from needed(
            f"{path}.averageValue",
            given & {"value", "averageValue"},
            "must set either a target value for metric or a per-pod target",
        )
        if given >= {"value", "averageValue"}:
            yield forbidden_value(f"{path}.value", "may not set both a target value for metric and a per-pod target")
    if kind == "pods" and "averageValue" not in given:
        yield required(f"{path}.averageValue", "must specify a positive target averageValue")
    if kind in ("resource", "containerResource"):
        yield from needed(
            f"{path}.averageUtilization",
            given & {"averageValue", "averageUtilization"},
            "must set either a target raw value or a target utilization",
        )
        if given >= {"averageValue", "averageUtilization"}:
            yield forbidden_value(
                f"{path}.averageValue", "may not set both a target raw value and a target utilization"
            )


def _validate_rules(rules: Obj, path: str) -> Iterator[FieldError]:
    window, place = rules.get("stabilizationWindowSeconds"), f"{path}.stabilizationWindowSeconds"
    yield from within(place, window, 0, math.inf, "must be greater than or equal to zero")
    yield from within(place, window, -math.inf, _MAX_WINDOW, f"must be less than or equal to {_MAX_WINDOW}")
    yield from each(rules, "policies", path, _validate_policy)


def _validate_policy(policy: Obj, path: str) -> Iterator[FieldError]:
    period, place = policy.get("periodSeconds") or 0, f"{path}.periodSeconds"
    yield from within(f"{path}.value", policy.get("value") or 0, 1, math.inf, "must be greater than zero")
    yield from within(place, period, 1, math.inf, "must be greater than zero")
    yield from within(place, period, -math.inf, _MAX_PERIOD, f"must be less than or equal to {_MAX_PERIOD}")
