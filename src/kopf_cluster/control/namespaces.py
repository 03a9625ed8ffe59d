"""
The life of namespaces: a deleted namespace takes all its contents with it, and goes only after them.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..kinds.kind import Kind, Obj
from ..kinds.registry import Registry
from ..store.storage import Change, Key, Record, Store
from ..writes.writing import Writer
from .work import WorkQueue

_BUCKET: Final = "namespaces"
_FINALIZER: Final = "kubernetes"

#: The namespaces that every cluster has from the beginning.
INITIAL: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


class Namespaces:
    """Empties the namespaces that are being deleted."""

    def __init__(self, store: Store, registry: Registry, writer: Writer, queue: WorkQueue) -> None:
        super().__init__()
        self._store = store
        self._registry = registry
        self._writer = writer
        self._queue = queue
        self._terminating: set[str] = set()
        kind = registry.find("", "v1", "namespaces")
        if kind is None:
            raise LookupError("the registry has no namespaces")
        self._kind: Kind = kind

    def create_initial(self) -> None:
        for name in INITIAL:
            if ("", name) not in self._store.bucket(_BUCKET).records:
                self._writer.create(self._kind, "", {"metadata": {"name": name}})

    def observe(self, bucket: str, change: Change) -> None:
        namespace, name = change.record.key
        if bucket == _BUCKET:
            if change.type == "DELETED":
                self._terminating.discard(name)
            elif change.record.deleting:
                self._terminating.add(name)
                self._plan(name)
        elif change.type == "DELETED" and namespace in self._terminating:
            self._plan(namespace)

    def _plan(self, name: str) -> None:
        self._queue.add(("namespace", name), lambda: self._purge(name))

    def _purge(self, name: str) -> None:
        """Delete all that is in the namespace; when nothing is left, let the namespace go."""
        key: Key = ("", name)
        if key not in self._store.bucket(_BUCKET).records:
            return
        for kind, record in list(self._contents(name)):
            if not record.deleting:
                self._writer.delete(kind, record.key)
        if next(self._contents(name), None) is None:
            self._writer.update(self._kind, key, _finalize, subresource="finalize")

    def _contents(self, name: str) -> Iterator[tuple[Kind, Record]]:
        for kind in self._registry.unique_kinds():
            if kind.namespaced:
                for record in self._store.bucket(kind.bucket).select(name):
                    yield kind, record


def _finalize(old: Obj) -> Obj:
    spec = old.get("spec") or {}
    kept = [item for item in spec.get("finalizers") or () if item != _FINALIZER]
    return {**old, "spec": {**spec, "finalizers": kept}}
