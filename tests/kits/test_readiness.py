"""Readiness: whether objects of different kinds are what they are to be."""

from __future__ import annotations

from typing import Any

import pytest

import kopf

TRUE = [{"type": "Available", "status": "True"}]
Obj = dict[str, Any]


def make(kind: str, spec: Obj, status: Obj, **metadata: Any) -> Obj:
    api_version, _, name = kind.rpartition(":")
    return {"apiVersion": api_version, "kind": name, "metadata": metadata, "spec": spec, "status": status}


def of(type_: str, status: str = "True") -> Obj:
    return {"conditions": [{"type": type_, "status": status}]}


DEPLOYMENT = {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3, "conditions": TRUE}
STATEFUL = {"observedGeneration": 1, "readyReplicas": 3, "currentRevision": "a", "updateRevision": "a"}
PARTIAL = {**STATEFUL, "updatedReplicas": 1, "updateRevision": "b"}
REPLICAS = {"observedGeneration": 1, "fullyLabeledReplicas": 3, "readyReplicas": 3, "availableReplicas": 3}
DAEMONS = dict.fromkeys(
    (
        "observedGeneration",
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberReady",
    ),
    3,
)
THREE: Obj = {"replicas": 3}


@pytest.mark.parametrize(("obj", "expected"), [
    (None, False),
    ({}, False),
    ({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {}}, True),
    (make("v1:ConfigMap", {}, {}, deletionTimestamp="2020-01-01T00:00:00Z"), False),

    (make("apps/v1:Deployment", THREE, DEPLOYMENT, generation=1), True),
    (make("apps/v1:Deployment", THREE, DEPLOYMENT, generation=2), False),
    (make("apps/v1:Deployment", THREE, DEPLOYMENT | {"updatedReplicas": 2}), False),
    (make("apps/v1:Deployment", THREE, DEPLOYMENT | {"replicas": 4}), False),
    (make("apps/v1:Deployment", THREE, DEPLOYMENT | {"availableReplicas": 2}), False),
    (make("apps/v1:Deployment", THREE, DEPLOYMENT | of("Available", "False")), False),
    (make("apps/v1:Deployment", {}, DEPLOYMENT), True),
    (make("apps/v1:Deployment", {"replicas": 0}, {"observedGeneration": 1, "conditions": TRUE}), True),
    (make("apps/v1:Deployment", {"replicas": 0}, {}), False),

    (make("apps/v1:ReplicaSet", THREE, REPLICAS), True),
    (make("apps/v1:ReplicaSet", THREE, {}), False),
    (make("apps/v1:ReplicaSet", THREE, REPLICAS | {"fullyLabeledReplicas": 2}), False),
    (make("apps/v1:ReplicaSet", THREE, REPLICAS | {"readyReplicas": 2}), False),
    (make("apps/v1:ReplicaSet", THREE, REPLICAS | {"availableReplicas": 2}), False),

    (make("apps/v1:StatefulSet", THREE, STATEFUL), True),
    (make("apps/v1:StatefulSet", THREE, STATEFUL | {"readyReplicas": 2}), False),
    (make("apps/v1:StatefulSet", THREE, STATEFUL | {"updateRevision": "b"}), False),
    (make("apps/v1:StatefulSet", THREE | {"updateStrategy": {"type": "OnDelete"}}, PARTIAL), True),
    (make("apps/v1:StatefulSet", THREE | {"updateStrategy": {"rollingUpdate": {"partition": 2}}}, PARTIAL), True),
    (make("apps/v1:StatefulSet", THREE | {"updateStrategy": {"rollingUpdate": {"partition": 1}}}, PARTIAL), False),
    (make("apps/v1:StatefulSet", THREE | {"updateStrategy": {"rollingUpdate": {"partition": 0}}}, PARTIAL), False),

    (make("apps/v1:DaemonSet", {}, DAEMONS), True),
    (make("apps/v1:DaemonSet", {}, {"observedGeneration": 1}), False),
    *((make("apps/v1:DaemonSet", {}, DAEMONS | {name: 2}), name == "observedGeneration")
      for name in DAEMONS if name != "desiredNumberScheduled"),

    (make("batch/v1:Job", {}, of("Complete")), True),
    (make("batch/v1:Job", {}, of("Failed")), False),
    (make("batch/v1:Job", {}, {"active": 1}), False),
    (make("v1:Pod", {}, {"phase": "Succeeded"}), True),
    (make("v1:Pod", {}, {"phase": "Running"}), False),
    (make("v1:Pod", {}, {"phase": "Running", **of("Ready")}), True),
    (make("v1:PersistentVolumeClaim", {}, {"phase": "Bound"}), True),
    (make("v1:PersistentVolumeClaim", {}, {"phase": "Pending"}), False),
    (make("v1:Namespace", {}, {"phase": "Active"}), True),
    (make("v1:Namespace", {}, {"phase": "Terminating"}), False),
    (make("v1:Service", {"clusterIP": "10.0.0.1"}, {}), True),
    (make("v1:Service", {}, {}), False),
    (make("v1:Service", {"type": "ExternalName"}, {}), True),
    (make("v1:Service", {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}, {"loadBalancer": {}}), False),
    (make("v1:Service", {"type": "LoadBalancer"}, {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}), True),
    (make("apiextensions.k8s.io/v1:CustomResourceDefinition", {}, of("Established")), True),
    (make("apiextensions.k8s.io/v1:CustomResourceDefinition", {}, {}), False),

    (make("example.com/v1:Deployment", THREE, {}), True),
    (make("example.com/v1:Mine", {}, {}), True),
    (make("example.com/v1:Mine", {}, of("Ready")), True),
    (make("example.com/v1:Mine", {}, of("Ready", "Unknown")), False),
    (make("example.com/v1:Mine", {}, of("Available", "False")), False),
    (make("example.com/v1:Mine", {}, of("Other", "False")), True),
    (make("example.com/v1:Mine", {}, of("Stalled")), False),
    (make("example.com/v1:Mine", {}, of("Reconciling")), False),
    (make("example.com/v1:Mine", {}, of("Reconciling", "False")), True),
    (make("example.com/v1:Mine", {}, {"observedGeneration": 1}, generation=2), False),
    (make("example.com/v1:Mine", {}, {"observedGeneration": 2}, generation=2), True),
    (make("example.com/v1:Mine", {}, {"observedGeneration": "9"}, generation=10), False),
    (make("example.com/v1:Mine", {}, {"observedGeneration": "10"}, generation=10), True),
    (make("example.com/v1:Mine", {}, {"observedGeneration": "unknown"}, generation=2), True),
    (make("example.com/v1:Mine", {}, {"conditions": {"Ready": "True"}}), True),
    (make("example.com/v1:Mine", {}, {"conditions": ["text", {"type": "Ready", "status": "False"}]}), False),
    ({**make("example.com/v1:Mine", {}, {}), "status": "Running"}, True),
])  # fmt: skip
def test_readiness(obj: Obj | None, expected: bool) -> None:
    assert kopf.is_ready(obj) is expected


def test_requirements() -> None:
    ready = make("v1:ConfigMap", {}, {}, name="one")
    kopf.require_ready()
    kopf.require_ready(ready, ready)
    with pytest.raises(kopf.NotReadyError, match=r"^Not ready yet: Pod two, an absent object\.$") as caught:
        kopf.require_ready(ready, make("v1:Pod", {}, {}, name="two"), None)
    assert caught.value.delay == 10
