"""
The options of creations, updates, and patches, and the options of deletions.
"""

from __future__ import annotations

import datetime
from typing import Final

import msgspec

from kopf_cluster import ages
from kopf_cluster.kinds.kind import Kind, Obj

CONTROLLER: Final = "kube-controller-manager"
"""The field manager of control loops."""

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"

POLICIES: Final[dict[str, tuple[str, ...]]] = {"Foreground": (FOREGROUND,), "Background": (), "Orphan": (ORPHAN,)}
"""The propagation policies, and their finalizers for the garbage collector."""


class Preconditions(msgspec.Struct):
    """The preconditions of a deletion."""

    uid: str | None = None
    resourceVersion: str | None = None


class DeleteOptions(msgspec.Struct):
    """The options of a deletion, as in `meta/v1`."""

    gracePeriodSeconds: int | None = None
    preconditions: Preconditions | None = None
    orphanDependents: bool | None = None
    propagationPolicy: str | None = None
    dryRun: list[str] | None = None

    def settle_finalizers(self, finalizers: list[str]) -> list[str]:
        """Return the finalizers with the one of the propagation policy; the same ones if there is no policy."""
        policy = self.propagationPolicy
        if self.orphanDependents is not None:
            policy = "Orphan" if self.orphanDependents else "Background"
        if policy is None:
            return finalizers
        wanted = POLICIES[policy]
        if set(wanted) == {FOREGROUND, ORPHAN} & set(finalizers):
            return finalizers
        return [*(one for one in finalizers if one not in (FOREGROUND, ORPHAN)), *wanted]


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a creation, an update, or a patch."""

    dry_run: bool = False
    strict: bool = False
    """Whether unknown and repeated fields are refused."""
    repeated: tuple[str, ...] = ()
    """Notes about repeated fields in the request."""
    text: bytes = b""
    """The whole object as JSON, if the request contains it in this form."""
    warnings: list[str] | None = None
    """Collects the warnings about unknown fields; none to omit them."""
    remarks: list[str] | None = None
    """Collects the warnings about strange, but valid, objects; none to omit them."""
    manager: str = CONTROLLER
    """The name of the field manager."""
    applied: bool = False
    """Whether the managed fields are settled already."""
    patching: bool = False
    """Whether a patch makes the new state, so that errors are about the patch."""


DEFAULT: Final = WriteOptions()


# The grace period of pods on nodes, which remain until the kubelet deletes them for good.
#
# See "Termination of Pods" of the Kubernetes documentation.

_ENDED: Final = frozenset({"Failed", "Succeeded"})
_MAX_PERIOD: Final = 2**31  # seconds; later times cannot be told


def is_graceful(kind: Kind) -> bool:
    """Whether objects of the kind have grace periods."""
    return kind.bucket == "pods"


def find_period(kind: Kind, obj: Obj, wanted: int | None) -> int:
    """Return the grace period of a deletion, in seconds: the wanted one, or the object's; it never grows."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    if not is_graceful(kind):
        return 0
    if "deletionTimestamp" in metadata:  # a grace period lasts to its end, even with nothing left to do
        known = int(metadata.get("deletionGracePeriodSeconds") or 0)
        return known if wanted is None else min(known, _limit(wanted))
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in _ENDED:
        return 0
    return _limit((spec.get("terminationGracePeriodSeconds") or 0) if wanted is None else wanted)


def mark(metadata: Obj, period: int, now: str) -> None:
    """Set the time of the deletion in place, unless it is even earlier already."""
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
