"""
Stateful sets: pods with stable names and claims, created and replaced in order. And daemon sets, a pod on each node.
"""

from __future__ import annotations

from typing import Final

from kopf_cluster.control import workload
from kopf_cluster.control.loops import namespace_of
from kopf_cluster.control.workload import (
    PODS,
    Controller,
    is_active,
    is_ending,
    is_ready,
    labels_of,
    phase_of,
    replicas_of,
)
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.watch_cache import Change

_CLAIMS: Final = "persistentvolumeclaims"
_REVISION: Final = "controller-revision-hash"


class StatefulSets(Controller):
    """Keeps the pods by their ordinals."""

    bucket = "statefulsets.apps"
    children = (PODS, workload.REVISIONS)

    def reconcile(self, obj: Obj) -> None:
        known = self.owned(workload.REVISIONS, obj)
        revision = workload.record(self.objects, obj, known, "controller.kubernetes.io/hash").name
        pods = {_ordinal(obj, pod): pod for pod in self.owned(PODS, obj)}
        used = {revision, str((obj.get("status") or {}).get("currentRevision"))}
        used |= {str(labels_of(pod).get(_REVISION)) for pod in pods.values()}
        workload.forget_oldest(self.objects, obj, known, used)
        self.delete_pods(pod for pod in pods.values() if phase_of(pod) in ("Succeeded", "Failed"))
        self._step(obj, pods, revision)
        self._tell(obj, [pod for pod in pods.values() if is_active(pod)], revision)

    def _step(self, obj: Obj, pods: dict[int, Obj], revision: str) -> None:
        """Do what may be done at once: everything if in parallel; otherwise, one pod after another is ready."""
        parallel = obj["spec"].get("podManagementPolicy") == "Parallel"
        start = int((obj["spec"].get("ordinals") or {}).get("start") or 0)
        wanted = range(start, start + replicas_of(obj))
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is None:
                self._create(obj, ordinal, self._choose_revision(obj, ordinal, revision))
            if not parallel and (pod is None or is_ending(pod) or not is_ready(pod)):
                return
        excess = sorted((ordinal for ordinal in pods if ordinal not in wanted), reverse=True)
        self.delete_pods(pods[ordinal] for ordinal in (excess if parallel else excess[:1]))
        if not excess:
            self._replace_outdated(obj, [pods[ordinal] for ordinal in wanted if ordinal in pods], revision)

    def _replace_outdated(self, obj: Obj, pods: list[Obj], revision: str) -> None:
        """Delete the last pod of an old revision, when all others are ready."""
        strategy = obj["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        outdated = [
            pod for pod in pods if labels_of(pod).get(_REVISION) != revision and _ordinal(obj, pod) >= partition
        ]
        if outdated and all(is_ready(pod) for pod in pods if pod is not outdated[-1]):
            self.delete_pods(outdated[-1:])

    @staticmethod
    def _choose_revision(obj: Obj, ordinal: int, revision: str) -> str:
        """Below the partition, pods are of the previous revision, even if they are created anew."""
        rolling = (obj["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        if ordinal < int(rolling.get("partition") or 0):
            return str((obj.get("status") or {}).get("currentRevision") or revision)
        return revision

    def _create(self, obj: Obj, ordinal: int, revision: str) -> None:
        name = f"{obj['metadata']['name']}-{ordinal}"
        template = obj["spec"]["template"]
        kept = self.objects.get(workload.REVISIONS, (namespace_of(obj), revision))
        if kept is not None:
            template = {field: value for field, value in kept["data"]["spec"]["template"].items() if field != "$patch"}
        volumes = list((template.get("spec") or {}).get("volumes") or ())
        for claim in obj["spec"].get("volumeClaimTemplates") or ():
            claim_name = f"{claim['metadata']['name']}-{name}"
            self.objects.create(
                _CLAIMS,
                namespace_of(obj),
                {
                    "metadata": {
                        **claim["metadata"],
                        "name": claim_name,
                        "labels": {
                            **((obj["spec"].get("selector") or {}).get("matchLabels") or {}),
                            **(claim["metadata"].get("labels") or {}),
                        },
                    },
                    "spec": claim.get("spec") or {},
                },
            )
            volumes = [volume for volume in volumes if volume.get("name") != claim["metadata"]["name"]]
            volumes.append({"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim_name}})
        labels = {
            _REVISION: revision,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        spec = {"hostname": name, "subdomain": obj["spec"].get("serviceName"), "volumes": volumes or None}
        self.create_pod(obj, template, name=name, labels=labels, spec=spec)

    def _tell(self, obj: Obj, pods: list[Obj], revision: str) -> None:
        ready = sum(map(is_ready, pods))
        updated = sum(labels_of(pod).get(_REVISION) == revision for pod in pods)
        done = updated == len(pods) == ready == replicas_of(obj)
        current = revision if done else str((obj.get("status") or {}).get("currentRevision") or revision)
        self.set_status(
            obj,
            {
                "observedGeneration": obj["metadata"]["generation"],
                "replicas": len(pods),
                "readyReplicas": ready or None,
                "availableReplicas": ready,
                "updatedReplicas": updated or None,
                "currentReplicas": sum(labels_of(pod).get(_REVISION) == current for pod in pods) or None,
                "currentRevision": current,
                "updateRevision": revision,
                "collisionCount": 0,
            },
        )


def _ordinal(obj: Obj, pod: Obj) -> int:
    tail = str(pod["metadata"]["name"]).removeprefix(f"{obj['metadata']['name']}-")
    return int(tail) if tail.isdigit() else -1


# Daemon sets: one pod on each node; see "DaemonSet" of the Kubernetes documentation.


class DaemonSets(Controller):
    """Keeps one pod on each node."""

    bucket = "daemonsets.apps"
    children = (PODS, workload.REVISIONS)

    def observe(self, bucket: str, change: Change) -> None:
        super().observe(bucket, change)
        if bucket == "nodes" and change.type != "MODIFIED":
            for key in self._keys.values():
                self.plan(key)

    def reconcile(self, obj: Obj) -> None:
        template, owned = obj["spec"]["template"], self.owned(PODS, obj)
        pods = [pod for pod in owned if is_active(pod)]
        known = self.owned(workload.REVISIONS, obj)
        revision = workload.record(self.objects, obj, known, _REVISION).hash
        used = {f"{obj['metadata']['name']}-{labels_of(pod).get(_REVISION)}" for pod in pods}
        workload.forget_oldest(self.objects, obj, known, {*used, f"{obj['metadata']['name']}-{revision}"})
        wanted = (template.get("spec") or {}).get("nodeSelector") or {}
        nodes = [node.key[1] for node in self.objects.records("nodes") if wanted.items() <= dict(node.labels).items()]
        by_node = {pod["spec"].get("nodeName"): pod for pod in pods}
        leaving = {pod["spec"].get("nodeName") for pod in owned if is_ending(pod)}
        for node in nodes:
            if node not in by_node and node not in leaving:
                self.create_pod(obj, template, labels={_REVISION: revision}, spec={"nodeName": node})
        self.delete_pods(pod for node, pod in by_node.items() if node not in nodes)
        placed = [by_node[node] for node in nodes if node in by_node]
        outdated = [pod for pod in placed if labels_of(pod).get(_REVISION) != revision]
        unready = sum(not is_ready(pod) for pod in placed) + len(nodes) - len(placed)
        if outdated and (obj["spec"].get("updateStrategy") or {}).get("type") != "OnDelete":
            doomed = [pod for pod in outdated if not is_ready(pod)] or (outdated[:1] if not unready else [])
            self.delete_pods(doomed)
        ready = sum(map(is_ready, placed))
        self.set_status(
            obj,
            {
                "observedGeneration": obj["metadata"]["generation"],
                "desiredNumberScheduled": len(nodes),
                "currentNumberScheduled": len(placed),
                "numberReady": ready,
                "numberAvailable": ready or None,
                "numberUnavailable": (len(nodes) - ready) or None,
                "numberMisscheduled": 0,
                "updatedNumberScheduled": (len(placed) - len(outdated)) or None,
            },
        )
