"""
Disruption budgets: how many of the selected pods are healthy, must be, and may be evicted now.

See "Specifying a Disruption Budget for your Application" of the Kubernetes documentation.
"""

from __future__ import annotations

import math
from typing import Any, Final

from kopf_cluster import ages
from kopf_cluster.control.loops import Objects, controller_of, make_condition
from kopf_cluster.kinds import selectors
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.storage import Change, Key

_BUDGETS: Final = "poddisruptionbudgets.policy"
_PODS: Final = "pods"
_BUCKETS: Final = {
    "ReplicaSet": "replicasets.apps",
    "StatefulSet": "statefulsets.apps",
    "ReplicationController": "replicationcontrollers",
}


class Disruptions:
    """Keeps the statuses of the budgets."""

    def __init__(self, access: Objects) -> None:
        self._objects = access

    def observe(self, bucket: str, change: Change) -> None:
        if bucket == _BUDGETS and change.type != "DELETED":
            self._plan(change.record.key)
        elif bucket == _PODS:
            for record in self._objects.records(_BUDGETS, change.record.key[0]):
                self._plan(record.key)

    def _plan(self, key: Key) -> None:
        self._objects.queue.add(("budget", key), lambda: self._count(key))

    def _count(self, key: Key) -> None:
        budget = self._objects.get(_BUDGETS, key)
        if budget is None:
            return
        spec, selector = budget.get("spec") or {}, (budget.get("spec") or {}).get("selector")
        pods = [
            pod
            for pod in self._objects.select(_PODS, key[0])
            if selector is not None and selectors.matches(selector, pod["metadata"].get("labels") or {})
        ]
        old = budget.get("status") or {}
        disrupted = {
            name: since
            for name, since in (old.get("disruptedPods") or {}).items()
            if any(pod["metadata"]["name"] == name for pod in pods)
        }
        healthy = sum(_is_healthy(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
        expected = self._expect(pods)
        if spec.get("maxUnavailable") is not None:
            desired = max(expected - _scale(spec["maxUnavailable"], expected), 0)
        else:
            desired = _scale(spec.get("minAvailable", 1), expected)
        allowed = max(healthy - desired, 0) if expected else 0
        status = "True" if allowed else "False"
        condition = make_condition(
            old.get("conditions") or [],
            "DisruptionAllowed",
            status,
            "SufficientPods" if allowed else "InsufficientPods",
            "",
            ages.now(),
        )
        self._objects.set_status(
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
        """Count the pods that there must be: as many as their controllers want, and those that have none."""
        owners: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            found = (
                self._objects.get(_BUCKETS[owner["kind"]], (pod["metadata"]["namespace"], owner["name"]))
                if owner is not None and owner["kind"] in _BUCKETS
                else None
            )
            uid = pod["metadata"]["uid"] if found is None else found["metadata"]["uid"]
            owners[uid] = 1 if found is None else (found.get("spec") or {}).get("replicas", 1)
        return sum(owners.values())


def _is_healthy(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return "deletionTimestamp" not in pod["metadata"] and any(
        item.get("type") == "Ready" and item.get("status") == "True" for item in conditions
    )


def _scale(value: Any, total: int) -> int:
    """Give a number, or the percentage of the total, rounded up."""
    if isinstance(value, int):
        return value
    share = str(value).removesuffix("%")
    return math.ceil(int(share) * total / 100) if share.isdigit() else 0
