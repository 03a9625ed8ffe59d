"""
Storages of the last handled configuration of objects: the base of the diffs.

It is the essence of the object when all of its handlers last finished. Objects without it are new to the operator.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterable
from typing import Any

from kopf._storage.annotation_names import AnnotationNaming, mark_prefix
from kopf._storage.essence import (
    EssenceCleaner,
    StoredTexts,
    build_essence,
    check_object,
    drop_annotations,
    drop_field,
)
from kopf._values import codec
from kopf._values.bodies import Body, BodyEssence
from kopf._values.fields import FieldPath, FieldSpec, ensure, parse_field, resolve
from kopf._values.patches import Patch

_MALFORMED = "The last handled configuration of %s/%s is malformed, so the object is treated as never handled: %s"


class DiffBaseStorage(EssenceCleaner, abc.ABC):
    """
    The base class of storages of the last handled configuration, for ``settings.persistence.diffbase_storage``.

    :param ignored_fields: the fields whose changes call no handlers, e.g. ``"spec.field"``.
    """

    ignored_fields: tuple[FieldPath, ...] = ()
    """The fields whose changes call no handlers."""

    def __init__(self, ignored_fields: Iterable[FieldSpec] | None = None) -> None:
        super().__init__()
        self.ignored_fields = tuple(parse_field(field) for field in ignored_fields or ())

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        """
        Extract the essence of the object: Kopf compares it to detect changes.

        It includes ``extra_fields``, even if they are usually not essential (e.g. in the status), but not the
        ``ignored_fields`` of the storage.
        """
        return self.clean(build_essence(body, extra_fields))

    def clean(self, essence: BodyEssence) -> BodyEssence:
        """Remove the ignored fields: older stored essences can have them."""
        for path in self.ignored_fields:
            essence = drop_field(essence, path)
        return essence

    @abc.abstractmethod
    def fetch(self, *, body: Body) -> BodyEssence | None:
        """Read the last handled configuration from the object; ``None`` if the object was never handled."""

    @abc.abstractmethod
    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        """Write the last handled configuration to the patch (or elsewhere)."""


def check_essence(essence: Any) -> None:
    """Check an essence that users could have modified. Raises :class:`ValueError` if it is malformed."""
    check_object(essence)
    metadata = essence.get("metadata", {})
    if (
        not isinstance(metadata, dict)
        or not isinstance(metadata.get("labels") or {}, dict)
        or not isinstance(metadata.get("annotations") or {}, dict)
    ):
        raise ValueError("the metadata, labels, or annotations are not objects")


class AnnotationsDiffBaseStorage(AnnotationNaming, DiffBaseStorage):
    """
    A storage of the last handled configuration as JSON in an annotation. This is the default.

    :param prefix: the prefix of the annotation.
    :param key: the name of the annotation after the prefix.
    :param v1: whether to write the older form of the name, too, if it differs.
    :param ignored_fields: the fields whose changes call no handlers.
    """

    def __init__(
        self,
        *,
        prefix: str = "kopf.zalando.org",
        key: str = "last-handled-configuration",
        v1: bool = True,
        ignored_fields: Iterable[FieldSpec] | None = None,
    ) -> None:
        AnnotationNaming.__init__(self, prefix=prefix, v1=v1)
        DiffBaseStorage.__init__(self, ignored_fields)
        self.key = key
        self.texts = StoredTexts(_MALFORMED, check_essence)

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        essence = super().build(body=body, extra_fields=extra_fields)
        return drop_annotations(essence, names=self.make_all_keys(self.key))

    def fetch(self, *, body: Body) -> BodyEssence | None:
        text = self.fetch_text(body)
        return None if text is None else self.texts.parse(text, body)

    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        self.store_text(codec.dumps(essence), body=body, patch=patch)

    def fetch_text(self, body: Body) -> str | None:
        """Read the serialised configuration; ``None`` if there is none."""
        if annotations := body.object.head.annotations:
            for name in self.make_keys(self.key, body=body):
                if name in annotations:
                    return annotations[name]
        return None

    def store_text(self, text: str, *, body: Body, patch: Patch) -> None:
        """Write the serialised configuration to the patch."""
        annotations = patch.ensure_stanza("metadata", "annotations")
        for name in self.make_keys(self.key, body=body):
            annotations[name] = text + "\n"
        mark_prefix(self.prefix, body=body, patch=patch)


class StatusDiffBaseStorage(DiffBaseStorage):
    """
    A storage of the last handled configuration as JSON in a field of the status.

    :param name: the name of the operator, for ``{name}`` in the field.
    :param field: the path to the field.
    :param ignored_fields: the fields whose changes call no handlers.
    """

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: FieldSpec = "status.{name}.last-handled-configuration",
        ignored_fields: Iterable[FieldSpec] | None = None,
    ) -> None:
        super().__init__(ignored_fields=ignored_fields)
        self.name = name
        self._texts = StoredTexts(_MALFORMED, check_essence)
        self._field = parse_field(field.format(name=name) if isinstance(field, str) else field)

    @property
    def field(self) -> FieldPath:
        """The path to the field."""
        return self._field

    @field.setter
    def field(self, field: FieldSpec) -> None:
        self._field = parse_field(field)

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        essence = super().build(body=body, extra_fields=extra_fields)
        return drop_field(essence, self.field)

    def fetch(self, *, body: Body) -> BodyEssence | None:
        text = resolve(body, self.field)
        return self._texts.parse(text, body) if isinstance(text, str) else None

    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        ensure(patch, self.field, codec.dumps(essence))


class MultiDiffBaseStorage(DiffBaseStorage):
    """
    A storage of the last handled configuration in several storages. Kopf reads the first one that has it.

    :param storages: the storages, in the order of reading.
    :param ignored_fields: the fields whose changes call no handlers.
    """

    def __init__(
        self, storages: Collection[DiffBaseStorage], *, ignored_fields: Iterable[FieldSpec] | None = None
    ) -> None:
        super().__init__(ignored_fields=ignored_fields)
        self.storages = storages

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        fields = list(extra_fields or ())
        essence = super().build(body=body, extra_fields=fields)
        for storage in self.storages:
            essence = storage.build(body=Body(essence), extra_fields=fields)
        return essence

    def fetch(self, *, body: Body) -> BodyEssence | None:
        found = (storage.fetch(body=body) for storage in self.storages)
        return next((essence for essence in found if essence is not None), None)

    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        for storage in self.storages:
            storage.store(body=body, patch=patch, essence=essence)
