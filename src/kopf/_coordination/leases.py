"""Leases: how replicas see each other. They are read and written as by client-go, so its tools understand them."""

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
    """What the replicas of a group agree upon, and who this one is."""

    mode: str
    """:data:`LEADER` or :data:`SHARDS`."""
    name: str
    """Of the group, and of the Lease of its coordinator."""
    identity: str
    """Of the replica, for humans, e.g. the name of the pod."""
    lease_duration: float = 15.0
    """After how many seconds without a renewal a replica is taken for dead."""
    renew_deadline: float = 10.0
    """After how many seconds without a renewal it stops to act."""
    retry_period: float = 2.0
    """How often it renews, in seconds."""
    version: str = ""
    handlers: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lease:
    """One Lease, as much of it as the replicas need."""

    name: str
    version: str = ""
    """The resource version; empty if it is to be created."""
    holder: str = ""
    """The replica in this life of it; empty if it is free."""
    duration: int = 1
    """For how long it is valid without renewals, in seconds."""
    transitions: int = 0
    acquired: str = ""
    """When the holder has got it, for humans; empty if that is just to be written."""
    renewed: str = ""
    report: Report = NO_REPORT
    assignment: Assignment | None = None
    """Only in the Lease of the coordinator, which has the name of the group."""
    is_ours: bool = True
    """Whether it has the label of a group; otherwise, it is of a stranger with the same name."""

    @classmethod
    def parse(cls, obj: KubeObject) -> Lease:
        """Read it; what makes no sense is taken as absent."""
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
        """Make the body of the creation, or the merge-patch that fails if the version is not the current one."""
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
        """Tell if nothing has changed but for the renewal."""
        report = dataclasses.replace(self.report, beat=other.report.beat)
        return dataclasses.replace(self, report=report, version=other.version, renewed=other.renewed) == other


def round_up(duration: float) -> int:
    """Give whole seconds for the field of a Lease, at least one."""
    return max(1, math.ceil(duration))
