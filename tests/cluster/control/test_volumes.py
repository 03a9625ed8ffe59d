"""When claims are bound: at once, or when their class wants to know the first consumer before."""

from __future__ import annotations

import pytest

from kopf_cluster import LocalCluster

pytestmark = pytest.mark.fastforward

CLASS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: example.com/disks
volumeBindingMode: %s
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: default}
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: consumer, namespace: default}
spec:
  containers: [{name: main, image: nginx}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: patient}}]
"""


CLUSTER = {"simulate": True}


async def test_claims_wait_for_consumers_if_their_class_does(cluster: LocalCluster) -> None:
    cluster.apply(CLASS % ("slow", "WaitForFirstConsumer"))
    cluster.apply(CLASS % ("fast", "Immediate"))
    cluster.apply(CLAIM % ("patient", "slow"))
    cluster.apply(CLAIM % ("eager", "fast"))
    await cluster.aio.wait_for("persistentvolumeclaims", "eager", lambda obj: obj["status"]["phase"] == "Bound")
    assert cluster.get("persistentvolumeclaims", "patient")["status"] == {"phase": "Pending"}
    cluster.apply(POD)
    await cluster.aio.wait_for("persistentvolumeclaims", "patient", lambda obj: obj["status"]["phase"] == "Bound")


async def test_claims_of_chosen_volumes_do_not_wait(cluster: LocalCluster) -> None:
    cluster.apply(CLASS % ("slow", "WaitForFirstConsumer"))
    cluster.apply((CLAIM % ("chosen", "slow")).replace("spec: {", "spec: {volumeName: mine, "))
    await cluster.aio.wait_for("persistentvolumeclaims", "chosen", lambda obj: obj["status"]["phase"] == "Bound")
