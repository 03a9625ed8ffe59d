"""
Storages of the progress of handlers: one record for each handler, by default on the object itself.

The records are independent, so several operators can have their records on one object.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Collection, Mapping
from typing import TypedDict, cast

from kopf._storage.annotation_names import AnnotationNaming, mark_prefix
from kopf._storage.essence import EssenceCleaner, StoredTexts, drop_annotations, drop_field
from kopf._values import codec
from kopf._values.bodies import Body, BodyEssence
from kopf._values.fields import FieldPath, FieldSpec, ensure, parse_field, resolve
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch


class ProgressRecord(TypedDict, total=False):
    """The persisted state of one handler. All times are in ISO 8601, with microseconds and a time zone."""

    started: str | None
    """The time of the first attempt."""
    stopped: str | None
    """The time when the handler has succeeded or failed for good."""
    delayed: str | None
    """The time of the next attempt."""
    purpose: str | None
    """The reason of the call, e.g. ``create``; see :class:`Reason`."""
    retries: int | None
    """The number of attempts."""
    success: bool | None
    """Whether the handler has succeeded."""
    failure: bool | None
    """Whether the handler has failed for good."""
    message: str | None
    """The text of the last error."""
    subrefs: Collection[HandlerId] | None
    """The ids of the sub-handlers."""
    digest: str | None
    """The state of the object (or of the handler's field) in the last attempt; only for updates & creations."""
    reentries: int | None
    """The number of retries that only continued the sub-handlers; only for handlers with sub-handlers."""
    baseline: str | None
    """The serialised essence at the start of the creation; only in one of the records."""
    exception: str | None
    """The class of the last error; ``message`` is only its text."""


class ProgressStorage(EssenceCleaner, abc.ABC):
    """The base class of storages of the progress of handlers, for ``settings.persistence.progress_storage``."""

    @abc.abstractmethod
    def fetch(self, *, key: HandlerId, body: Body) -> ProgressRecord | None:
        """Read the record of the handler; ``None`` if there is none."""

    @abc.abstractmethod
    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        """Write the record of the handler to the patch (or elsewhere)."""

    @abc.abstractmethod
    def purge(self, *, key: HandlerId, body: Body, patch: Patch) -> None:
        """Remove the record of the handler, if there is one."""

    @abc.abstractmethod
    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        """Set or remove (``None``) the dummy field, by which older operators woke themselves up."""

    @abc.abstractmethod
    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Remove the fields of this storage from the essence. This base method makes a copy for subclasses."""
        return copy.deepcopy(essence)

    @property
    def own_prefix(self) -> str | None:
        """
        The prefix of the annotations, with the slash, if the essence has nothing else of this storage.

        If it is ``None``, Kopf passes all essences to :meth:`clear`.
        """
        return None

    def could_have(self, keys: tuple[HandlerId, ...], *, obj: KubeObject) -> bool:
        """
        Tell if the object could have a record of these handlers, or the dummy field.

        It must be cheap. In doubt, it returns true. If it returns false, Kopf fetches and removes nothing.
        """
        return True

    def flush(self) -> None:  # optional to override
        """Write records that the storage has cached in memory. Kopf calls it at the end of a handling cycle."""


class AnnotationsProgressStorage(AnnotationNaming, ProgressStorage):
    """
    A storage of the progress as JSON in annotations, one for each handler.

    :param prefix: the prefix of the annotations.
    :param verbose: whether to write empty fields of records, too.
    :param touch_key: the name of the dummy annotation after the prefix.
    :param v1: whether to write the older form of names, too, if it differs.
    """

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
        self._texts = StoredTexts("The annotation %r of %s/%s is malformed, so the handler starts anew: %s")
        self._names: dict[tuple[HandlerId, ...], frozenset[str]] = {}

    def list_names(self, keys: tuple[HandlerId, ...]) -> frozenset[str]:
        """List the names of all possible annotations for these handlers."""
        if (names := self._names.get(keys)) is None:
            names = frozenset(name for key in (*keys, self.touch_key) for name in self.make_all_keys(key))
            self._names[keys] = names
        return names

    @property
    def own_prefix(self) -> str | None:
        # Subclasses can use other annotations.
        return f"{self.prefix}/" if type(self) is AnnotationsProgressStorage else None

    def could_have(self, keys: tuple[HandlerId, ...], *, obj: KubeObject) -> bool:
        if type(self) is not AnnotationsProgressStorage:
            return True
        annotations = obj.head.annotations
        return annotations is not None and not (self._names.get(keys) or self.list_names(keys)).isdisjoint(annotations)

    def fetch(self, *, key: HandlerId, body: Body) -> ProgressRecord | None:
        annotations = body.object.head.annotations or {}
        for name in self.make_keys(key, body=body):
            if (text := annotations.get(name)) is not None:
                return cast("ProgressRecord | None", self._texts.parse(text, body, name))
        return None

    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        text = codec.dumps({name: value for name, value in record.items() if self.verbose or value is not None})
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
    A storage of the progress in a field of the status, by the ids of the handlers.

    Newer fields are beside the records: older versions would rewrite records with unknown fields. Such a patch changes
    nothing, so they would wait forever for the change. Kopf ignores fields that older versions leave behind.

    :param name: the name of the operator, for ``{name}`` in the fields.
    :param field: the path to the field of the records.
    :param touch_field: the path to the dummy field.
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
        """List the stanzas of the fields, with the keys there. Any object has metadata, any text has the empty key."""
        paths = dict.fromkeys([self._field[:2], self._touch_field[:2]])
        return tuple((path[0] if path else "metadata", path[1] if len(path) > 1 else "") for path in paths)

    @property
    def field(self) -> FieldPath:
        """The path to the field of the records."""
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
        # Merge patches keep absent fields, so this one must remove the values of previous attempts.
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
        for stanza, key in self._places:  # noqa: SIM110  # for speed: every object gets here
            if obj.could_have(stanza, key):
                return True
        return False

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        return drop_field(drop_field(essence, self.field), self.touch_field)


_EXTRAS = ("digest", "reentries", "baseline", "exception")
"""The fields that records of older versions do not have."""


def _get_digest_key(key: str) -> str:
    return f"{key}~digest"


def _remove(path: FieldPath, *, body: Body, patch: Patch) -> None:
    """Remove the field from the object, if it has the field, and from the patch."""
    if path[0] not in body and path[0] not in patch:  # the usual case for several fields of every handler
        return
    if resolve(body, path) is not None:
        ensure(patch, path, None)
    elif (parent := resolve(patch, path[:-1])) is not None:
        parent.pop(path[-1], None)


class MultiProgressStorage(ProgressStorage):
    """
    A storage of the progress in several storages. Kopf reads the first one that has the record.

    :param storages: the storages, in the order of reading.
    """

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
    The default storage of the progress: in annotations, but also reads and removes older records in the status.

    It writes nothing to the status, because schemas drop unknown fields there, and it would take one more request.
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
        return self._annotations.could_have(keys, obj=obj) or self._status.could_have(keys, obj=obj)

    def store(self, *, key: HandlerId, record: ProgressRecord, body: Body, patch: Patch) -> None:
        self._annotations.store(key=key, record=record, body=body, patch=patch)

    def touch(self, *, body: Body, patch: Patch, value: str | None) -> None:
        if value is None:
            super().touch(body=body, patch=patch, value=value)
        else:
            self._annotations.touch(body=body, patch=patch, value=value)

    def flush(self) -> None:
        """Do nothing: there is no cache."""
