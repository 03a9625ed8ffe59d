"""
Daemon sets: one pod on each node; see "DaemonSet" of the Kubernetes documentation.
"""
from __future__ import annotations

from typing import Final

from kopf_cluster.control import workload
from kopf_cluster.control.workload import PODS, Controller, is_active, is_ending, is_ready, labels_of
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.storage import Change

_REVISION: Final = "controller-revision-hash"


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
        nodes = [node.key[1] for node in self.objects.records("nodes")
                 if wanted.items() <= dict(node.labels).items()]
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
        self.set_status(obj, {
            "observedGeneration": obj["metadata"]["generation"], "desiredNumberScheduled": len(nodes),
            "currentNumberScheduled": len(placed), "numberReady": ready, "numberAvailable": ready or None,
            "numberUnavailable": (len(nodes) - ready) or None, "numberMisscheduled": 0,
            "updatedNumberScheduled": (len(placed) - len(outdated)) or None})
