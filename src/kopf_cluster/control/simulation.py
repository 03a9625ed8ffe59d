"""
A cluster as if it had nodes: what is put together when the simulation is on.
"""
from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from ..kinds.registry import Registry
from ..store.storage import Change, Store
from ..writes.writing import Writer
from .access import Objects
from .daemons import DaemonSets
from .deployments import Deployments, ReplicaSets, ReplicationControllers
from .jobs import CronJobs, Jobs
from .kubelet import Kubelet
from .nodes import Nodes
from .services import Services
from .stateful import StatefulSets
from .volumes import Volumes
from .work import WorkQueue

#: What is simulated: nothing, everything, or only what controllers do, but neither nodes nor what happens there.
Extent: TypeAlias = bool | Literal["controllers"]


class ControlLoop(Protocol):
    """What follows the changes of objects."""

    def observe(self, bucket: str, change: Change) -> None: ...


def make_simulation(
        extent: Extent, store: Store, registry: Registry, writer: Writer, queue: WorkQueue,
) -> list[ControlLoop]:
    """Make the control loops of the simulation."""
    access = Objects(store, registry, writer, queue)
    nodes: list[ControlLoop] = [] if extent == "controllers" else [Nodes(access), Kubelet(access)]
    return [*nodes, ReplicaSets(access), ReplicationControllers(access), Deployments(access), StatefulSets(access),
            DaemonSets(access), Jobs(access), CronJobs(access), Volumes(access), Services(access)]


def create_nodes(store: Store, registry: Registry, writer: Writer, queue: WorkQueue) -> None:
    """Create the node on which everything runs."""
    Nodes.create_initial(Objects(store, registry, writer, queue))
