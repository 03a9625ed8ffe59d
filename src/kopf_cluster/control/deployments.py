"""
Deployments and replica sets, with rolling updates: see "Deployments" of the Kubernetes documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kopf_cluster.control.loops import key_of, namespace_of, reference_to
from kopf_cluster.control.workload import (
    PODS,
    Adopter,
    hash_of,
    is_active,
    is_ending,
    is_ready,
    labels_of,
    phase_of,
    replicas_of,
    resolve_share,
)
from kopf_cluster.kinds.kind import Obj

_REPLICA_SETS: Final = "replicasets.apps"
_HASH: Final = "pod-template-hash"
_REVISION: Final = "deployment.kubernetes.io/revision"
_DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
_MAX: Final = "deployment.kubernetes.io/max-replicas"
_PRESENT: Final = ("replicas", "terminatingReplicas")
_OWN_ANNOTATIONS: Final = (
    "kubectl.kubernetes.io/last-applied-configuration",
    _REVISION,
    "deployment.kubernetes.io/revision-history",
    _DESIRED,
    _MAX,
    "deprecated.deployment.rollback.to",
)


class ReplicaSets(Adopter):
    """Keeps the number of pods, including adopted ones."""

    bucket = _REPLICA_SETS

    def reconcile(self, obj: Obj) -> None:
        self.claim(obj)
        pods = [pod for pod in self.owned(PODS, obj) if is_active(pod)]
        wanted = replicas_of(obj)
        for _ in range(wanted - len(pods)):
            self.create_pod(obj, obj["spec"].get("template") or {})
        if len(pods) > wanted:
            # Pods that are not running yet are deleted first, then unready pods, then the latest.
            pods.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]), reverse=True)
            pods.sort(key=lambda pod: (phase_of(pod) == "Running", is_ready(pod)))
            self.delete_pods(pods[: len(pods) - wanted])
            pods = pods[len(pods) - wanted :]
        ready = sum(map(is_ready, pods))
        template_labels = ((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels") or {}
        labeled = sum(template_labels.items() <= labels_of(pod).items() for pod in pods)
        self.set_status(
            obj,
            {
                **(obj.get("status") or {}),
                "replicas": len(pods),
                "fullyLabeledReplicas": labeled or None,
                "readyReplicas": ready or None,
                "availableReplicas": ready or None,
                "terminatingReplicas": sum(map(is_ending, self.owned(PODS, obj))),
                "observedGeneration": obj["metadata"]["generation"],
            },
        )


class ReplicationControllers(ReplicaSets):
    """Keeps the number of pods as replica sets do, but with simpler selectors."""

    bucket = "replicationcontrollers"

    @staticmethod
    def selector_of(obj: Obj) -> Obj:
        labels = obj["spec"].get("selector")
        return {"matchLabels": labels} if labels else {}


class Deployments(Adopter):
    """Keeps one replica set for each revision, and moves the replicas to the latest one."""

    bucket = "deployments.apps"
    children = (_REPLICA_SETS,)

    def reconcile(self, obj: Obj) -> None:
        self.claim(obj)
        sets = [item for item in self.owned(_REPLICA_SETS, obj) if "deletionTimestamp" not in item["metadata"]]
        wanted = hash_of(obj["spec"]["template"])
        new = next((item for item in sets if labels_of(item).get(_HASH) == wanted), None)
        old = [item for item in sets if item is not new]
        paused = bool(obj["spec"].get("paused"))
        if any(_annotated(item, _DESIRED) not in (None, replicas_of(obj)) for item in sets if replicas_of(item)):
            self._rescale(obj, new, old)  # even if it is paused
            sets_now = sets
        elif new is None and not paused:
            self._create_set(obj, wanted, old)  # its creation triggers the next step
            sets_now = old
        elif new is not None and not paused:
            self._number(obj, new, old)
            self._roll(obj, new, old)
            self._forget_oldest(obj, old)
            sets_now = [new, *old]
        else:
            sets_now = sets
        self._tell(obj, new, sets_now)

    def _create_set(self, obj: Obj, hash_: str, old: list[Obj]) -> None:
        template = obj["spec"]["template"]
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), _HASH: hash_}
        selector = obj["spec"].get("selector") or {}
        self.objects.create(
            _REPLICA_SETS,
            namespace_of(obj),
            {
                "metadata": {
                    "name": f"{obj['metadata']['name']}-{hash_}",
                    "labels": labels,
                    "ownerReferences": [reference_to(obj)],
                    "annotations": {
                        **_annotations_of(obj),
                        _REVISION: str(_latest(old) + 1),
                        **_scale_annotations(obj),
                    },
                },
                "spec": {
                    "replicas": _allow(obj, 0, old),
                    "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), _HASH: hash_}},
                    "template": {**template, "metadata": {**metadata, "labels": labels}},
                },
            },
        )

    def _number(self, obj: Obj, new: Obj, old: list[Obj]) -> None:
        """The current revision has the highest number, even if it was used before (a rollback)."""
        number = _revision(new)
        if old and number <= _latest(old):
            number = _latest(old) + 1
        # The revision has the annotations, too, e.g. the cause of the change.
        self._annotate(_REPLICA_SETS, new, {**_annotations_of(obj), _REVISION: str(number)})
        self._annotate(self.bucket, obj, {_REVISION: str(number)})

    def _annotate(self, bucket: str, obj: Obj, annotations: Mapping[str, str]) -> None:
        if annotations.items() <= (obj["metadata"].get("annotations") or {}).items():
            return

        def transform(old: Obj) -> Obj:
            merged = {**(old["metadata"].get("annotations") or {}), **annotations}
            return {**old, "metadata": {**old["metadata"], "annotations": merged}}

        self.objects.update(bucket, key_of(obj), transform)

    def _roll(self, obj: Obj, new: Obj, old: list[Obj]) -> None:
        """Move as many replicas as the strategy allows at the moment."""
        wanted, current = replicas_of(obj), replicas_of(new)
        if _is_recreated(obj):
            for item in old:
                self._scale(obj, item, 0)
            self._scale(obj, new, _allow(obj, current, old))
            return
        surge = _surge(obj)
        unavailable = resolve_share(_rolling(obj).get("maxUnavailable", "25%"), wanted, up=False)
        if surge == 0 and unavailable == 0:
            unavailable = 1
        total = sum(map(replicas_of, [new, *old]))
        target = _allow(obj, current, old)
        self._scale(obj, new, target)
        pending = target - _available(new)
        spare = total + target - current - (wanted - unavailable) - max(pending, 0)
        for item in sorted(old, key=_revision):
            going = min(replicas_of(item), max(spare, 0))
            self._scale(obj, item, replicas_of(item) - going)
            spare -= going

    def _rescale(self, obj: Obj, new: Obj | None, old: list[Obj]) -> None:
        """Follow the change of the wanted number by all sets that have replicas, without going on with the rollout."""
        wanted = replicas_of(obj)
        active = [item for item in (new, *old) if item is not None and replicas_of(item)]
        if len(active) == 1:
            sizes = [wanted]
        elif new is not None and replicas_of(new) == _available(new) == _annotated(new, _DESIRED) == wanted:
            sizes = [wanted if item is new else 0 for item in active]
        elif _is_recreated(obj):
            sizes = [replicas_of(item) for item in active]
        else:
            total = int((obj.get("status") or {}).get("replicas") or 0) or sum(map(replicas_of, active))
            shares = [
                Share(
                    replicas_of(item),
                    _annotated(item, _MAX) or total,
                    (item["metadata"]["creationTimestamp"], _revision(item)),
                )
                for item in active
            ]
            sizes = spread(shares, wanted, _surge(obj))
        for item, size in zip(active, sizes, strict=True):
            self._scale(obj, item, size)

    def _scale(self, obj: Obj, item: Obj, replicas: int) -> None:
        """Change the number of replicas of a set, and note for which number of the deployment that was."""
        annotations = {**(item["metadata"].get("annotations") or {}), **_scale_annotations(obj)}
        if replicas_of(item) != replicas or annotations != item["metadata"].get("annotations"):
            item["spec"]["replicas"] = replicas
            self.objects.update(
                _REPLICA_SETS,
                key_of(item),
                lambda old: {
                    **old,
                    "metadata": {**old["metadata"], "annotations": annotations},
                    "spec": {**old["spec"], "replicas": replicas},
                },
            )

    def _forget_oldest(self, obj: Obj, old: list[Obj]) -> None:
        limit = obj["spec"].get("revisionHistoryLimit")
        empty = sorted((item for item in old if not replicas_of(item) and not _count(item, "replicas")), key=_revision)
        for item in empty[: max(len(empty) - (10 if limit is None else limit), 0)]:
            self.objects.delete(_REPLICA_SETS, key_of(item))

    def _tell(self, obj: Obj, new: Obj | None, sets: list[Obj]) -> None:
        wanted = replicas_of(obj)
        total, ready, ending = (
            sum(_count(item, field) for item in sets) for field in ("replicas", "readyReplicas", "terminatingReplicas")
        )
        available = sum(map(_available, sets))
        updated = _count(new, "replicas") if new is not None else 0
        missing = max(wanted - available, 0)
        needed = wanted - resolve_share(_rolling(obj).get("maxUnavailable", "25%"), wanted, up=False)
        done = new is not None and updated == wanted == total == available
        conditions = [
            self.condition(
                obj,
                "Available",
                available >= needed,
                "MinimumReplicasAvailable" if available >= needed else "MinimumReplicasUnavailable",
                "Deployment has minimum availability."
                if available >= needed
                else "Deployment does not have minimum availability.",
            ),
            self.condition(
                obj,
                "Progressing",
                True,
                "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
                f'ReplicaSet "{(new or obj)["metadata"]["name"]}" '
                + ("has successfully progressed." if done else "is progressing."),
            ),
        ]
        self.set_status(
            obj,
            {
                "observedGeneration": obj["metadata"]["generation"],
                "replicas": total or None,
                "updatedReplicas": updated or None,
                "readyReplicas": ready or None,
                "availableReplicas": available or None,
                "unavailableReplicas": missing or None,
                "terminatingReplicas": ending,
                "conditions": conditions,
            },
        )


def _count(item: Obj, field: str) -> int:
    return int((item.get("status") or {}).get(field) or 0)


def _available(item: Obj) -> int:
    return min(_count(item, "availableReplicas"), replicas_of(item))


def _revision(item: Obj) -> int:
    return _annotated(item, _REVISION) or 0


def _annotated(item: Obj, name: str) -> int | None:
    """Return the number in the annotation, if there is one."""
    text = (item["metadata"].get("annotations") or {}).get(name) or ""
    return int(text) if text.isdecimal() else None


def _scale_annotations(obj: Obj) -> dict[str, str]:
    return {_DESIRED: str(replicas_of(obj)), _MAX: str(replicas_of(obj) + _surge(obj))}


def _is_recreated(obj: Obj) -> bool:
    """Whether all old pods are to go before there are new ones."""
    return (obj["spec"].get("strategy") or {}).get("type") == "Recreate"


def _rolling(obj: Obj) -> Obj:
    rolling: Obj = (obj["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    return rolling


def _surge(obj: Obj) -> int:
    """Return how many replicas there may be beyond the wanted ones; none unless the updates are rolling."""
    return 0 if _is_recreated(obj) else resolve_share(_rolling(obj).get("maxSurge", "25%"), replicas_of(obj), up=True)


def _allow(obj: Obj, current: int, old: list[Obj]) -> int:
    """Return how many replicas the latest set, with so many now, may have beside the old ones at the moment."""
    wanted, others = replicas_of(obj), sum(map(replicas_of, old))
    if _is_recreated(obj):
        is_free = not others and not any(_count(item, field) for item in old for field in _PRESENT)
        return wanted if is_free else current
    return min(wanted, current + max(wanted + _surge(obj) - current - others, 0)) if current < wanted else wanted


def _annotations_of(obj: Obj) -> dict[str, str]:
    """Return the annotations that a deployment shares with its current replica set."""
    annotations = obj["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name not in _OWN_ANNOTATIONS}


def _latest(sets: list[Obj]) -> int:
    return max(map(_revision, sets), default=0)


# How replicas are spread when a deployment is scaled in the middle of a rollout: each replica set gets its share.
#
# See "Proportional scaling" of the Kubernetes documentation on deployments. These are plain numbers, with no objects.


class Share(NamedTuple):
    """A replica set that has replicas."""

    replicas: int
    limit: int
    """How many replicas all sets might have in total when it was scaled last."""
    age: tuple[str, int]
    """The sort key of the sets, from the oldest to the newest."""


def spread(shares: Sequence[Share], wanted: int, surge: int) -> list[int]:
    """Return the new numbers of replicas of all sets, in their order.

    * ``shares``: the sets that have replicas, at least one.
    * ``wanted``: how many replicas the deployment is to have.
    * ``surge``: how many more there may be of all sets in the meantime.
    """
    limit = wanted + surge if wanted > 0 else 0
    adding = limit - sum(share.replicas for share in shares)
    # The largest go first; of the same size, the newest are the first to grow, and the oldest are the first to shrink.
    order = sorted(range(len(shares)), key=lambda index: shares[index].age, reverse=adding > 0)
    order.sort(key=lambda index: -shares[index].replicas)
    sizes, left = [share.replicas for share in shares], adding
    for index in order:
        share = shares[index]
        fair = _round(share.replicas * (wanted + surge), share.limit) - share.replicas if wanted else -share.replicas
        step = min(fair, left) if adding > 0 else max(fair, left)
        sizes[index] += step
        left -= step
    sizes[order[0]] = max(sizes[order[0]] + left, 0)  # the rest of the rounding
    return sizes


def _round(dividend: int, divisor: int) -> int:
    """Divide, to the nearest integer; the halves go up."""
    return (2 * dividend + divisor) // (2 * divisor)
