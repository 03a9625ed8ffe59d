"""
The life of namespaces: a deleted namespace takes all its contents with it, and goes only after them.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kopf_cluster import ages, statuses
from kopf_cluster.control.loops import Objects, make_condition
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.store.storage import Change, Record

_BUCKET: Final = "namespaces"
_PODS: Final = "pods"

# How long after a change in a deleted namespace all of it is looked at, in seconds: the changes are many, usually.
_PAUSE: Final = 0.1
_FINALIZER: Final = "kubernetes"

INITIAL: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
"""The namespaces that every cluster has from the beginning."""


class Namespaces:
    """Empties the namespaces that are being deleted."""

    def __init__(self, access: Objects) -> None:
        self._objects = access
        self._terminating: set[str] = set()
        self._kind = access.kind(_BUCKET)

    def create_initial(self) -> None:
        for name in INITIAL:
            if ("", name) not in self._objects.store.bucket(_BUCKET).records:
                self._objects.writer.create(self._kind, "", {"metadata": {"name": name}})

    def observe(self, bucket: str, change: Change) -> None:
        namespace, name = change.record.key
        if bucket == _BUCKET:
            if change.type == "DELETED":
                self._terminating.discard(name)
            elif change.record.deleting:
                if name not in self._terminating:
                    self._plan(name)
                self._terminating.add(name)
        elif namespace in self._terminating:
            if change.type == "DELETED":
                self._objects.queue.add(("end of a namespace", namespace), lambda: self._end(namespace))
            # Not for every object that goes of many, as the whole namespace is looked through.
            self._objects.queue.add_later(_PAUSE, ("namespace, later", namespace), lambda: self._plan(namespace))

    def _plan(self, name: str) -> None:
        self._objects.queue.add(("namespace", name), lambda: self._purge(name))

    def _purge(self, name: str) -> None:
        """Delete all that is in the namespace, and tell what is left; when nothing is, let the namespace go."""
        if not self._is_terminating(name):
            return
        remains = Remains()
        # Pods go before everything else, so that nothing is taken from under them; since 1.33.
        if not self._delete(name, remains, lambda kind: kind.bucket == _PODS):
            self._delete(name, remains, lambda kind: kind.bucket != _PODS)
        self._objects.writer.update(self._kind, ("", name), lambda old: _tell(old, remains), subresource="status")
        self._end(name)

    def _delete(self, name: str, remains: Remains, selects: Callable[[Kind], bool]) -> bool:
        """Delete the objects of the selected kinds; tell whether any is left."""
        refused: dict[str, str] = {}
        for kind, record in list(self._contents(name)):
            if selects(kind) and not record.deleting:
                try:
                    self._objects.writer.delete(kind, record.key)
                except statuses.APIStatus as error:  # the others must go anyway
                    refused.setdefault(kind.bucket, error.message)
        for message in refused.values():
            remains.add_failure(message)
        left = [(kind, record) for kind, record in self._contents(name) if selects(kind)]
        for kind, record in left:
            remains.add(kind.group, kind.plural, record.finalizers)
        return bool(left)

    def _end(self, name: str) -> None:
        """Let the namespace go if it is empty."""
        if self._is_terminating(name) and next(self._contents(name), None) is None:
            self._objects.writer.update(self._kind, ("", name), _finalize, subresource="finalize")

    def _is_terminating(self, name: str) -> bool:
        """Whether there is still something to do: by then, it can be gone, and there can be a new one of this name."""
        record = self._objects.store.bucket(_BUCKET).records.get(("", name))
        return record is not None and record.deleting

    def _contents(self, name: str) -> Iterator[tuple[Kind, Record]]:
        for kind in self._objects.registry.unique_kinds():
            if kind.namespaced:
                for record in self._objects.store.bucket(kind.bucket).select(name):
                    yield kind, record


def _tell(old: Obj, remains: Remains) -> Obj:
    status = old.get("status") or {}
    return {**old, "status": {**status, "conditions": remains.as_conditions(status.get("conditions") or [])}}


def _finalize(old: Obj) -> Obj:
    spec = old.get("spec") or {}
    kept = [item for item in spec.get("finalizers") or () if item != _FINALIZER]
    return {**old, "spec": {**spec, "finalizers": kept}}


# What keeps a deleted namespace: the conditions in its status, as the namespace controller words them.
#
# A condition is ``True`` if something is wrong or remains; see "NamespaceCondition" of the Kubernetes API reference.

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
"""The types of all conditions in their order, with the reasons and messages when all is well."""


class Remains:
    """What is left in a namespace after everything was told to go."""

    def __init__(self) -> None:
        self._resources: collections.Counter[str] = collections.Counter()
        self._finalizers: collections.Counter[str] = collections.Counter()
        self._failures: list[str] = []

    def add(self, group: str, plural: str, finalizers: Iterable[str]) -> None:
        """Count an object."""
        self._resources[f"{plural}.{group}"] += 1  # the core group has no name, so "pods." is as in reality
        self._finalizers.update(finalizers)

    def add_failure(self, message: str) -> None:
        """Note that objects could not be deleted."""
        self._failures.append(message)

    def as_conditions(self, old: Sequence[Obj]) -> list[Obj]:
        """Give all conditions; the times of transitions are kept where the statuses are the same."""
        bad = {}
        if self._failures:
            bad["NamespaceDeletionContentFailure"] = (
                "ContentDeletionFailed",
                f"Failed to delete all resource types, {len(self._failures)} remaining: "
                + ", ".join(sorted(self._failures)),
            )
        if self._resources:
            bad["NamespaceContentRemaining"] = (
                "SomeResourcesRemain",
                f"Some resources are remaining: {_join(self._resources, 'has')}",
            )
        if self._finalizers:
            bad["NamespaceFinalizersRemaining"] = (
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {_join(self._finalizers, 'in')}",
            )
        now = ages.now()
        return [
            make_condition(list(old), kind, "True" if kind in bad else "False", *bad.get(kind, good), now)
            for kind, good in _GOOD.items()
        ]


def _join(counts: Mapping[str, int], word: str) -> str:
    return ", ".join(sorted(f"{what} {word} {count} resource instances" for what, count in counts.items()))
