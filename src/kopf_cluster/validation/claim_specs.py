"""
Volumes and claims of them: how they are accessed, and how much there is; nobody gets back what is given already.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final, TypeAlias

from kopf_cluster.kinds import quantities
from kopf_cluster.statuses import FieldError, forbidden_value, invalid_value, required, unsupported_value
from kopf_cluster.validation.fields import validate_selector

Obj: TypeAlias = dict[str, Any]

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
# What a volume has besides its source.
_COMMON: Final = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


def validate_claim(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from validate_spec(spec, "spec")
    if old is not None and (size := _requested(spec)) is not None:
        yield from _validate_shrinking(quantities.amount(size), old)


def validate_spec(spec: Obj, path: str) -> Iterator[FieldError]:
    """Give everything that is wrong with a claim, alone or in a template."""
    yield from validate_selector(spec.get("selector") or {}, f"{path}.selector")
    yield from _validate_modes(spec, path, "at least 1 access mode is required")
    size = _requested(spec)
    if size is None:
        yield required(f"{path}.resources[storage]")
    elif quantities.amount(size) <= 0:
        yield invalid_value(f"{path}.resources[storage]", size, "must be greater than zero")


def validate_volume(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from _validate_modes(spec, "spec", "")
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield required("spec.capacity")
    if capacity.keys() != {"storage"}:
        yield unsupported_value("spec.capacity", capacity or None, ("storage",))
    for name, size in capacity.items():
        if quantities.amount(size) <= 0:
            yield invalid_value(f"spec.capacity[{name}]", size, "must be greater than zero")
    sources = [name for name in spec if name not in _COMMON]
    for name in sources[1:]:
        yield forbidden_value(f"spec.{name}", "may not specify more than 1 volume type")
    if not sources:
        yield required("spec", "must specify a volume type")


def _validate_modes(spec: Obj, path: str, missing: str) -> Iterator[FieldError]:
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{path}.accessModes", missing)
    for mode in modes:
        if mode not in _MODES:
            yield unsupported_value(f"{path}.accessModes", mode, _MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden_value(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")


def _requested(spec: Obj) -> str | None:
    size: str | None = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return size


def _validate_shrinking(size: Fraction, old: Obj) -> Iterator[FieldError]:
    """A claim that could not grow can ask for less, but still for more than it has; see "Recovering from Failure"."""
    before = _requested(old.get("spec") or {}) or "0"
    given = ((old.get("status") or {}).get("capacity") or {}).get("storage", "0")
    if size < quantities.amount(before) and size <= quantities.amount(given):
        yield forbidden_value("spec.resources.requests.storage", "field can not be less than status.capacity")
