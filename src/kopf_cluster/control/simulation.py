"""
A cluster as if it had nodes: what is put together when the simulation is on.
"""
from __future__ import annotations

from typing import Protocol

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


class ControlLoop(Protocol):
    """What follows the changes of objects."""

    def observe(self, bucket: str, change: Change) -> None: ...


def make_simulation(store: Store, registry: Registry, writer: Writer, queue: WorkQueue) -> list[ControlLoop]:
    """Make all control loops of the simulation."""
    access = Objects(store, registry, writer, queue)
    return [Nodes(access), Kubelet(access), ReplicaSets(access), ReplicationControllers(access), Deployments(access),
            StatefulSets(access), DaemonSets(access), Jobs(access), CronJobs(access), Volumes(access),
            Services(access)]


def create_nodes(store: Store, registry: Registry, writer: Writer, queue: WorkQueue) -> None:
    """Create the node on which everything runs."""
    Nodes.create_initial(Objects(store, registry, writer, queue))
