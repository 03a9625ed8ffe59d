"""
A cluster as if it had nodes: what is put together when the simulation is on.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from kopf_cluster.control.deployments import Deployments, ReplicaSets, ReplicationControllers
from kopf_cluster.control.jobs import CronJobs, Jobs
from kopf_cluster.control.kubelet import Kubelet, Nodes
from kopf_cluster.control.loops import Objects
from kopf_cluster.control.services import Services
from kopf_cluster.control.sets import DaemonSets, StatefulSets
from kopf_cluster.control.volumes import Volumes
from kopf_cluster.store.storage import Change

Extent: TypeAlias = bool | Literal["controllers"]
"""What is simulated: nothing, everything, or only what controllers do, but neither nodes nor what happens there."""


class ControlLoop(Protocol):
    """What follows the changes of objects."""

    def observe(self, bucket: str, change: Change) -> None: ...


def make_simulation(extent: Extent, access: Objects) -> list[ControlLoop]:
    """Make the control loops of the simulation."""
    nodes: list[ControlLoop] = [] if extent == "controllers" else [Nodes(access), Kubelet(access)]
    return [
        *nodes,
        ReplicaSets(access),
        ReplicationControllers(access),
        Deployments(access),
        StatefulSets(access),
        DaemonSets(access),
        Jobs(access),
        CronJobs(access),
        Volumes(access),
        Services(access),
    ]
