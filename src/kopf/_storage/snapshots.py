"""
Snapshots: serialised essences, by which Kopf finds out whether an object has changed since its handling.

Usually, nothing has changed, or the object is new. Both can be found out without decoding: a snapshot consists of the
parts of the serialised object, and is compared to the text in the annotation. This works only with the storages of the
framework. Storages of users, and subclasses of the framework's storages, get decoded objects and essences.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

from kopf._storage.diffbase import AnnotationsDiffBaseStorage, DiffBaseStorage
from kopf._storage.essence import drop_managed_annotations, is_managed
from kopf._storage.progress import ProgressStorage
from kopf._values import codec
from kopf._values.bodies import Body, BodyEssence
from kopf._values.fields import FieldPath
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch

_FEW = 20
"""How many annotations an object has at most if the choice of the essential ones is kept for others like it."""


class Snapshots:
    """
    Takes snapshots of the objects of one resource, and reads & stores the last handled ones.

    Large because it finds out all about the storages once, instead of for every object.
    """

    def __init__(
        self, diffbase: DiffBaseStorage, progress: ProgressStorage, extra_fields: Collection[FieldPath] = ()
    ) -> None:
        """``extra_fields`` are essential here although they usually are not, e.g. in the status."""
        self.extra_fields = extra_fields
        self._diffbase = diffbase
        self._progress = progress
        self._plain: AnnotationsDiffBaseStorage | None = None
        if type(diffbase) is AnnotationsDiffBaseStorage and progress.own_prefix is not None:
            self._plain = None if diffbase.ignored_fields or extra_fields else diffbase
        self.is_plain = self._plain is not None
        """Whether the storages are the framework's own ones, with everything in annotations."""
        self._own_prefix = progress.own_prefix or ""
        self._is_own = functools.lru_cache(maxsize=10_000)(self._find_out_if_own)
        self._choose = functools.lru_cache(maxsize=100)(self._choose_essential)  # most objects have the same ones
        self._names = self._plain.make_all_keys(self._plain.key) if self._plain is not None else ()

    def take(self, obj: KubeObject) -> bytes:
        """Serialise the essence of the object."""
        if self._plain is None:
            essence = self._diffbase.build(body=Body(obj), extra_fields=self.extra_fields)
            return codec.encode(self._progress.clear(essence=essence))
        content = obj.get_content()
        head = obj.head
        metadata: dict[str, Any] = {}
        if head.labels:
            metadata["labels"] = head.labels
        if annotations := head.annotations:
            choose = self._choose if len(annotations) <= _FEW else self._choose_essential
            if names := choose(tuple(annotations)):
                metadata["annotations"] = {name: annotations[name] for name in names}
        if metadata:
            content["metadata"] = metadata
        return codec.encode(content)

    def _choose_essential(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Choose the annotations of users and applications; it depends on all annotations together."""
        others = drop_managed_annotations(dict.fromkeys(names, ""))
        return tuple(name for name in others if not self._is_own(name))

    def _find_out_if_own(self, name: str) -> bool:
        return is_managed(name) or name in self._names or name.startswith(self._own_prefix)

    def compare(self, obj: KubeObject, snapshot: bytes) -> tuple[bool, BodyEssence | None]:
        """
        Tell if the snapshot surely is the last handled one; if not, return the last handled essence for comparison.

        The essence is ``None`` if the object was never handled.
        """
        if self._plain is not None:
            text = self._plain.fetch_text(Body(obj))
            if text is None:
                return False, None
            if text.rstrip("\n").encode() == snapshot:
                return True, None
            essence = self._plain.texts.parse(text, Body(obj))
            if essence is None or not self._could_have_traces(essence):
                return False, essence
        else:
            essence = self._diffbase.fetch(body=Body(obj))
        if essence is None:
            return False, None
        return False, self._progress.clear(essence=self._diffbase.clean(essence))

    def _could_have_traces(self, essence: BodyEssence) -> bool:
        """Tell if the essence can contain fields of the storages, left by older versions."""
        annotations = essence.get("metadata", {}).get("annotations") or ()
        return "status" in essence or any(map(self._is_own, annotations))

    def store(self, snapshot: bytes, *, body: Body, patch: Patch) -> None:
        """Write the snapshot to the patch (or elsewhere) as the last handled one."""
        if self._plain is not None:
            self._plain.store_text(snapshot.decode(), body=body, patch=patch)
        else:
            self._diffbase.store(body=body, patch=patch, essence=codec.decode(snapshot))
