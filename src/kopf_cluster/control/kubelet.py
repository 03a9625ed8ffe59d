"""
Simulated nodes and pods.

Nodes are ready, and renew their Leases. Pods are bound to a node, start, become ready, and (unless they are restarted)
complete; deleted pods take a moment to end. Other clients can overrule this: a pod that they mark as failed stays so.
"""

from __future__ import annotations

import zlib
from typing import Final

from kopf_cluster import ages
from kopf_cluster.control.loops import ControlLoop, Objects, key_of, make_condition, namespace_of
from kopf_cluster.control.workload import PODS, phase_of
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.watch_cache import Change, Key

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


class Nodes(ControlLoop):
    """Keeps all nodes ready, including those created by clients."""

    @staticmethod
    def create_initial(access: Objects) -> None:
        """Create the only node of a new cluster."""
        labels = {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        if not access.has("nodes", ("", NODE)):
            access.create("nodes", "", {"metadata": {"name": NODE, "labels": labels}, "spec": {}})

    def observe(self, bucket: str, change: Change) -> None:
        name = change.record.key[1]
        if bucket == "nodes" and change.type == "ADDED":
            self.objects.queue.add(self._begin, name)

    def _begin(self, name: str) -> None:
        node = self.objects.get("nodes", ("", name))
        if node is None:
            return
        old = (node.get("status") or {}).get("conditions") or ()
        conditions = [{**make_condition(old, *item), "lastHeartbeatTime": ages.now()} for item in _CONDITIONS]
        self.objects.set_status(
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
        node = self.objects.get("nodes", ("", name))
        if node is None:
            return
        now, uid = ages.micro_now(), node["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        lease = {
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
        }
        if self.objects.create(_LEASES, _LEASE_NAMESPACE, lease) is None:
            self.objects.update(
                _LEASES,
                (_LEASE_NAMESPACE, name),
                lambda old: {**old, "spec": {**(old.get("spec") or {}), "renewTime": now}},
            )
        self.objects.queue.add_later(HEARTBEAT, self._beat, name)


STARTING: Final = 0.1
"""The time that a pod takes to start, in seconds."""
RUNNING: Final = 1.0
"""The time that a pod runs unless it is restarted, in seconds."""
ENDING: Final = 0.1
"""The time that a deleted pod takes to end within its grace period, in seconds."""


class Kubelet(ControlLoop):
    """Schedules the pods, starts them, and ends them."""

    def __init__(self, access: Objects) -> None:
        super().__init__(access)
        self._turn = 0

    def observe(self, bucket: str, change: Change) -> None:
        if bucket == PODS and change.type != "DELETED":
            self.objects.queue.add(self._advance, change.record.key)
        elif bucket == "nodes" and change.type == "ADDED":
            for record in self.objects.records(PODS):
                self.objects.queue.add(self._advance, record.key)

    def _advance(self, key: Key) -> None:
        pod = self.objects.get(PODS, key)
        if pod is None:
            return
        if "deletionTimestamp" in pod["metadata"]:
            if pod["metadata"].get("deletionGracePeriodSeconds"):
                self.objects.queue.add_later(ENDING, self._let_go, key, pod["metadata"]["uid"])
        elif not pod["spec"].get("nodeName"):
            self._schedule(key, pod)
        elif phase_of(pod) in ("", "Pending"):
            self.objects.queue.add_later(STARTING, self._start, key, pod["metadata"]["uid"])
        elif phase_of(pod) == "Running":
            self._keep_running(key, pod)

    def _schedule(self, key: Key, pod: Obj) -> None:
        wanted = (pod["spec"].get("nodeSelector") or {}).items()
        nodes = [
            node
            for node in self.objects.records("nodes")
            if all(node.labels.get(label) == value for label, value in wanted)
        ]
        if nodes:
            self._turn += 1
            name = nodes[self._turn % len(nodes)].key[1]
            self.objects.update(
                PODS, key, lambda old: {**old, "spec": {**old["spec"], "nodeName": name}}, subresource="binding"
            )
            place = f"{key[0]}/{key[1]} to {name}"
            tell(self.objects, pod, "Scheduled", f"Successfully assigned {place}", by=SCHEDULER)
            return
        status = pod.get("status") or {}
        scheduled = make_condition(
            status.get("conditions") or (), "PodScheduled", "False", "Unschedulable", "0 nodes are available."
        )
        if not any(item["type"] == "PodScheduled" for item in status.get("conditions") or ()):
            tell(self.objects, pod, "FailedScheduling", scheduled["message"], by=SCHEDULER, kind="Warning")
        self.objects.set_status(PODS, key, {**status, "conditions": [scheduled]})

    def _start(self, key: Key, uid: str) -> None:
        pod = self.objects.get(PODS, key)
        if pod is None or pod["metadata"]["uid"] != uid or phase_of(pod) not in ("", "Pending"):
            return
        now, address = ages.now(), _address_of(uid)
        status = pod.get("status") or {}
        self.objects.set_status(
            PODS,
            key,
            {
                **status,
                "phase": "Running",
                "startTime": now,
                "hostIP": "127.0.0.1",
                "hostIPs": [{"ip": "127.0.0.1"}],
                "podIP": address,
                "podIPs": [{"ip": address}],
                "conditions": _conditions(pod, ready=True),
                "containerStatuses": [
                    _container(item, {"running": {"startedAt": now}}, ready=True)
                    for item in pod["spec"].get("containers") or ()
                ],
            },
        )
        self._tell_of_containers(pod, "Started", "Started container")

    def _tell_of_containers(self, pod: Obj, reason: str, what: str) -> None:
        for container in pod["spec"].get("containers") or ():
            tell(self.objects, pod, reason, f"{what} {container['name']}")

    def _let_go(self, key: Key, uid: str) -> None:
        pod = self.objects.get(PODS, key)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self._tell_of_containers(pod, "Killing", "Stopping container")
            self.objects.delete(PODS, key, grace_period=0)

    def _keep_running(self, key: Key, pod: Obj) -> None:
        if pod["spec"].get("restartPolicy", "Always") != "Always":
            self.objects.queue.add_later(RUNNING, self._complete, key, pod["metadata"]["uid"])
        if pod["spec"].get("readinessGates"):
            conditions = _conditions(pod, ready=True)
            if conditions != pod["status"].get("conditions"):
                self.objects.set_status(PODS, key, {**pod["status"], "conditions": conditions})

    def _complete(self, key: Key, uid: str) -> None:
        pod = self.objects.get(PODS, key)
        if pod is None or pod["metadata"]["uid"] != uid or phase_of(pod) != "Running":
            return
        now = ages.now()
        ended = {
            "terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "finishedAt": now,
                "startedAt": pod["status"].get("startTime", now),
            }
        }
        self.objects.set_status(
            PODS,
            key,
            {
                **pod["status"],
                "phase": "Succeeded",
                "conditions": _conditions(pod, ready=False),
                "containerStatuses": [
                    _container(item, ended, ready=False) for item in pod["spec"].get("containers") or ()
                ],
            },
        )


def _conditions(pod: Obj, *, ready: bool) -> list[Obj]:
    """Make the conditions of a started pod, and keep other conditions, e.g. of readiness gates."""
    old = (pod.get("status") or {}).get("conditions") or []
    gates = {gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()}
    open_gates = {item["type"] for item in old if item["status"] == "True"}
    fact, why = ("True", "") if ready else ("False", "PodCompleted")
    all_ready = "True" if ready and gates <= open_gates else "False"
    why_unready = why or ("" if all_ready == "True" else "ReadinessGatesNotReady")
    made = [
        _condition(old, "PodReadyToStartContainers", fact, ""),
        _condition(old, "Initialized", "True", why),
        _condition(old, "Ready", all_ready, why_unready),
        _condition(old, "ContainersReady", fact, why),
        _condition(old, "PodScheduled", "True", ""),
    ]
    own = {item["type"] for item in made}
    return made + [item for item in old if item["type"] not in own]


def _condition(old: list[Obj], kind: str, status: str, reason: str) -> Obj:
    made = make_condition(old, kind, status, reason, "")
    return {key: value for key, value in made.items() if value} | {"lastProbeTime": None}


def _container(container: Obj, state: Obj, *, ready: bool) -> Obj:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": image,
        "containerID": f"none://{container['name']}",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _address_of(uid: str) -> str:
    """Return an address in the network of pods, always the same one for the same pod."""
    number = zlib.crc32(uid.encode())
    return f"10.{244 + number % 4}.{number >> 8 & 255}.{1 + (number >> 16) % 254}"


# Kubernetes events about simulated pods, as `kubectl describe` shows them; they are deleted after an hour.

SCHEDULER: Final = "default-scheduler"
KUBELET: Final = "kubelet"

_LIFETIME: Final = 3600.0  # seconds


def tell(access: Objects, pod: Obj, reason: str, message: str, *, by: str = KUBELET, kind: str = "Normal") -> None:
    """Post an event about the pod."""
    metadata, now = pod["metadata"], ages.now()
    host = {"host": pod["spec"]["nodeName"]} if by == KUBELET else {}
    event = access.create(
        "events",
        namespace_of(pod),
        {
            "metadata": {"generateName": f"{metadata['name']}."},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": namespace_of(pod),
                **{field: metadata[field] for field in ("name", "uid", "resourceVersion")},
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": by, **host},
            "reportingComponent": by,
            "reportingInstance": host.get("host", ""),
        },
    )
    if event is not None:
        access.queue.add_later(_LIFETIME, access.delete, "events", key_of(event))
