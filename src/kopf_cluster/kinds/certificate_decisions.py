"""
Conditions of requests for certificates: who may decide, and that nobody takes a decision back.

Decisions are made through the subresource ``approval``, and kept by ``status``, which is of the signers. See
"Certificates and Certificate Signing Requests" of the Kubernetes documentation.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster import ages
from kopf_cluster.statuses import (
    FieldError,
    duplicate_value,
    forbidden_value,
    invalid_value,
    required,
    unsupported_value,
)

Obj: TypeAlias = dict[str, Any]
Conditions: TypeAlias = list[Obj]

_DECISIONS: Final = ("Approved", "Denied")
_FINAL: Final = (*_DECISIONS, "Failed")
_STATUSES: Final = ("False", "True", "Unknown")
_PATH: Final = "status.conditions"


def settle(status: Obj, before: Obj, *, keep: bool = False) -> Obj:
    """Give the status with the times of its conditions, and with the decisions as they were if these are kept.

    Conditions of wrong types are left as they are: they are refused when the object is validated.
    """
    conditions = status.get("conditions")
    if not _is_well_formed(conditions):
        return status
    if not conditions:
        return {name: value for name, value in status.items() if name != "conditions"}
    old = before.get("conditions") or []
    return {**status, "conditions": _stamp(_keep(conditions, old) if keep else conditions, old)}


def _is_well_formed(conditions: Any) -> bool:
    return conditions is None or (isinstance(conditions, list) and all(
        isinstance(item, dict) and all(value is None or isinstance(value, str) for value in item.values())
        for item in conditions))


def _keep(new: Conditions, old: Conditions) -> Conditions:
    """Restore the decisions as they were, unless some are added or removed, which is refused later."""
    result = list(new)
    for kind in _DECISIONS:
        known, places = _of(old, kind), [place for place, item in enumerate(new) if item.get("type") == kind]
        if len(known) == len(places):
            for place, item in zip(places, known, strict=True):
                result[place] = item
    return result


def _stamp(new: Conditions, old: Conditions) -> Conditions:
    """Tell when the conditions were updated, and since when they are so, where the client does not."""
    since = {(item.get("type"), item.get("status")): item.get("lastTransitionTime") for item in reversed(old)}
    return [{**item, "lastUpdateTime": item.get("lastUpdateTime") or ages.now(),
             "lastTransitionTime": (item.get("lastTransitionTime")
                                    or since.get((item.get("type"), item.get("status"))) or ages.now())}
            for item in new]


def validate_approval(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Give everything that is wrong with the conditions, and those that are taken back."""
    conditions = _conditions(new)
    seen: set[Any] = set()
    for index, item in enumerate(conditions):
        kind, status, path = item.get("type") or "", item.get("status") or "", f"{_PATH}[{index}]"
        if not kind:
            yield required(f"{path}.type")
        allowed = ("True",) if kind in _FINAL else _STATUSES
        if not status:
            yield required(f"{path}.status")
        elif status not in allowed:
            yield unsupported_value(f"{path}.status", status, allowed)
        if kind in _DECISIONS and seen & ({*_DECISIONS} - {kind}):
            yield invalid_value(f"{path}.type", kind, "Approved and Denied conditions are mutually exclusive")
        if kind in seen:
            yield duplicate_value(f"{path}.type", kind)
        seen.add(kind)
    for kind in _FINAL:
        if len(_of(conditions, kind)) < len(_of(_conditions(old), kind)):
            yield forbidden_value(_PATH, f'updates may not remove a condition of type "{kind}"')


def validate_status(new: Obj, old: Obj) -> Iterator[FieldError]:
    """The same, and the decisions that are made where they cannot be made."""
    yield from validate_approval(new, old)
    for kind in _DECISIONS:
        if len(_of(_conditions(new), kind)) > len(_of(_conditions(old), kind)):
            yield forbidden_value(_PATH, f'updates may not add a condition of type "{kind}"')


def _of(conditions: Conditions, kind: str) -> Conditions:
    return [item for item in conditions if item.get("type") == kind]


def _conditions(obj: Obj) -> Conditions:
    return (obj.get("status") or {}).get("conditions") or []
