"""
Where the progress of the handlers is kept: one record a handler, on the object itself by default.

The records are independent of each other, so that several operators can keep theirs on the same object.
"""

from __future__ import annotations

import abc
import copy
import functools
import logging
from collections.abc import Collection, Mapping
from typing import TypedDict, cast

from kopf._storage.annotation_names import AnnotationNaming, mark_prefix
from kopf._storage.essence import EssenceCleaner, drop_annotations, drop_field
from kopf._values import codec
from kopf._values.bodies import Body, BodyEssence
from kopf._values.fields import FieldPath, FieldSpec, ensure, parse_field, resolve
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch

logger = logging.getLogger("kopf.persistence")


class ProgressRecord(TypedDict, total=False):
    """The persisted state of one handler. The times are ISO 8601 with microseconds and a time zone."""

    started: str | None
    stopped: str | None
    delayed: str | None
    purpose: str | None
    retries: int | None
    success: bool | None
    failure: bool | None
    message: str | None
    subrefs: Collection[HandlerId] | None
    digest: str | None
    """Which state of the object (or of the handler's field) the last attempt was for; only for updates & creations."""
    reentries: int | None
    """How many of the retries were made only to go on with the sub-handlers; only for those that have them."""
    baseline: str | None
    """The serialised essence as of the beginning of the creation; only in one of the records."""
    exception: str | None
    """The class of the last error; ``message`` is its text, as in the original framework."""


