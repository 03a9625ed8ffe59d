"""
Where the last handled configuration of an object is kept: the base of the diffs.

It is the essence of the object as of the last time that all of its handlers were done. Objects that have none were
never handled, i.e. they are new to the operator.
"""

from __future__ import annotations

import abc
import functools
import logging
from collections.abc import Collection, Iterable
from typing import cast

from kopf._storage.annotation_names import AnnotationNaming, mark_prefix
from kopf._storage.essence import EssenceCleaner, build_essence, drop_annotations, drop_field
from kopf._values import codec
from kopf._values.bodies import Body, BodyEssence
from kopf._values.fields import FieldPath, FieldSpec, ensure, parse_field, resolve
from kopf._values.patches import Patch

logger = logging.getLogger("kopf.persistence")


class DiffBaseStorage(EssenceCleaner, abc.ABC):
    """The interface of all storages of the last handled configuration, and what they all have in common."""

    ignored_fields: tuple[FieldPath, ...] = ()

    def __init__(self, ignored_fields: Iterable[FieldSpec] | None = None) -> None:
        super().__init__()
        self.ignored_fields = tuple(parse_field(field) for field in ignored_fields or ())

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        """
        Extract the fields of the object that are compared to find changes.

        ``extra_fields`` are included although they are not essential in general (e.g. in the status). The fields in
        ``ignored_fields`` of the storage are left out.
        """
        return self.clean(build_essence(body, extra_fields))

    def clean(self, essence: BodyEssence) -> BodyEssence:
        """Leave the ignored fields out; those stored before the fields became ignored have them."""
        for path in self.ignored_fields:
            essence = drop_field(essence, path)
        return essence

    @abc.abstractmethod
    def fetch(self, *, body: Body) -> BodyEssence | None:
        """Get the last handled configuration; ``None`` if the object was never handled."""

    @abc.abstractmethod
    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        """Put the last handled configuration to the patch (or elsewhere)."""


class _Parser:
    """Reads the configurations, and warns of those that are malformed: once, as they are read again and again."""

    def __init__(self) -> None:
        self._warn = functools.lru_cache(maxsize=1000)(_warn)

    def __call__(self, text: str, body: Body) -> BodyEssence | None:
        try:
            essence = codec.decode(text)
            check_essence(essence)
        except ValueError as e:
            head = body.object.head
            self._warn(head.namespace, head.name, head.uid, str(e))
            return None
        return cast(BodyEssence, essence)


def check_essence(essence: object) -> None:
    """Anybody who can change the object, can put anything there. Raises :class:`ValueError` if it is not an essence."""
    if not isinstance(essence, dict):
        raise ValueError(f"expected an object, got {type(essence).__name__}")
    metadata = essence.get("metadata", {})
    if (
        not isinstance(metadata, dict)
        or not isinstance(metadata.get("labels") or {}, dict)
        or not isinstance(metadata.get("annotations") or {}, dict)
    ):
        raise ValueError("the metadata, labels, or annotations are not objects")


def _warn(namespace: str | None, name: str, uid: str, problem: str) -> None:
    logger.warning(
        "The last handled configuration of %s/%s is malformed, so the object is considered as never handled: %s",
        namespace or "",
        name,
        problem,
    )


class AnnotationsDiffBaseStorage(AnnotationNaming, DiffBaseStorage):
    """Keeps the last handled configuration as JSON in an annotation."""

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
        self.parse_text = _Parser()
        """Reads the serialised configuration of an object; ``None`` if it is malformed."""

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        essence = super().build(body=body, extra_fields=extra_fields)
        return drop_annotations(essence, names=self.make_all_keys(self.key))

    def fetch(self, *, body: Body) -> BodyEssence | None:
        text = self.fetch_text(body)
        return None if text is None else self.parse_text(text, body)

    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        self.store_text(codec.dumps(essence), body=body, patch=patch)

    def fetch_text(self, body: Body) -> str | None:
        """Get the serialised configuration."""
        if annotations := body.object.head.annotations:
            for name in self.make_keys(self.key, body=body):
                if name in annotations:
                    return annotations[name]
        return None

    def store_text(self, text: str, *, body: Body, patch: Patch) -> None:
        """Put the serialised configuration to the patch."""
        annotations = patch.ensure_stanza("metadata", "annotations")
        for name in self.make_keys(self.key, body=body):
            annotations[name] = text + "\n"
        mark_prefix(self.prefix, body=body, patch=patch)


class StatusDiffBaseStorage(DiffBaseStorage):
    """Keeps the last handled configuration as JSON in a field of the status."""

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: FieldSpec = "status.{name}.last-handled-configuration",
        ignored_fields: Iterable[FieldSpec] | None = None,
    ) -> None:
        super().__init__(ignored_fields=ignored_fields)
        self.name = name
        self._parse = _Parser()
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
        return self._parse(text, body) if isinstance(text, str) else None

    def store(self, *, body: Body, patch: Patch, essence: BodyEssence) -> None:
        ensure(patch, self.field, codec.dumps(essence))


class MultiDiffBaseStorage(DiffBaseStorage):
    """Keeps the last handled configuration in several storages; the first one that has it is used for reading."""

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
