"""
The deletion of namespaces: the contents of a deleted namespace are deleted first.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from kopf_cluster import statuses
from kopf_cluster.control.loops import ControlLoop, Objects, make_condition
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.store.watch_cache import Change, Record

_BUCKET: Final = "namespaces"
_PODS: Final = "pods"

# The delay between a change in a deleted namespace and a scan of its contents, in seconds: changes come in bursts.
_PAUSE: Final = 0.1
_FINALIZER: Final = "kubernetes"

INITIAL: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
"""The initial namespaces of every cluster."""

Contents: TypeAlias = tuple[Kind, Record]


class Namespaces(ControlLoop):
    """Empties the namespaces that are being deleted."""

    def __init__(self, access: Objects) -> None:
        super().__init__(access)
        self._terminating: set[str] = set()
        self._kind = access.kind(_BUCKET)

    def create_initial(self) -> None:
        for name in INITIAL:
            if ("", name) not in self.objects.store.bucket(_BUCKET).records:
                self.objects.writer.create(self._kind, "", {"metadata": {"name": name}})

    def observe(self, bucket: str, change: Change) -> None:
        namespace, name = change.record.key
        if bucket == _BUCKET:
            if change.type == "DELETED":
                self._terminating.discard(name)
            elif change.record.deleting:
                if name not in self._terminating:
                    self.objects.queue.add(self._purge, name)
                self._terminating.add(name)
        elif namespace in self._terminating:
            if change.type == "DELETED":
                self.objects.queue.add(self._end, namespace)
            self.objects.queue.add_later(_PAUSE, self._purge, namespace)  # it scans the whole namespace

    def _purge(self, name: str) -> None:
        """Delete the contents of the namespace, and report the remaining objects; if there are none, finalize it."""
        if not self._is_terminating(name):
            return
        refused: dict[str, str] = {}
        # Pods go first, so that they do not lose what they use; since Kubernetes 1.33.
        left = self._delete(name, refused, lambda kind: kind.bucket == _PODS)
        if not left:
            left = self._delete(name, refused, lambda kind: kind.bucket != _PODS)
        self.objects.writer.update(
            self._kind, ("", name), lambda old: _report(old, left, refused), subresource="status"
        )
        self._end(name)

    def _delete(self, name: str, refused: dict[str, str], selects: Callable[[Kind], bool]) -> list[Contents]:
        """Delete the objects of the selected kinds, collect refusals by buckets, and return the remaining objects."""
        for kind, record in list(self._contents(name)):
            if selects(kind) and not record.deleting:
                try:
                    self.objects.writer.delete(kind, record.key)
                except statuses.APIStatus as error:  # the others must go anyway
                    refused.setdefault(kind.bucket, error.message)
        return [(kind, record) for kind, record in self._contents(name) if selects(kind)]

    def _end(self, name: str) -> None:
        """Finalize the namespace if it is empty."""
        if self._is_terminating(name) and next(self._contents(name), None) is None:
            self.objects.writer.update(self._kind, ("", name), _finalize, subresource="finalize")

    def _is_terminating(self, name: str) -> bool:
        """Whether the namespace is still being deleted: it may be gone by now, or be a new one of the same name."""
        record = self.objects.store.bucket(_BUCKET).records.get(("", name))
        return record is not None and record.deleting

    def _contents(self, name: str) -> Iterator[Contents]:
        for kind in self.objects.registry.unique_kinds():
            if kind.namespaced:
                for record in self.objects.store.bucket(kind.bucket).select(name):
                    yield kind, record


def _finalize(old: Obj) -> Obj:
    spec = old.get("spec") or {}
    kept = [item for item in spec.get("finalizers") or () if item != _FINALIZER]
    return {**old, "spec": {**spec, "finalizers": kept}}


# The conditions of a deleted namespace, in the words of the namespace controller.
#
# A condition is ``True`` if there is a failure, or if objects remain; see "NamespaceCondition" in the API reference.

_GOOD: Final = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""The types of all conditions in their order, with the reasons and messages for the status ``False``."""


def _report(old: Obj, left: Sequence[Contents], refused: Mapping[str, str]) -> Obj:
    """Set all conditions of a namespace with these remaining objects, and with refused deletions by buckets."""
    # The core group has no name, so "pods." is as in a real cluster.
    resources = collections.Counter(f"{kind.plural}.{kind.group}" for kind, _ in left)
    finalizers = collections.Counter(finalizer for _, record in left for finalizer in record.finalizers)
    bad = {}
    if refused:
        bad["NamespaceDeletionContentFailure"] = (
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {len(refused)} remaining: " + ", ".join(sorted(refused.values())),
        )
    if resources:
        bad["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {_join(resources, 'has')}",
        )
    if finalizers:
        bad["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {_join(finalizers, 'in')}",
        )
    status = old.get("status") or {}
    conditions = [
        make_condition(status.get("conditions") or (), kind, "True" if kind in bad else "False", *bad.get(kind, good))
        for kind, good in _GOOD.items()
    ]
    return {**old, "status": {**status, "conditions": conditions}}


def _join(counts: Mapping[str, int], word: str) -> str:
    return ", ".join(sorted(f"{what} {word} {count} resource instances" for what, count in counts.items()))