class ProgressStorage(EssenceCleaner, abc.ABC):
    """The interface of all storages of the handlers' progress."""

    @abc.abstractmethod
    def fetch(self, *, key: HandlerId, body: Body) -> ProgressRecord | None:
        """Get the record of the handler; ``None`` if there is none."""

    @abc.abstractmethod
    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        """Put the record of the handler to the patch (or elsewhere)."""

    @abc.abstractmethod
    def purge(self, *, key: HandlerId, body: Body, patch: Patch) -> None:
        """Remove the record of the handler, if there is one."""

    @abc.abstractmethod
    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        """Set or remove (``None``) the dummy field, by which older operators used to wake themselves up."""

    @abc.abstractmethod
    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Leave the fields of this storage out of the essence; here, it is a copy that descendants can change."""
        return copy.deepcopy(essence)

    @property
    def own_prefix(self) -> str | None:
        """
        The prefix (with the slash) of the annotations, if there is nothing else of this storage in the essences.

        ``None`` is for those of which it is not known: then, the essences are always passed to :meth:`clear`.
        """
        return None

    def could_have(self, keys: tuple[HandlerId, ...], *, obj: KubeObject) -> bool:
        """
        Tell if there could be anything of this storage on the object: a record of these handlers, the dummy field.

        It has to be cheap, and says yes if in doubt. If it says no, then nothing is fetched or removed.
        """
        return True

    def flush(self) -> None:  # optional to override
        """Write what was cached in memory, if the storage does so; called when a handling cycle ends."""


def _compact(record: ProgressRecord) -> ProgressRecord:
    return cast(ProgressRecord, {key: value for key, value in record.items() if value is not None})


def _warn(annotation: str, namespace: str | None, name: str, uid: str, problem: str) -> None:
    logger.warning(
        "The annotation %r of %s/%s is malformed, so the handler starts anew: %s",
        annotation,
        namespace or "",
        name,
        problem,
    )


class AnnotationsProgressStorage(AnnotationNaming, ProgressStorage):
    """Keeps the records as JSON in annotations, one for each handler."""

    def __init__(
        self,
        *,
        prefix: str = "kopf.zalando.org",
        verbose: bool = False,
        touch_key: str = "touch-dummy",
        v1: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, v1=v1)
        self.verbose = verbose
        self.touch_key = touch_key
        self._warn = functools.lru_cache(maxsize=1000)(_warn)  # once: they are read again and again
        self._names: dict[tuple[HandlerId, ...], frozenset[str]] = {}

    def list_names(self, keys: tuple[HandlerId, ...]) -> frozenset[str]:
        """The names of all annotations that there can be for these handlers."""
        if (names := self._names.get(keys)) is None:
            names = frozenset(name for key in (*keys, self.touch_key) for name in self.make_all_keys(key))
            self._names[keys] = names
        return names

    @property
    def own_prefix(self) -> str | None:
        # The descendants can do anything there.
        return f"{self.prefix}/" if self.prefix and type(self) is AnnotationsProgressStorage else None

    def could_have(self, keys: tuple[HandlerId, ...], *, obj: KubeObject) -> bool:
        annotations = obj.head.annotations
        if type(self) is not AnnotationsProgressStorage:
            return True
        return annotations is not None and not self.list_names(keys).isdisjoint(annotations)

    def fetch(self, *, key: HandlerId, body: Body) -> ProgressRecord | None:
        annotations = body.object.head.annotations or {}
        for name in self.make_keys(key, body=body):
            if (text := annotations.get(name)) is not None:
                return self._parse(text, name, body)
        return None

    def _parse(self, text: str, name: str, body: Body) -> ProgressRecord | None:
        problem: str
        try:
            record = codec.decode(text)
        except ValueError as e:
            problem = str(e)
        else:
            if isinstance(record, dict):
                return cast(ProgressRecord, record)
            problem = f"expected an object, got {type(record).__name__}"
        head = body.object.head
        self._warn(name, head.namespace, head.name, head.uid, problem)
        return None

    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        text = codec.dumps(record if self.verbose else _compact(record))
        annotations = patch.ensure_stanza("metadata", "annotations")
        for name in self.make_keys(key, body=body):
            annotations[name] = text
        mark_prefix(self.prefix, body=body, patch=patch)

    def purge(self, *, key: HandlerId, body: Body, patch: Patch) -> None:
        self._remove(self.make_keys(key, body=body), body=body, patch=patch)

    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        names = self.make_keys(self.touch_key, body=body)
        if value is None:
            self._remove(names, body=body, patch=patch)
        else:
            for name in names:
                patch.metadata.annotations[name] = value

    def _remove(self, names: Collection[str], *, body: Body, patch: Patch) -> None:
        existing = body.object.head.annotations or {}
        for name in names:
            if name in existing:
                patch.ensure_stanza("metadata", "annotations")[name] = None
            elif "metadata" in patch:
                patch.metadata.annotations.pop(name, None)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        return drop_annotations(essence, prefix=self.prefix)


class StatusProgressStorage(ProgressStorage):
    """
    Keeps the records in a field of the status, keyed by the ids of the handlers.

    The digests and the like are beside the records: older versions rewrite the records that have anything they do not
    know, but such a patch changes nothing, and they wait forever for the change to come. What they leave behind is
    ignored.
    """

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: FieldSpec = "status.{name}.progress",
        touch_field: FieldSpec = "status.{name}.dummy",
    ) -> None:
        super().__init__()
        self.name = name
        self._field = parse_field(field.format(name=name) if isinstance(field, str) else field)
        self._touch_field = parse_field(touch_field.format(name=name) if isinstance(touch_field, str) else touch_field)
        self._places = self._list_places()

    def _list_places(self) -> tuple[tuple[str, str], ...]:
        """Where the fields are: the stanzas, and the keys there; any text has an empty one, any object has metadata."""
        paths = dict.fromkeys([self._field[:2], self._touch_field[:2]])
        return tuple((path[0] if path else "metadata", path[1] if len(path) > 1 else "") for path in paths)

    @property
    def field(self) -> FieldPath:
        """The path to the field with the records."""
        return self._field

    @field.setter
    def field(self, field: FieldSpec) -> None:
        self._field = parse_field(field)
        self._places = self._list_places()

    @property
    def touch_field(self) -> FieldPath:
        """The path to the dummy field."""
        return self._touch_field

    @touch_field.setter
    def touch_field(self, field: FieldSpec) -> None:
        self._touch_field = parse_field(field)
        self._places = self._list_places()

    def fetch(self, *, key: HandlerId, body: Body) -> ProgressRecord | None:
        record = resolve(body, (*self.field, key))
        if not isinstance(record, Mapping):
            return None
        found = resolve(body, (*self.field, _get_digest_key(key)))
        if isinstance(found, Mapping) and found.get("started") == record.get("started"):
            record = {**record, **{name: found.get(name) for name in _EXTRAS}}
        return cast(ProgressRecord, record)

    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        # Merge-patches keep what is not mentioned, so the absent values of older attempts are to be mentioned.
        previous = self.fetch(key=key, body=body) or {}
        values = {**dict.fromkeys(previous), **record}
        extras = {name: values.pop(name, None) for name in _EXTRAS}
        ensure(patch, (*self.field, key), values)
        if any(value is not None for value in extras.values()):
            path = (*self.field, _get_digest_key(key))
            ensure(patch, path, {"started": record.get("started"), **extras})
        else:
            _remove((*self.field, _get_digest_key(key)), body=body, patch=patch)

    def purge(self, *, key: HandlerId, body: Body, patch: Patch) -> None:
        if resolve(body, self.field) is not None or resolve(patch, self.field) is not None:
            _remove((*self.field, key), body=body, patch=patch)
            _remove((*self.field, _get_digest_key(key)), body=body, patch=patch)

    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        if value is None:
            _remove(self.touch_field, body=body, patch=patch)
        else:
            ensure(patch, self.touch_field, value)

    def could_have(self, keys: tuple[HandlerId, ...], *, obj: KubeObject) -> bool:
        if type(self) is not StatusProgressStorage:
            return True
        for stanza, key in self._places:  # noqa: SIM110  # it is asked of every object
            if obj.could_have(stanza, key):
                return True
        return False

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        return drop_field(drop_field(essence, self.field), self.touch_field)


_EXTRAS = ("digest", "reentries", "baseline", "exception")
"""What older versions do not have in their records."""


def _get_digest_key(key: str) -> str:
    return f"{key}~digest"


def _remove(path: FieldPath, *, body: Body, patch: Patch) -> None:
    """Remove the field from the object, if it is there, and from what is to be patched."""
    if path[0] not in body and path[0] not in patch:  # the usual case, for several paths of every handler
        return
    if resolve(body, path) is not None:
        ensure(patch, path, None)
    elif (parent := resolve(patch, path[:-1])) is not None:
        parent.pop(path[-1], None)


class MultiProgressStorage(ProgressStorage):
    """Keeps the records in several storages; the first one that has a record is used for reading."""

    def __init__(self, storages: Collection[ProgressStorage]) -> None:
        super().__init__()
        self.storages = storages

    def fetch(self, *, key: HandlerId, body: Body) -> ProgressRecord | None:
        found = (storage.fetch(key=key, body=body) for storage in self.storages)
        return next((record for record in found if record is not None), None)

    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        for storage in self.storages:
            storage.store(key=key, record=record, body=body, patch=patch)

    def purge(self, *, key: HandlerId, body: Body, patch: Patch) -> None:
        for storage in self.storages:
            storage.purge(key=key, body=body, patch=patch)

    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        for storage in self.storages:
            storage.touch(body=body, patch=patch, value=value)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        for storage in self.storages:
            essence = storage.clear(essence=essence)
        return essence

    def flush(self) -> None:
        for storage in self.storages:
            storage.flush()


class SmartProgressStorage(MultiProgressStorage):
    """
    The default: annotations; records that older versions have left in the status are still read and removed.

    Nothing is written to the status: schemas prune unknown fields of it, and it costs one more API request.
    """

    def __init__(
        self,
        *,
        name: str = "kopf",
        field: FieldSpec = "status.{name}.progress",
        touch_key: str = "touch-dummy",
        touch_field: FieldSpec = "status.{name}.dummy",
        prefix: str = "kopf.zalando.org",
        v1: bool = True,
        verbose: bool = False,
    ) -> None:
        """
        See :class:`AnnotationsProgressStorage` and :class:`StatusProgressStorage` for the options.

        Large because the existing operators call it with the options of both storages.
        """
        self._annotations = AnnotationsProgressStorage(prefix=prefix, verbose=verbose, touch_key=touch_key, v1=v1)
        self._status = StatusProgressStorage(name=name, field=field, touch_field=touch_field)
        super().__init__([self._annotations, self._status])

    @property
    def own_prefix(self) -> str | None:
        is_only_status = self._status.field[0] == self._status.touch_field[0] == "status"
        return self._annotations.own_prefix if is_only_status and type(self) is SmartProgressStorage else None

    def could_have(self, keys: tuple[HandlerId, ...], *, obj: KubeObject) -> bool:
        if type(self) is not SmartProgressStorage:
            return True
        annotations = obj.head.annotations
        if annotations is not None and not self._annotations.list_names(keys).isdisjoint(annotations):
            return True
        return self._status.could_have(keys, obj=obj)

    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        self._annotations.store(key=key, record=record, body=body, patch=patch)

    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        if value is None:
            super().touch(body=body, patch=patch, value=value)
        else:
            self._annotations.touch(body=body, patch=patch, value=value)

    def flush(self) -> None:
        """Nothing is cached here."""
