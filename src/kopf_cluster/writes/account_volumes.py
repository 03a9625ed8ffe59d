"""
The token of the service account in new pods: a volume, and where it is mounted.

See "Bound service account token volume mechanism" of the Kubernetes documentation.
"""
from __future__ import annotations

from typing import Final

from kopf_cluster.kinds.kind import Obj

MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
PREFIX: Final = "kube-api-access-"
_MODE: Final = 0o644
_LIFETIME: Final = 3607  # seconds; as long as the real one asks for


def mount_token(spec: Obj, account: Obj, suffix: str) -> None:
    """Add the volume to a pod and its containers, in place, unless the pod or the account declines."""
    wanted = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    containers = [container for container in spec.get("initContainers", []) + spec.get("containers", [])
                  if all(mount.get("mountPath") != MOUNT_PATH for mount in container.get("volumeMounts", ()))]
    if not wanted or not containers:
        return
    known = [volume["name"] for volume in spec.get("volumes", ()) if volume.get("name", "").startswith(PREFIX)]
    name = known[0] if known else f"{PREFIX}{suffix}"  # those of copied pods go on to be used
    for container in containers:
        mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
        container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
    if known:
        return
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    spec["volumes"] = [*spec.get("volumes", ()), {"name": name, "projected": {"defaultMode": _MODE, "sources": [
        {"serviceAccountToken": {"expirationSeconds": _LIFETIME, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}}]}}]
