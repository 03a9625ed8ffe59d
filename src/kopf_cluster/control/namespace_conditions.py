"""
What keeps a deleted namespace: the conditions in its status, as the namespace controller words them.

A condition is ``True`` if something is wrong or remains; see "NamespaceCondition" of the Kubernetes API reference.
"""
from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kopf_cluster import ages
from kopf_cluster.control.access import make_condition
from kopf_cluster.kinds.kind import Obj

#: The types of all conditions in their order, with the reasons and messages when all is well.
_GOOD: Final = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions",
                                                    "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": ("ContentDeleted",
                                        "All content successfully deleted, may be waiting on finalization"),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


class Remains:
    """What is left in a namespace after everything was told to go."""

    def __init__(self) -> None:
        super().__init__()
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
                "ContentDeletionFailed", f"Failed to delete all resource types, {len(self._failures)} remaining: "
                                         + ", ".join(sorted(self._failures)))
        if self._resources:
            bad["NamespaceContentRemaining"] = (
                "SomeResourcesRemain", f"Some resources are remaining: {_join(self._resources, 'has')}")
        if self._finalizers:
            bad["NamespaceFinalizersRemaining"] = (
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {_join(self._finalizers, 'in')}")
        now = ages.now()
        return [make_condition(list(old), kind, "True" if kind in bad else "False", *bad.get(kind, good), now)
                for kind, good in _GOOD.items()]


def _join(counts: Mapping[str, int], word: str) -> str:
    return ", ".join(sorted(f"{what} {word} {count} resource instances" for what, count in counts.items()))
