"""
The manifests of ``kopf dev``: first the objects that an operator needs to start; the others when it is ready.

As in a real cluster, the objects come when the operator runs, so that its webhooks review them.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from kopf_cluster import LocalCluster

ESTABLISHING_TIMEOUT = 5.0
"""How long a resource definition may take to be served, in seconds."""

_NEEDED_KINDS = {"CustomResourceDefinition", "Namespace", "ServiceAccount", "KopfPeering", "ClusterKopfPeering"}
_NEEDED_GROUP = "rbac.authorization.k8s.io"


class Manifests:
    """Applies the files, and reports problems with them, for the user to fix."""

    def __init__(self, cluster: LocalCluster, say: Callable[..., None]) -> None:
        self._cluster = cluster
        self._say = say
        self._waiting: list[tuple[pathlib.Path, Any]] = []
        self._is_ready = False
        self._defined: set[tuple[str, int]] = set()

    @property
    def are_waiting(self) -> bool:
        """Whether there are objects that wait for the operator."""
        return bool(self._waiting)

    async def apply(self, paths: Collection[pathlib.Path]) -> None:
        """Apply the files in this order; while the operator is not ready, only the objects that it needs."""
        self._waiting = [(path, document) for path, document in self._waiting if path not in paths]
        for path in paths:
            for document in self._read(path):
                if self._is_ready or is_needed_by_operators(document):
                    await self._apply(path, document)
                else:
                    self._waiting.append((path, document))

    async def apply_definitions(self, text: str) -> None:
        """Apply the definitions of the models of the operator, again after each reload, as they can be removed."""
        for document in yaml.safe_load_all(text):
            await self._apply("the models", document)

    async def apply_waiting(self) -> None:
        """Apply the waiting objects, as the operator is ready. From now on, objects do not wait."""
        self._is_ready = True
        waiting, self._waiting = self._waiting, []
        for path, document in waiting:
            await self._apply(path, document)

    def _read(self, path: pathlib.Path) -> list[Any]:
        from kopf_cluster.clients.client import list_objects  # most commands have no cluster

        try:
            documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
            return [item for document in documents for item in list_objects(document)]
        except (OSError, UnicodeError, yaml.YAMLError) as e:
            self._say(f"Cannot apply {path}: {e}", fg="red")
            return []

    async def _apply(self, path: pathlib.Path | str, document: Any) -> None:
        try:
            [obj] = await self._cluster.aio.apply(document)
            meta = obj["metadata"]
            if obj["kind"] == "CustomResourceDefinition":  # as its objects can be the next
                await self._cluster.aio.wait_for(
                    "crd", meta["name"], "condition=Established", timeout=ESTABLISHING_TIMEOUT
                )
        except Exception as e:  # of any kind: of malformed objects, of the API, of webhooks
            self._say(f"Cannot apply {path}: {e}", fg="red")
        else:
            if isinstance(path, str):
                state = meta["uid"], meta["generation"]
                if state in self._defined:
                    return  # it is the same as before the reload
                self._defined.add(state)
            name = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
            self._say(f"Applied {path}: {obj['kind']} {name}")


def is_needed_by_operators(document: Any) -> bool:
    """Tell if an operator needs the object to start: definitions, namespaces, peerings, and permissions."""
    if not isinstance(document, dict):
        return True  # to be refused at once
    group = str(document.get("apiVersion")).partition("/")[0]
    return document.get("kind") in _NEEDED_KINDS or group == _NEEDED_GROUP
