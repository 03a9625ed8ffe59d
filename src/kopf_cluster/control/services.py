"""
Services: their addresses, and their endpoints (the addresses of the selected pods); see "Service".
"""

from __future__ import annotations

from typing import Any, Final

from kopf_cluster.control.loops import ControlLoop, Objects, namespace_of, reference_to
from kopf_cluster.control.workload import PODS, is_active, is_ready, labels_of
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.watch_cache import Change, Key

_SERVICES: Final = "services"
_ENDPOINTS: Final = "endpoints"
_SLICES: Final = "endpointslices.discovery.k8s.io"
_FIRST_PORT: Final = 30000
_PORTS: Final = 2768


class Services(ControlLoop):
    """Assigns addresses to services, and keeps their endpoints up to date."""

    def __init__(self, access: Objects) -> None:
        super().__init__(access)
        self._last = 0

    def observe(self, bucket: str, change: Change) -> None:
        namespace, key = change.record.key[0], change.record.key
        if bucket == _SERVICES and change.type != "DELETED":
            self.objects.queue.add(self._settle, key)
        elif bucket == _SERVICES:
            self.objects.queue.add(self.objects.delete, _ENDPOINTS, key)
        elif bucket == PODS:
            for record in self.objects.records(_SERVICES, namespace):
                self.objects.queue.add(self._settle, record.key)

    def _settle(self, key: Key) -> None:
        service = self.objects.get(_SERVICES, key)
        if service is None or "deletionTimestamp" in service["metadata"]:
            return
        if service["spec"].get("type") != "ExternalName" and not service["spec"].get("clusterIP"):
            self._give_address(key)
        selector = service["spec"].get("selector")
        if selector:
            pods = [
                pod
                for pod in self.objects.select(PODS, key[0])
                if selector.items() <= labels_of(pod).items()
                and is_active(pod)
                and (pod.get("status") or {}).get("podIP")
            ]
            self._tell(service, pods)
        if service["spec"].get("type") == "LoadBalancer":
            self.objects.set_status(
                _SERVICES, key, {**(service.get("status") or {}), "loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}
            )

    def _give_address(self, key: Key) -> None:
        taken = {service["spec"].get("clusterIP") for service in self.objects.select(_SERVICES)}
        address = next(
            ip
            for number in range(self._last, self._last + 0xFFFF)
            if (ip := f"10.97.{number >> 8 & 255}.{number & 255}") not in taken
        )
        self._last += 1

        def transform(old: Obj) -> Obj:
            spec = {**old["spec"], "clusterIP": address, "clusterIPs": [address]}
            if spec.get("type") in ("NodePort", "LoadBalancer"):
                spec["ports"] = [
                    {**port, "nodePort": port.get("nodePort") or _FIRST_PORT + (self._last + i) % _PORTS}
                    for i, port in enumerate(spec.get("ports") or ())
                ]
            return {**old, "spec": spec}

        self.objects.update(_SERVICES, key, transform)

    def _tell(self, service: Obj, pods: list[Obj]) -> None:
        metadata, namespace = service["metadata"], namespace_of(service)
        ports = [_resolve_port(port, pods) for port in service["spec"].get("ports") or ()]
        ready = [_address(pod) for pod in pods if is_ready(pod)]
        waiting = [_address(pod) for pod in pods if not is_ready(pod)]
        subset: Obj = {"addresses": ready, "notReadyAddresses": waiting, "ports": ports}
        subsets = [{field: value for field, value in subset.items() if value}] if pods else []
        self._put(
            _ENDPOINTS,
            namespace,
            {"metadata": {"name": metadata["name"], "labels": metadata.get("labels")}, "subsets": subsets},
        )
        self._put(
            _SLICES,
            namespace,
            {
                "metadata": {
                    "name": f"{metadata['name']}-kopf",
                    "ownerReferences": [reference_to(service)],
                    "labels": {
                        **(metadata.get("labels") or {}),
                        "kubernetes.io/service-name": metadata["name"],
                        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                    },
                },
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": [_endpoint(pod) for pod in pods],
            },
        )

    def _put(self, bucket: str, namespace: str, body: Obj) -> None:
        if self.objects.create(bucket, namespace, body) is None:
            self.objects.update(
                bucket,
                (namespace, body["metadata"]["name"]),
                lambda old: {
                    **old,
                    **body,
                    "metadata": {
                        **old["metadata"],
                        **{field: value for field, value in body["metadata"].items() if value},
                    },
                },
            )


def _target(pod: Obj) -> Obj:
    return {
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "namespace": namespace_of(pod),
        "uid": pod["metadata"]["uid"],
    }


def _address(pod: Obj) -> Obj:
    return {"ip": pod["status"]["podIP"], "nodeName": pod["spec"].get("nodeName"), "targetRef": _target(pod)}


def _endpoint(pod: Obj) -> Obj:
    ready = is_ready(pod)
    return {
        "addresses": [pod["status"]["podIP"]],
        "nodeName": pod["spec"].get("nodeName"),
        "targetRef": _target(pod),
        "conditions": {"ready": ready, "serving": ready, "terminating": False},
    }


def _resolve_port(port: Obj, pods: list[Obj]) -> Obj:
    """Make the port of the endpoints: by its number, or by its name in the containers."""
    target: Any = port.get("targetPort") or port["port"]
    if isinstance(target, str):
        found = [
            item["containerPort"]
            for pod in pods
            for container in pod["spec"].get("containers") or ()
            for item in container.get("ports") or ()
            if item.get("name") == target
        ]
        target = found[0] if found else port["port"]
    named = {"name": port["name"]} if port.get("name") else {}
    return {**named, "port": target, "protocol": port.get("protocol") or "TCP"}
