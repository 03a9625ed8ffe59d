"""
Claims of volumes: each is bound, to a fitting volume or to a new one; see "Persistent Volumes".
"""

from __future__ import annotations

from typing import Final

from kopf_cluster.control.loops import ControlLoop
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.watch_cache import Change, Key

_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
_CLASSES: Final = "storageclasses.storage.k8s.io"
_PODS: Final = "pods"


class Volumes(ControlLoop):
    """Binds claims to volumes, and deletes or releases the volumes of deleted claims."""

    def observe(self, bucket: str, change: Change) -> None:
        if bucket == _PODS and change.type == "ADDED":
            pod = self.objects.get(_PODS, change.record.key)
            for key in _claims(pod) if pod is not None else ():
                self.objects.queue.add(self._bind, key)
        if bucket == _CLAIMS:
            key, uid = change.record.key, change.record.uid
            if change.type == "DELETED":
                self.objects.queue.add(self._release, uid)
            else:
                self.objects.queue.add(self._bind, key)

    def _bind(self, key: Key) -> None:
        claim = self.objects.get(_CLAIMS, key)
        if claim is None or (claim.get("status") or {}).get("phase") == "Bound":
            return
        if self._waits_for_consumer(claim):
            return
        name = claim["spec"].get("volumeName") or self._find_volume(claim) or f"pvc-{claim['metadata']['uid']}"
        metadata, spec = claim["metadata"], claim["spec"]
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        }
        capacity = {"storage": ((spec.get("resources") or {}).get("requests") or {}).get("storage", "1Gi")}
        if not self.objects.has(_VOLUMES, ("", name)):
            self.objects.create(
                _VOLUMES,
                "",
                {
                    "metadata": {
                        "name": name,
                        "annotations": {"pv.kubernetes.io/provisioned-by": "kopf-local-cluster"},
                    },
                    "spec": {
                        "capacity": capacity,
                        "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
                        "persistentVolumeReclaimPolicy": "Delete",
                        "claimRef": reference,
                        "storageClassName": spec.get("storageClassName") or "",
                        "volumeMode": spec.get("volumeMode") or "Filesystem",
                        "hostPath": {"path": f"/none/{name}"},
                    },
                },
            )
        self.objects.update(_VOLUMES, ("", name), lambda old: {**old, "spec": {**old["spec"], "claimRef": reference}})
        self.objects.set_status(_VOLUMES, ("", name), {"phase": "Bound"})
        self.objects.update(_CLAIMS, key, lambda old: {**old, "spec": {**old["spec"], "volumeName": name}})
        self.objects.set_status(
            _CLAIMS,
            key,
            {"phase": "Bound", "accessModes": spec.get("accessModes") or ["ReadWriteOnce"], "capacity": capacity},
        )

    def _waits_for_consumer(self, claim: Obj) -> bool:
        """Whether the class of the claim delays the binding until a pod mounts the claim."""
        spec = claim["spec"]
        storage = self.objects.get(_CLASSES, ("", spec.get("storageClassName") or "")) or {}
        if spec.get("volumeName") or storage.get("volumeBindingMode") != "WaitForFirstConsumer":
            return False
        key = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        return not any(key in _claims(pod) for pod in self.objects.select(_PODS))

    def _find_volume(self, claim: Obj) -> str | None:
        """Find a free volume of the same class with exactly the requested size, and all requested access modes."""
        spec = claim["spec"]
        wanted = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
        for volume in self.objects.select(_VOLUMES):
            offer = volume["spec"]
            if (
                not offer.get("claimRef")
                and (offer.get("storageClassName") or "") == (spec.get("storageClassName") or "")
                and (offer.get("capacity") or {}).get("storage") == wanted
                and set(spec.get("accessModes") or ()) <= set(offer.get("accessModes") or ())
            ):
                return str(volume["metadata"]["name"])
        return None

    def _release(self, uid: str) -> None:
        for volume in self.objects.select(_VOLUMES):
            if (volume["spec"].get("claimRef") or {}).get("uid") == uid:
                name = volume["metadata"]["name"]
                if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
                    self.objects.delete(_VOLUMES, ("", name))
                else:
                    self.objects.set_status(_VOLUMES, ("", name), {"phase": "Released"})


def _claims(pod: Obj) -> set[Key]:
    """Return the claims that the pod mounts."""
    volumes = [volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes") or ()]
    return {(pod["metadata"]["namespace"], volume["claimName"]) for volume in volumes if volume}
