"""
How to write: the options of creations, updates, and patches, and those of deletions.
"""

from __future__ import annotations

import datetime
from typing import Final

import msgspec

from kopf_cluster import ages
from kopf_cluster.kinds.kind import Kind, Obj

CONTROLLER: Final = "kube-controller-manager"
"""Who writes if it is nobody from outside."""

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"

POLICIES: Final[dict[str, tuple[str, ...]]] = {"Foreground": (FOREGROUND,), "Background": (), "Orphan": (ORPHAN,)}
"""The policies of propagation, and the finalizers by which the garbage collector knows of them."""


class Preconditions(msgspec.Struct):
    """What must be so for a deletion to happen."""

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
        """Give the finalizers with the one by which the garbage collector knows what to do with the dependents.

        If nothing is wanted, they are as they were, and so decide themselves.
        """
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
    """How to write: for real or not, and what to do about unknown fields."""

    dry_run: bool = False
    strict: bool = False
    """Whether unknown and repeated fields are refused."""
    repeated: tuple[str, ...] = ()
    """Notes about the fields that are more than once in what was sent."""
    text: bytes = b""
    """The whole object as it was sent in JSON, if it was."""
    warnings: list[str] | None = None
    """Where to add the warnings about unknown fields; absent if nobody wants them."""
    remarks: list[str] | None = None
    """Where to add what is odd in the object as such; absent if nobody listens."""
    manager: str = CONTROLLER
    """Who writes, as they call themselves."""
    agent: str = ""
    """Which program writes, if they do not tell."""
    applied: bool = False
    """Whether the managed fields are settled already."""
    patching: bool = False
    """Whether the new state is made by a patch, so that it is the patch to blame for what is wrong."""


DEFAULT: Final = WriteOptions()


# The time that pods on nodes get to end: only a kubelet knows when they have, so they stay until it lets them go.
#
# See "Termination of Pods" of the Kubernetes documentation.

_ENDED: Final = frozenset({"Failed", "Succeeded"})
_MAX_PERIOD: Final = 2**31  # seconds; later times cannot be told


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
