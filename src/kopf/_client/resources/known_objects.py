"""
Known objects: what a watcher remembers of each object, to notice changes and deletions that nobody has watched.

The memory is spared: for every object, only its name and one string are kept.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kopf._values import codec
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.resources import Resource


class KnownObjects:
    """The memory of one watcher."""

    __slots__ = ("_annotations", "_labels", "_resource", "identities")

    def __init__(self, resource: Resource, labels: Collection[str], annotations: Collection[str]) -> None:
        self._resource = resource
        self._labels = frozenset(labels)
        self._annotations = frozenset(annotations)
        self.identities: dict[str, str] = {}
        """
        The keys are "namespace/name", the values are "uid version": strings are invisible for the garbage collector.
        If any labels or annotations are to be remembered, their JSON follows after one more space.
        """

    def identify(self, head: ObjectMeta) -> str:
        """Make what is to be kept for the object in this state."""
        identity = f"{head.uid} {head.resourceVersion}"
        return identity + self._remember(head) if self._labels or self._annotations else identity

    def _remember(self, head: ObjectMeta) -> str:
        chosen = {
            "labels": {key: value for key, value in (head.labels or {}).items() if key in self._labels},
            "annotations": {key: value for key, value in (head.annotations or {}).items() if key in self._annotations},
        }
        present = {stanza: values for stanza, values in chosen.items() if values}
        return f" {codec.encode(present).decode()}" if present else ""

    def forget(self, key: str) -> KubeObject:
        """Drop the object; make one of all that was known of it: little more than the identity."""
        namespace, _, name = key.partition("/")
        uid, version, *remembered = self.identities.pop(key).split(" ", 2)
        identity = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version}
        metadata: dict[str, Any] = {field: value for field, value in identity.items() if value}
        for text in remembered:
            metadata |= codec.decode(text.encode())
        content = {"apiVersion": self._resource.api_version, "kind": self._resource.kind, "metadata": metadata}
        return KubeObject.from_dict(content)
