"""
The common base of all controllers of workloads, which compare the desired state with the actual one, and make a step.

A controller is called for an object soon after a change of the object or of any of its children. It looks only at the
current state, so it may be called late, or once for many changes.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Collection, Iterable
from typing import ClassVar, Final, NamedTuple

import msgspec

from kopf_cluster import ages
from kopf_cluster.control.loops import (
    ControlLoop,
    Objects,
    controller_of,
    key_of,
    make_condition,
    namespace_of,
    reference_to,
)
from kopf_cluster.kinds import selectors
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.watch_cache import Change, Key

PODS: Final = "pods"
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # as in Kubernetes


class Controller(ControlLoop):
    """A controller of one kind of objects, which own objects of other kinds."""

    bucket: ClassVar[str]
    children: ClassVar[tuple[str, ...]] = (PODS,)

    def __init__(self, access: Objects) -> None:
        super().__init__(access)
        self._keys: dict[str, Key] = {}
        self._children: dict[str, set[tuple[str, Key]]] = {}

    def observe(self, bucket: str, change: Change) -> None:
        record = change.record
        if bucket == self.bucket:
            if change.type == "DELETED":
                self._keys.pop(record.uid, None)
            else:
                self._keys[record.uid] = record.key
                self.plan(record.key)
        elif bucket in self.children:
            before = change.previous.owners if change.previous is not None else ()
            after = () if change.type == "DELETED" else record.owners
            for uid in dict.fromkeys([*before, *after]):
                self._relink(uid, (bucket, record.key), uid in after)
                if uid in self._keys:
                    self.plan(self._keys[uid])

    def _relink(self, uid: str, child: tuple[str, Key], linked: bool) -> None:
        children = self._children.setdefault(uid, set())
        children.add(child) if linked else children.discard(child)
        if not children:
            del self._children[uid]

    def plan(self, key: Key) -> None:
        self.objects.queue.add(self.reconcile_key, key)

    def reconcile_key(self, key: Key) -> None:
        """Reconcile the object if it exists, and is not being deleted."""
        obj = self.objects.get(self.bucket, key)
        if obj is not None and "deletionTimestamp" not in obj["metadata"]:
            self.reconcile(obj)

    @abc.abstractmethod
    def reconcile(self, obj: Obj) -> None:
        """Make a step from the actual state to the desired one, and report the actual state in the status."""

    def owned(self, bucket: str, owner: Obj) -> list[Obj]:
        """Return the objects that the owner controls, in the order of names."""
        uid = owner["metadata"]["uid"]
        keys = sorted(key for place, key in self._children.get(uid, ()) if place == bucket)
        found = [obj for key in keys if (obj := self.objects.get(bucket, key)) is not None]
        return [obj for obj in found if (controller_of(obj) or {}).get("uid") == uid]

    def create_pod(
        self,
        owner: Obj,
        template: Obj,
        *,
        name: str | None = None,
        labels: Obj | None = None,
        annotations: Obj | None = None,
        spec: Obj | None = None,
    ) -> None:
        """Create a pod from the template."""
        metadata = template.get("metadata") or {}
        named = {"name": name} if name is not None else {"generateName": f"{owner['metadata']['name']}-"}
        self.objects.create(
            PODS,
            namespace_of(owner),
            {
                "metadata": {
                    **named,
                    "labels": {**(metadata.get("labels") or {}), **(labels or {})},
                    "annotations": {**(metadata.get("annotations") or {}), **(annotations or {})},
                    "finalizers": metadata.get("finalizers"),
                    "ownerReferences": [reference_to(owner)],
                },
                "spec": {
                    **(template.get("spec") or {}),
                    **{field: value for field, value in (spec or {}).items() if value is not None},
                },
            },
        )

    def delete_pods(self, pods: Iterable[Obj]) -> None:
        for pod in pods:
            self.objects.delete(PODS, key_of(pod))

    def set_status(self, obj: Obj, status: Obj) -> None:
        self.objects.set_status(self.bucket, key_of(obj), status)

    @staticmethod
    def condition(obj: Obj, kind: str, status: bool, reason: str, message: str) -> Obj:
        """Make a condition of a workload, with the time of its update."""
        old = (obj.get("status") or {}).get("conditions") or []
        now = ages.now()
        made = make_condition(old, kind, "True" if status else "False", reason, message)
        same = next((item for item in old if item["type"] == kind and item.get("reason") == reason), None)
        updated = now if same is None or made["lastTransitionTime"] == now else same.get("lastUpdateTime", now)
        return {**made, "lastUpdateTime": updated}


class Adopter(Controller):
    """A controller that adopts selected orphans, and releases children that are no longer selected."""

    def observe(self, bucket: str, change: Change) -> None:
        super().observe(bucket, change)
        if bucket == self.children[0] and change.type != "DELETED" and not change.record.owners:
            for record in self.objects.records(self.bucket, change.record.key[0]):
                self.plan(record.key)

    @staticmethod
    def selector_of(obj: Obj) -> Obj:
        selector: Obj = obj["spec"].get("selector") or {}
        return selector

    def claim(self, obj: Obj) -> None:
        """Adopt and release the children of the first kind."""
        bucket, selector = self.children[0], self.selector_of(obj)
        if not selector:
            return
        for child in self.owned(bucket, obj):
            if not selectors.matches(selector, labels_of(child)):
                self._set_owners(
                    bucket,
                    child,
                    [ref for ref in child["metadata"]["ownerReferences"] if ref["uid"] != obj["metadata"]["uid"]],
                )
        for key in [
            record.key
            for record in self.objects.records(bucket, namespace_of(obj))
            if not record.owners and selectors.matches(selector, record.labels)
        ]:
            orphan = self.objects.get(bucket, key)
            if orphan is not None and is_active(orphan):
                self._set_owners(bucket, orphan, [reference_to(obj)])

    def _set_owners(self, bucket: str, child: Obj, owners: list[Obj]) -> None:
        self.objects.update(
            bucket, key_of(child), lambda old: {**old, "metadata": {**old["metadata"], "ownerReferences": owners}}
        )


def hash_of(template: Obj) -> str:
    """Return the hash that distinguishes revisions of a template; the order of fields makes no difference."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:10])


