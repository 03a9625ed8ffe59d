"""
Volumes of pods: each has a name and exactly one source, which names what it takes.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError, forbidden_value, required
from kopf_cluster.validation.item_names import validate_item_name

Obj: TypeAlias = dict[str, Any]

# What must be named in a source, though the published schemas do not say so.
_NAMES: Final = {"configMap": "name", "secret": "secretName"}


# In this order, the server looks at the sources; what comes after the first one that is there, is too much.
_ORDER: Final = ("emptyDir", "hostPath", "secret", "nfs", "persistentVolumeClaim", "downwardAPI", "configMap",
                 "projected", "csi", "ephemeral", "image")


def validate_volumes(volumes: Sequence[Obj], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        yield from _validate_source(volume, f"{path}[{index}]")
        yield from validate_item_name(volume.get("name") or "", f"{path}[{index}].name", names)


def _validate_source(volume: Obj, path: str) -> Iterator[FieldError]:
    first, *others = sorted((name for name in volume if name != "name"), key=_rank) or [""]
    field = _NAMES.get(first)
    if field is not None and not volume[first].get(field):
        yield required(f"{path}.{first}.{field}")
    for name in others:
        yield forbidden_value(f"{path}.{name}", "may not specify more than 1 volume type")


def _rank(source: str) -> int:
    return _ORDER.index(source) if source in _ORDER else len(_ORDER)
