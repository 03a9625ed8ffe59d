"""
Nodes that are not there: they are ready, and their heartbeats go on.

And pods that run nowhere: they are bound to a node, start, are ready, and (if they are not to be restarted) complete.
Those that are deleted take a moment to end.

What others write in the status stays: a pod that was made failed remains so.
"""

from __future__ import annotations

import zlib
from typing import Final

from kopf_cluster import ages
from kopf_cluster.control.loops import Objects, key_of, make_condition, namespace_of
from kopf_cluster.control.workload import PODS, phase_of
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.storage import Change, Key

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


STARTING: Final = 0.1
"""How long a pod takes to start, in seconds."""
RUNNING: Final = 1.0
"""How long a pod runs if it is not to be restarted, in seconds."""
ENDING: Final = 0.1
"""How long a deleted pod takes to end, if it has so much time, in seconds."""


class Kubelet:
    """Lets the pods live; schedules them, too."""

    def __init__(self, access: Objects) -> None:
        self._objects = access
        self._turn = 0

    def observe(self, bucket: str, change: Change) -> None:
        if bucket == PODS and change.type != "DELETED":
            self._plan(change.record.key)
        elif bucket == "nodes" and change.type == "ADDED":
            for record in self._objects.records(PODS):
                self._plan(record.key)

    def _plan(self, key: Key) -> None:
        self._objects.queue.add(("pod", key), lambda: self._advance(key))

    def _advance(self, key: Key) -> None:
        pod = self._objects.get(PODS, key)
        if pod is None:
            return
        if "deletionTimestamp" in pod["metadata"]:
            if pod["metadata"].get("deletionGracePeriodSeconds"):
                uid = pod["metadata"]["uid"]
                self._objects.queue.add_later(ENDING, ("pod-gone", uid), lambda: self._let_go(key, uid))
        elif not pod["spec"].get("nodeName"):
            self._schedule(key, pod)
        elif phase_of(pod) in ("", "Pending"):
            self._objects.queue.add_later(
                STARTING, ("pod-start", pod["metadata"]["uid"]), lambda: self._start(key, pod["metadata"]["uid"])
            )
        elif phase_of(pod) == "Running":
            self._keep_running(key, pod)

    def _schedule(self, key: Key, pod: Obj) -> None:
        wanted = (pod["spec"].get("nodeSelector") or {}).items()
        nodes = [
            node
            for node in self._objects.records("nodes")
            if all(node.labels.get(label) == value for label, value in wanted)
        ]
        if nodes:
            self._turn += 1
            name = nodes[self._turn % len(nodes)].key[1]
            self._objects.update(
                PODS, key, lambda old: {**old, "spec": {**old["spec"], "nodeName": name}}, subresource="binding"
            )
            place = f"{key[0]}/{key[1]} to {name}"
            tell(self._objects, pod, "Scheduled", f"Successfully assigned {place}", by=SCHEDULER)
            return
        status = pod.get("status") or {}
        scheduled = make_condition(
            status.get("conditions") or [],
            "PodScheduled",
            "False",
            "Unschedulable",
            "0 nodes are available.",
            ages.now(),
        )
        if not any(item["type"] == "PodScheduled" for item in status.get("conditions") or ()):
            tell(self._objects, pod, "FailedScheduling", scheduled["message"], by=SCHEDULER, kind="Warning")
        self._objects.set_status(PODS, key, {**status, "conditions": [scheduled]})

    def _start(self, key: Key, uid: str) -> None:
        pod = self._objects.get(PODS, key)
        if pod is None or pod["metadata"]["uid"] != uid or phase_of(pod) not in ("", "Pending"):
            return
        now, address = ages.now(), _address_of(uid)
        status = pod.get("status") or {}
        self._objects.set_status(
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
            tell(self._objects, pod, reason, f"{what} {container['name']}")

    def _let_go(self, key: Key, uid: str) -> None:
        pod = self._objects.get(PODS, key)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self._tell_of_containers(pod, "Killing", "Stopping container")
            self._objects.delete(PODS, key, grace_period=0)

    def _keep_running(self, key: Key, pod: Obj) -> None:
        uid = pod["metadata"]["uid"]
        if pod["spec"].get("restartPolicy", "Always") != "Always":
            self._objects.queue.add_later(RUNNING, ("pod-end", uid), lambda: self._complete(key, uid))
        if pod["spec"].get("readinessGates"):
            conditions = _conditions(pod, ready=True)
            if conditions != pod["status"].get("conditions"):
                self._objects.set_status(PODS, key, {**pod["status"], "conditions": conditions})

    def _complete(self, key: Key, uid: str) -> None:
        pod = self._objects.get(PODS, key)
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
        self._objects.set_status(
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
    """Make the conditions of a started pod, and keep those of others, e.g. of readiness gates."""
    old, now = (pod.get("status") or {}).get("conditions") or [], ages.now()
    gates = {gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()}
    open_gates = {item["type"] for item in old if item["status"] == "True"}
    fact, why = ("True", "") if ready else ("False", "PodCompleted")
    all_ready = "True" if ready and gates <= open_gates else "False"
    why_unready = why or ("" if all_ready == "True" else "ReadinessGatesNotReady")
    made = [
        _condition(old, "PodReadyToStartContainers", fact, "", now),
        _condition(old, "Initialized", "True", why, now),
        _condition(old, "Ready", all_ready, why_unready, now),
        _condition(old, "ContainersReady", fact, why, now),
        _condition(old, "PodScheduled", "True", "", now),
    ]
    own = {item["type"] for item in made}
    return made + [item for item in old if item["type"] not in own]


def _condition(old: list[Obj], kind: str, status: str, reason: str, now: str) -> Obj:
    made = make_condition(old, kind, status, reason, "", now)
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
    """Give an address of the network of pods; it is the same for the same pod."""
    number = zlib.crc32(uid.encode())
    return f"10.{244 + number % 4}.{number >> 8 & 255}.{1 + (number >> 16) % 254}"


# What happens to simulated pods, told in events, as `kubectl describe` shows them; for an hour, as by default.

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
        access.queue.add_later(
            _LIFETIME, ("event", event["metadata"]["uid"]), lambda: access.delete("events", key_of(event))
        )
