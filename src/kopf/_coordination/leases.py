"""
Leases: how replicas see each other.

Their fields have the form of client-go, so that its tools understand them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
from collections.abc import Mapping
from typing import Any

from kopf._coordination.assignment import NO_REPORT, Assignment, Report
from kopf._values.codec import UnreadableError
from kopf._values.objects import KubeObject
from kopf._values.resources import LEASES

LEADER = "leader"
SHARDS = "shards"

GROUP_LABEL = "kopf.dev/coordination"
"""The label of all Leases of a group of replicas; its value is the name of the group."""

_REPORT = "kopf.dev/replica"
_ASSIGNMENT = "kopf.dev/assignment"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """The settings that all replicas of a group share, and the identity of this one."""

    mode: str
    """:data:`LEADER` or :data:`SHARDS`."""
    name: str
    """The name of the group, and of the Lease of its coordinator."""
    identity: str
    """The name of the replica for humans, e.g. that of the pod."""
    lease_duration: float = 15.0
    """The time without a renewal after which others take a replica for dead, in seconds."""
    renew_deadline: float = 10.0
    """The time without a renewal after which a replica stops acting, in seconds."""
    retry_period: float = 2.0
    """The interval between renewals, in seconds."""
    version: str = ""
    handlers: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lease:
    """One Lease, as much of it as the replicas need."""

    name: str
    version: str = ""
    """The resource version; empty for a Lease that does not exist yet."""
    holder: str = ""
    """The replica in its current life; empty if the Lease is free."""
    duration: int = 1
    """How long the Lease is valid without renewals, in seconds."""
    transitions: int = 0
    acquired: str = ""
    """When the holder has got it, for humans; empty for a new holder: the next write sets it."""
    renewed: str = ""
    report: Report = NO_REPORT
    assignment: Assignment | None = None
    """Only in the Lease of the coordinator, which has the name of the group."""
    is_ours: bool = True
    """Whether it has the label of a group; otherwise, it is a stranger's Lease of the same name."""

    @classmethod
    def parse(cls, obj: KubeObject) -> Lease:
        """Parse the Lease; values that make no sense count as absent."""
        try:
            spec = obj.get("spec") or {}
        except UnreadableError:
            spec = {}
        annotations = obj.head.annotations or {}
        report, assignment = NO_REPORT, None
        with contextlib.suppress(KeyError, ValueError):
            report = Report.parse(annotations[_REPORT])
        with contextlib.suppress(KeyError, ValueError):
            assignment = Assignment.parse(annotations[_ASSIGNMENT])
        return cls(
            name=obj.head.name,
            version=obj.head.resourceVersion,
            holder=str(spec.get("holderIdentity") or ""),
            duration=int(spec.get("leaseDurationSeconds") or 1),
            transitions=int(spec.get("leaseTransitions") or 0),
            acquired=str(spec.get("acquireTime") or ""),
            renewed=str(spec.get("renewTime") or ""),
            report=report,
            assignment=assignment,
            is_ours=GROUP_LABEL in (obj.head.labels or {}),
        )

    def make_patch(self, group: str, now: datetime.datetime) -> Mapping[str, Any]:
        """Make the body of the creation, or the merge patch that fails if the version is outdated."""
        time = now.isoformat(timespec="microseconds").replace("+00:00", "Z")
        annotations = {_REPORT: self.report.dump()}
        if self.assignment is not None:
            annotations[_ASSIGNMENT] = self.assignment.dump()
        metadata = {"name": self.name, "labels": {GROUP_LABEL: group}, "annotations": annotations}
        return {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": metadata | ({"resourceVersion": self.version} if self.version else {}),
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.duration,
                "leaseTransitions": self.transitions,
                "acquireTime": self.acquired or time,
                "renewTime": time,
            },
        }

    def is_same(self, other: Lease) -> bool:
        """Tell if nothing but the renewal has changed."""
        report = dataclasses.replace(self.report, beat=other.report.beat)
        return dataclasses.replace(self, report=report, version=other.version, renewed=other.renewed) == other


def name_holder(holder: str) -> str:
    """Name the replica that holds a Lease: without the suffix that tells its lives apart."""
    return holder.rpartition("_")[0] or holder


def round_up(duration: float) -> int:
    """Round the duration up to whole seconds for the field of a Lease, at least one."""
    return max(1, math.ceil(duration))