def is_active(pod: Obj) -> bool:
    """Whether the pod counts: it has neither ended nor is being deleted."""
    return not is_ending(pod) and phase_of(pod) not in ("Succeeded", "Failed")


def is_ending(pod: Obj) -> bool:
    """Whether the pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def is_ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def phase_of(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def labels_of(obj: Obj) -> Obj:
    labels: Obj = obj["metadata"].get("labels") or {}
    return labels


def replicas_of(obj: Obj) -> int:
    replicas = obj["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def resolve_share(value: int | str | None, total: int, *, up: bool) -> int:
    """Resolve a number or a percentage, such as 25%, of the total."""
    if isinstance(value, str) and value.endswith("%"):
        share = int(value[:-1]) * total
        return -(-share // 100) if up else share // 100
    return int(value or 0)


# The history of templates of stateful sets and daemon sets: a `ControllerRevision` for each, numbered by use.
#
# ``kubectl rollout history`` and ``undo`` read it; see "Rollbacks" in the Kubernetes documentation.

REVISIONS: Final = "controllerrevisions.apps"

_DEFAULT_LIMIT: Final = 10


class Revision(NamedTuple):
    """The revision of a template: its name, and the hash in the name."""

    name: str
    hash: str


def record(access: Objects, owner: Obj, known: Collection[Obj], label: str) -> Revision:
    """Keep the current template as the latest revision; a revision that is used again gets a new number.

    It has the annotations of the owner at that time, e.g. the cause of the change.

    * ``access``: the objects of the cluster.
    * ``owner``: the stateful or daemon set.
    * ``known``: its revisions.
    * ``label``: the label of revisions with the hash.
    """
    template = owner["spec"]["template"]
    hash_ = hash_of(template)
    revision = Revision(f"{owner['metadata']['name']}-{hash_}", hash_)
    others = [_number(item) for item in known if item["metadata"]["name"] != revision.name]
    number = max(others, default=0) + 1
    key = (namespace_of(owner), revision.name)
    found = access.get(REVISIONS, key)
    if found is None:
        labels = {**((template.get("metadata") or {}).get("labels") or {}), label: hash_}
        access.create(
            REVISIONS,
            namespace_of(owner),
            {
                "metadata": {
                    "name": revision.name,
                    "labels": labels,
                    "ownerReferences": [reference_to(owner)],
                    "annotations": owner["metadata"].get("annotations"),
                },
                "revision": number,
                "data": {"spec": {"template": {**template, "$patch": "replace"}}},
            },
        )
    elif _number(found) < number:
        access.update(REVISIONS, key, lambda old: {**old, "revision": number})
    return revision


def forget_oldest(access: Objects, owner: Obj, known: Collection[Obj], used: Collection[str]) -> None:
    """Delete the oldest revisions beyond the limit, except those in use, given by their names."""
    limit = owner["spec"].get("revisionHistoryLimit")
    unused = sorted((item for item in known if item["metadata"]["name"] not in used), key=_number)
    for item in unused[: max(len(unused) - (_DEFAULT_LIMIT if limit is None else limit), 0)]:
        access.delete(REVISIONS, key_of(item))


def _number(item: Obj) -> int:
    return int(item.get("revision") or 0)
