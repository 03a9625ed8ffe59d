"""
Scheduling of pods: affinities, tolerations, and topology spread constraints.

See "Assigning Pods to Nodes", "Taints and Tolerations", and "Pod Topology Spread Constraints".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from kopf_cluster.kinds.objects import validate_labels, validate_qualified
from kopf_cluster.statuses import (
    FieldError,
    duplicate_value,
    invalid_value,
    needed,
    one_of,
    required,
    unsupported_value,
)
from kopf_cluster.validation.fields import Obj, each, validate_requirement, validate_selector, within

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

_OPERATOR_RULE: Final = "not a valid selector operator"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_affinity(affinity: Obj, path: str) -> Iterator[FieldError]:
    yield from _validate_node_affinity(affinity.get("nodeAffinity") or {}, f"{path}.nodeAffinity")
    for field in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(field) or {}
        yield from each(terms, _REQUIRED, f"{path}.{field}", _validate_pod_term)
        for index, weighted in enumerate(terms.get(_PREFERRED) or ()):
            place = f"{path}.{field}.{_PREFERRED}[{index}]"
            yield from _validate_weight(weighted, place)
            yield from _validate_pod_term(weighted.get("podAffinityTerm") or {}, f"{place}.podAffinityTerm")


def _validate_node_affinity(affinity: Obj, path: str) -> Iterator[FieldError]:
    if (selector := affinity.get(_REQUIRED)) is not None:
        place = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        terms = selector.get("nodeSelectorTerms") or []
        yield from needed(place, terms, "must have at least one node selector term")
        yield from each(selector, "nodeSelectorTerms", f"{path}.{_REQUIRED}", _validate_node_term)
    for index, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        place = f"{path}.{_PREFERRED}[{index}]"
        yield from _validate_weight(weighted, place)
        yield from _validate_node_term(weighted.get("preference") or {}, f"{place}.preference")


def _validate_weight(weighted: Obj, path: str) -> Iterator[FieldError]:
    return within(f"{path}.weight", weighted.get("weight") or 0, 1, 100, "must be in the range 1-100")


def _validate_node_term(term: Obj, path: str) -> Iterator[FieldError]:
    yield from each(term, "matchExpressions", path, validate_requirement, comparing=True)
    yield from each(term, "matchFields", path, _validate_node_fields)


def _validate_node_fields(requirement: Obj, path: str) -> Iterator[FieldError]:
    operator, key = requirement.get("operator") or "", requirement.get("key") or ""
    if operator not in ("In", "NotIn"):
        yield invalid_value(f"{path}.operator", operator, _OPERATOR_RULE)
    elif len(requirement.get("values") or ()) != 1:
        yield required(
            f"{path}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        )
    if key != "metadata.name":
        yield invalid_value(f"{path}.key", key, "not a valid field selector key")


def _validate_pod_term(term: Obj, path: str) -> Iterator[FieldError]:
    for field in ("labelSelector", "namespaceSelector"):
        yield from validate_selector(term.get(field) or {}, f"{path}.{field}")
    key = term.get("topologyKey") or ""
    yield from needed(f"{path}.topologyKey", key, "can not be empty")
    yield from validate_qualified(f"{path}.topologyKey", key)


def validate_spread(constraints: list[Obj], path: str) -> Iterator[FieldError]:
    kinds = [(one.get("topologyKey") or "", one.get("whenUnsatisfiable") or "") for one in constraints]
    for index, constraint in enumerate(constraints):
        place, (key, action) = f"{path}[{index}]", kinds[index]
        skew, domains = constraint.get("maxSkew") or 0, constraint.get("minDomains")
        yield from within(f"{place}.maxSkew", skew, 1, math.inf, "must be greater than zero")
        yield from needed(f"{place}.topologyKey", key, "can not be empty")
        yield from one_of(f"{place}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        if kinds[index] in kinds[index + 1 :]:
            yield duplicate_value(f"{place}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
        yield from within(f"{place}.minDomains", domains, 1, math.inf, "must be greater than zero")
        if domains is not None and action != "DoNotSchedule":
            yield invalid_value(
                f"{place}.minDomains",
                domains,
                f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}",
            )
        yield from validate_selector(constraint.get("labelSelector") or {}, f"{place}.labelSelector")


def validate_tolerations(tolerations: list[Obj], path: str) -> Iterator[FieldError]:
    for index, toleration in enumerate(tolerations):
        place, key, operator = f"{path}[{index}]", toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            yield from validate_qualified(f"{place}.key", key)
        elif operator != "Exists":
            yield invalid_value(
                f"{place}.operator",
                operator,
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield invalid_value(f"{place}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator == "Exists" and value:
            yield invalid_value(f"{place}.operator", toleration, "value must be empty when `operator` is 'Exists'")
        elif operator in ("", "Equal"):
            yield from validate_labels({"key": value}, f"{place}.operator")  # values are as of labels
        if effect and effect not in _EFFECTS:
            yield unsupported_value(f"{place}.effect", effect, _EFFECTS)
