"""
What happens to simulated pods, told in events, as `kubectl describe` shows them; for an hour, as by default.
"""
from __future__ import annotations

from typing import Final

from kopf_cluster import ages
from kopf_cluster.control.access import Objects, key_of, namespace_of
from kopf_cluster.kinds.kind import Obj

SCHEDULER: Final = "default-scheduler"
KUBELET: Final = "kubelet"

_LIFETIME: Final = 3600.0  # seconds


def tell(access: Objects, pod: Obj, reason: str, message: str, *, by: str = KUBELET, kind: str = "Normal") -> None:
    """Post an event about the pod."""
    metadata, now = pod["metadata"], ages.now()
    host = {"host": pod["spec"]["nodeName"]} if by == KUBELET else {}
    event = access.create("events", namespace_of(pod), {
        "metadata": {"generateName": f"{metadata['name']}."},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": namespace_of(pod),
                           **{field: metadata[field] for field in ("name", "uid", "resourceVersion")}},
        "type": kind, "reason": reason, "message": message, "count": 1, "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": by, **host}, "reportingComponent": by, "reportingInstance": host.get("host", "")})
    if event is not None:
        access.queue.add_later(_LIFETIME, ("event", event["metadata"]["uid"]),
                               lambda: access.delete("events", key_of(event)))
