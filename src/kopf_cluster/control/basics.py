"""
What every cluster has besides the namespaces: the service of the API itself, and in each namespace the default
service account and the certificate of the cluster's authority.
"""

from __future__ import annotations

import functools
from typing import Final

from kopf_cluster.access import bootstrap_roles
from kopf_cluster.access.authorizing import GROUP
from kopf_cluster.control.access import Objects
from kopf_cluster.control.work import WorkQueue
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.store.storage import Change, Store
from kopf_cluster.writes.writing import Writer

ROOT_CA: Final = "kube-root-ca.crt"
SERVICE_ACCOUNT: Final = "default"
CLUSTER_IP: Final = "10.96.0.1"

_SLICES: Final = "endpointslices.discovery.k8s.io"
_CLUSTER_ROLES: Final = f"clusterroles.{GROUP}"
_CLUSTER_BINDINGS: Final = f"clusterrolebindings.{GROUP}"


class Basics:
    """Creates what belongs to every namespace, creates it again when it is deleted, and restores the certificate."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        writer: Writer,
        queue: WorkQueue,
        *,
        ca: str,
        port: int,
    ) -> None:
        self._objects = Objects(store, registry, writer, queue)
        self._queue = queue
        self._ca = ca
        self._port = port

    def observe(self, bucket: str, change: Change) -> None:
        namespace, name = change.record.key
        if bucket == "namespaces" and change.type == "ADDED" and not change.record.deleting:
            self._plan(name)
        elif ((bucket, name) == ("configmaps", ROOT_CA) and change.type != "ADDED") or (
            (bucket, name) == ("serviceaccounts", SERVICE_ACCOUNT) and change.type == "DELETED"
        ):
            self._plan(namespace)

    def _plan(self, namespace: str) -> None:
        self._queue.add(("basics", namespace), lambda: self._complete(namespace))

    def _complete(self, namespace: str) -> None:
        for bucket, body in (
            ("configmaps", self._make_root_ca()),
            ("serviceaccounts", {"metadata": {"name": SERVICE_ACCOUNT}}),
        ):
            if not self._objects.has(bucket, (namespace, body["metadata"]["name"])):
                self._objects.create(bucket, namespace, body)
        self._objects.update("configmaps", (namespace, ROOT_CA), self._restore_root_ca)

    def _restore_root_ca(self, old: Obj) -> Obj:
        """Only the data and the description are restored, as by the real publisher; the rest belongs to others."""
        made, metadata = self._make_root_ca(), old["metadata"]
        annotations = {**made["metadata"]["annotations"], **(metadata.get("annotations") or {})}
        return {**old, "data": made["data"], "metadata": {**metadata, "annotations": annotations}}

    def _make_root_ca(self) -> Obj:
        note = "The certificate of the authority of the local cluster, to verify its API by."
        return {
            "metadata": {"name": ROOT_CA, "annotations": {"kubernetes.io/description": note}},
            "data": {"ca.crt": self._ca},
        }

    def create_initial(self) -> None:
        """Create the service of the API and the default roles, and complete the namespaces that are there."""
        for bucket, made in (
            (_CLUSTER_ROLES, bootstrap_roles.cluster_roles()),
            (_CLUSTER_BINDINGS, bootstrap_roles.cluster_role_bindings()),
        ):
            for role in made:
                self._objects.create(bucket, "", role)
        for namespace in [record.key[1] for record in self._objects.records("namespaces") if not record.deleting]:
            self._complete(namespace)
        labels = {"component": "apiserver", "provider": "kubernetes"}
        self._objects.create(
            "services",
            "default",
            {
                "metadata": {"name": "kubernetes", "labels": labels},
                "spec": {
                    "clusterIP": CLUSTER_IP,
                    "clusterIPs": [CLUSTER_IP],
                    "type": "ClusterIP",
                    "ipFamilies": ["IPv4"],
                    "ipFamilyPolicy": "SingleStack",
                    "internalTrafficPolicy": "Cluster",
                    "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": self._port}],
                },
            },
        )
        port = {"name": "https", "port": self._port, "protocol": "TCP"}
        slice_ = {
            "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        }
        endpoints = {
            "metadata": {"name": "kubernetes"},
            "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [port]}],
        }
        for bucket, body in ((_SLICES, slice_), ("endpoints", endpoints)):
            if self._objects.create(bucket, "default", body) is None:  # from before the restart, of another port
                self._objects.update(bucket, ("default", "kubernetes"), functools.partial(_replace, body))


def _replace(body: Obj, old: Obj) -> Obj:
    return {**old, **body, "metadata": old["metadata"]}


# The health of the components of a control plane, for those who still ask for it: all in one process, and well.


def create_components(store: Store, registry: Registry, writer: Writer, queue: WorkQueue) -> None:
    """Create what ``kubectl get componentstatuses`` shows."""
    objects = Objects(store, registry, writer, queue)
    for name in ("controller-manager", "etcd-0", "scheduler"):
        objects.create(
            "componentstatuses",
            "",
            {"metadata": {"name": name}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]},
        )
