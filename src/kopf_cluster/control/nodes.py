"""
Nodes that are not there: they are ready, and their heartbeats go on.
"""

from __future__ import annotations

from typing import Final

from kopf_cluster import ages
from kopf_cluster.control.access import Objects, make_condition
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.storage import Change

NODE: Final = "kopf-node"
HEARTBEAT: Final = 10.0  # seconds, as of the kubelet

_LEASES: Final = "leases.coordination.k8s.io"
_LEASE_NAMESPACE: Final = "kube-node-lease"
_CAPACITY: Final = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


class Nodes:
    """Keeps all nodes ready, whoever has created them."""

    def __init__(self, access: Objects) -> None:
        self._objects = access

    @staticmethod
    def create_initial(access: Objects) -> None:
        """Create the only node of a new cluster."""
        labels = {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        if not access.has("nodes", ("", NODE)):
            access.create("nodes", "", {"metadata": {"name": NODE, "labels": labels}, "spec": {}})

    def observe(self, bucket: str, change: Change) -> None:
        name = change.record.key[1]
        if bucket == "nodes" and change.type == "ADDED":
            self._objects.queue.add(("node", name), lambda: self._begin(name))

    def _begin(self, name: str) -> None:
        node = self._objects.get("nodes", ("", name))
        if node is None:
            return
        now, old = ages.now(), (node.get("status") or {}).get("conditions") or []
        conditions = [{**make_condition(old, *condition, now), "lastHeartbeatTime": now} for condition in _CONDITIONS]
        self._objects.set_status(
            "nodes",
            ("", name),
            {
                "capacity": _CAPACITY,
                "allocatable": _CAPACITY,
                **(node.get("status") or {}),
                "conditions": conditions,
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
                "nodeInfo": {
                    "kubeletVersion": "v1.36.0+local",
                    "osImage": "none",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                    "containerRuntimeVersion": "none://0",
                    "kernelVersion": "none",
                    "machineID": "",
                    "systemUUID": "",
                    "bootID": "",
                    "kubeProxyVersion": "",
                },
            },
        )
        self._beat(name)

    def _beat(self, name: str) -> None:
        """Renew the lease of the node as long as there is the node."""
        node = self._objects.get("nodes", ("", name))
        if node is None:
            return
        now = ages.micro_now()
        lease = self._make_lease(node, now)
        if self._objects.create(_LEASES, _LEASE_NAMESPACE, lease) is None:
            self._objects.update(
                _LEASES,
                (_LEASE_NAMESPACE, name),
                lambda old: {**old, "spec": {**(old.get("spec") or {}), "renewTime": now}},
            )
        self._objects.queue.add_later(HEARTBEAT, ("heartbeat", name), lambda: self._beat(name))

    @staticmethod
    def _make_lease(node: Obj, now: str) -> Obj:
        metadata = node["metadata"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]}
        return {
            "metadata": {"name": metadata["name"], "ownerReferences": [owner]},
            "spec": {"holderIdentity": metadata["name"], "leaseDurationSeconds": 40, "renewTime": now},
        }
