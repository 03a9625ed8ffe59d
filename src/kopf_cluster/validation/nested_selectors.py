"""
Label selectors inside of objects.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from kopf_cluster.kinds.objects import validate_labels, validate_qualified
from kopf_cluster.statuses import FieldError, forbidden_value, invalid_value, required

Obj: TypeAlias = dict[str, Any]


def validate_selector(selector: Obj, path: str) -> Iterator[FieldError]:
    """Give everything that is wrong with a selector; an empty one is good."""
    yield from validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        yield from validate_requirement(requirement, f"{path}.matchExpressions[{index}]")


def validate_requirement(
        requirement: Obj, path: str, *, comparing: bool = False, rule: str = "not a valid selector operator",
) -> Iterator[FieldError]:
    """Give everything that is wrong with one expression; those about nodes can be comparing, too: ``Gt``, ``Lt``."""
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden_value(f"{path}.values",
                                  "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif comparing and operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid_value(f"{path}.operator", operator, rule)
    yield from validate_qualified(f"{path}.key", requirement.get("key") or "")
