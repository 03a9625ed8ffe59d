"""
Disruption budgets: how many of the selected pods are healthy, must be, and may be evicted now.

See "Specifying a Disruption Budget for your Application" of the Kubernetes documentation.
"""

from __future__ import annotations

from typing import Final

from kopf_cluster.control.loops import ControlLoop, controller_of, make_condition
from kopf_cluster.control.workload import PODS, is_ending, is_ready, labels_of, resolve_share
from kopf_cluster.kinds import selectors
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.watch_cache import Change, Key

_BUDGETS: Final = "poddisruptionbudgets.policy"
_BUCKETS: Final = {
    "ReplicaSet": "replicasets.apps",
    "StatefulSet": "statefulsets.apps",
    "ReplicationController": "replicationcontrollers",
}


class Disruptions(ControlLoop):
    """Keeps the statuses of the budgets."""

    def observe(self, bucket: str, change: Change) -> None:
        if bucket == _BUDGETS and change.type != "DELETED":
            self.objects.queue.add(self._count, change.record.key)
        elif bucket == PODS:
            for record in self.objects.records(_BUDGETS, change.record.key[0]):
                self.objects.queue.add(self._count, record.key)

    def _count(self, key: Key) -> None:
        budget = self.objects.get(_BUDGETS, key)
        if budget is None:
            return
        spec, selector = budget.get("spec") or {}, (budget.get("spec") or {}).get("selector")
        pods = [pod for pod in self.objects.select(PODS, key[0]) if selectors.matches(selector, labels_of(pod))]
        old = budget.get("status") or {}
        disrupted = {
            name: since
            for name, since in (old.get("disruptedPods") or {}).items()
            if any(pod["metadata"]["name"] == name for pod in pods)
        }
        healthy = sum(is_ready(pod) and not is_ending(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
        expected = self._expect(pods)
        if spec.get("maxUnavailable") is not None:
            desired = max(expected - resolve_share(spec["maxUnavailable"], expected, up=True), 0)
        else:
            desired = resolve_share(spec.get("minAvailable", 1), expected, up=True)
        allowed = max(healthy - desired, 0) if expected else 0
        condition = make_condition(
            old.get("conditions") or (),
            "DisruptionAllowed",
            "True" if allowed else "False",
            "SufficientPods" if allowed else "InsufficientPods",
            "",
        )
        self.objects.set_status(
            _BUDGETS,
            key,
            {
                "observedGeneration": budget["metadata"].get("generation"),
                "disruptedPods": disrupted or None,
                "disruptionsAllowed": allowed,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": expected,
                "conditions": [condition],
            },
        )

    def _expect(self, pods: list[Obj]) -> int:
        """Count the expected pods: as many as their controllers want, and all pods without a controller."""
        owners: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            found = (
                self.objects.get(_BUCKETS[owner["kind"]], (pod["metadata"]["namespace"], owner["name"]))
                if owner is not None and owner["kind"] in _BUCKETS
                else None
            )
            uid = pod["metadata"]["uid"] if found is None else found["metadata"]["uid"]
            owners[uid] = 1 if found is None else (found.get("spec") or {}).get("replicas", 1)
        return sum(owners.values())
