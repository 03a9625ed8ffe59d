"""
The simulation of workloads: the control loops that make a cluster behave as if it had nodes.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from kopf_cluster.control.deployments import Deployments, ReplicaSets, ReplicationControllers
from kopf_cluster.control.jobs import CronJobs, Jobs
from kopf_cluster.control.kubelet import Kubelet, Nodes
from kopf_cluster.control.loops import ControlLoop, Objects
from kopf_cluster.control.services import Services
from kopf_cluster.control.sets import DaemonSets, StatefulSets
from kopf_cluster.control.volumes import Volumes

Extent: TypeAlias = bool | Literal["controllers"]
"""The extent of the simulation: nothing, everything, or only the controllers, without nodes and kubelets."""


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
