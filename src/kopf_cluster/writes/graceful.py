"""
The time that pods on nodes get to end: only a kubelet knows when they have, so they stay until it lets them go.

See "Termination of Pods" of the Kubernetes documentation.
"""
from __future__ import annotations

import datetime
from typing import Final

from kopf_cluster import ages
from kopf_cluster.kinds.kind import Kind, Obj

_ENDED: Final = frozenset({"Failed", "Succeeded"})
_MAX_PERIOD: Final = 2 ** 31  # seconds; later times cannot be told


def is_graceful(kind: Kind) -> bool:
    """Whether objects of the kind can be given time."""
    return kind.bucket == "pods"


def find_period(kind: Kind, obj: Obj, wanted: int | None) -> int:
    """Give the seconds that the object has, as it is deleted: as wanted or as it is made for; later, only fewer."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    if not is_graceful(kind):
        return 0
    if "deletionTimestamp" in metadata:  # whoever has time has it to the end, even if there is nothing left to do
        known = int(metadata.get("deletionGracePeriodSeconds") or 0)
        return known if wanted is None else min(known, _limit(wanted))
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in _ENDED:
        return 0
    return _limit((spec.get("terminationGracePeriodSeconds") or 0) if wanted is None else wanted)


def is_pending(metadata: Obj, period: int) -> bool:
    """Whether the object has that much time already: then, nothing about its deletion is changed by asking again."""
    return period > 0 and metadata.get("deletionGracePeriodSeconds") == period


def mark(metadata: Obj, period: int, now: str) -> None:
    """Note until when the object has time, in place, unless it has even less already."""
    known = metadata.get("deletionGracePeriodSeconds", 0)
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = _shift(now, period)
    elif period < known:
        metadata["deletionTimestamp"] = _shift(metadata["deletionTimestamp"], period - known)
    else:
        return
    metadata["deletionGracePeriodSeconds"] = period


def _limit(period: int) -> int:
    return 1 if period < 0 else min(period, _MAX_PERIOD)


def _shift(timestamp: str, seconds: int) -> str:
    return ages.stamp(datetime.datetime.fromisoformat(timestamp) + datetime.timedelta(seconds=seconds))
