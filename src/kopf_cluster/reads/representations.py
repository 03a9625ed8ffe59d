"""
The forms of objects in answers: the whole objects, only their metadata, or rows of a table.

The client chooses the form by the Accept header, see "Alternate representations of resources" in the Kubernetes "API
Concepts". For whole objects, stored bytes are joined, and nothing is decoded.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from kopf_cluster import codec, statuses
from kopf_cluster.encodings import PROTOBUF, SERVED, Clause, parse_accept
from kopf_cluster.kinds import objects
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.requests import Request
from kopf_cluster.store.watch_cache import Record


class Representation(Protocol):
    """Encodes objects."""

    def one(self, kind: Kind, record: Record, first: bool = True) -> bytes: ...

    def many(self, kind: Kind, records: Iterable[Record], metadata: Obj) -> bytes: ...

    def bookmark(self, kind: Kind, obj: Obj, first: bool = True) -> bytes: ...


class AsIs:
    """Whole objects in their stored encoding."""

    def one(self, kind: Kind, record: Record, first: bool = True) -> bytes:
        return objects.encode_record(kind, record)

    def many(self, kind: Kind, records: Iterable[Record], metadata: Obj) -> bytes:
        head, converter = kind.item_head, kind.converter
        if converter is not None:
            records = list(records)
            converter.require(kind, records)
            items = b",".join([head + converter.read(kind, record) for record in records])
        else:
            items = b",".join([head + record.data for record in records])
        if kind.custom:  # sorted, and with an empty token: as untyped objects in Go
            sorted_metadata = codec.encode(dict(sorted({"continue": "", **metadata}.items())))
            return kind.list_frame % (items, sorted_metadata)
        return kind.list_frame % (codec.encode(metadata), items)

    def bookmark(self, kind: Kind, obj: Obj, first: bool = True) -> bytes:
        return codec.encode(obj)


class OnlyMetadata:
    """`PartialObjectMetadata` of `meta.k8s.io`."""

    def __init__(self, version: str = "v1") -> None:
        self._version = version

    def one(self, kind: Kind, record: Record, first: bool = True) -> bytes:
        return self.bookmark(kind, objects.open_record(kind, record))

    def many(self, kind: Kind, records: Iterable[Record], metadata: Obj) -> bytes:
        items = [_partial(obj, self._version) for obj in _open_all(kind, records)]
        return codec.encode(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"meta.k8s.io/{self._version}",
                "metadata": metadata,
                "items": items,
            }
        )

    def bookmark(self, kind: Kind, obj: Obj, first: bool = True) -> bytes:
        return codec.encode(_partial(obj, self._version))


def _open_all(kind: Kind, records: Iterable[Record]) -> list[Obj]:
    if kind.converter is not None:
        records = list(records)
        kind.converter.require(kind, records)
    return [objects.open_record(kind, record) for record in records]


def _partial(obj: Obj, version: str) -> Obj:
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": obj["metadata"]}


class AsTable:
    """`Table` of `meta.k8s.io`, which ``kubectl get`` shows."""

    def __init__(self, include: str = "Metadata", version: str = "v1") -> None:
        if include not in _INCLUDES:
            wrong = statuses.invalid_value("includeObject", include, "must be 'Metadata', 'Object', 'None', or empty")
            raise statuses.bad_request(f"Unable to convert to Table as requested: {wrong}")
        self._include = include
        self._version = version

    def one(self, kind: Kind, record: Record, first: bool = True) -> bytes:
        return self.bookmark(kind, objects.open_record(kind, record), first)

    def bookmark(self, kind: Kind, obj: Obj, first: bool = True) -> bytes:
        """Return a table of one row, even of a bookmark; only the first one has the columns."""
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return codec.encode(self._table(kind, [obj], metadata, columns=first))

    def many(self, kind: Kind, records: Iterable[Record], metadata: Obj) -> bytes:
        return codec.encode(self._table(kind, _open_all(kind, records), metadata))

    def _table(self, kind: Kind, objs: list[Obj], metadata: Obj, columns: bool = True) -> Obj:
        definitions = [column.as_definition() for column in kind.columns] if columns else []
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self._version}",
            "metadata": metadata,
            "columnDefinitions": definitions,
            "rows": [self._row(kind, obj) for obj in objs],
        }

    def _row(self, kind: Kind, obj: Obj) -> Obj:
        cells = [column.cell(obj) for column in kind.columns]
        match self._include:
            case "Object":
                return {"cells": cells, "object": obj}
            case "None":
                return {"cells": cells, "object": None}
        return {"cells": cells, "object": _partial(obj, self._version)}


_INCLUDES: Final = frozenset({"", "Metadata", "None", "Object"})
_VERSIONS: Final = frozenset({"v1", "v1beta1"})
_AS_IS: Final = AsIs()


class Choice(msgspec.Struct, frozen=True):
    """The form and the encoding of an answer."""

    media: str
    form: Representation


def negotiate(kind: Kind, request: Request) -> Choice:
    """Choose the most wanted form and encoding of the Accept header that can be served."""
    return _negotiate(request.accept, request.query.get("includeObject", "Metadata"), kind.custom, kind.is_stored)


@functools.lru_cache(maxsize=256)
def _negotiate(accept: str, include: str, custom: bool, stored: bool) -> Choice:
    for clause in parse_accept(accept):
        for media in SERVED:
            if clause.covers(media) and clause.parameters.get("stream", "watch") == "watch":
                form = _choose_form(clause, media, include, custom, stored)
                if form is not None:
                    return Choice(media, form)
    raise statuses.not_acceptable(SERVED)


def _choose_form(clause: Clause, media: str, include: str, custom: bool, stored: bool) -> Representation | None:
    """Return the form, or none if there is no such form in this encoding.

    In protobuf, there are neither custom resources nor tables, but the metadata of all kinds. Kinds that are never
    stored have no tables.
    """
    form, version = clause.parameters.get("as", ""), clause.parameters.get("v", "")
    if not form:
        return None if custom and media == PROTOBUF else _AS_IS
    if clause.parameters.get("g") != "meta.k8s.io" or version not in _VERSIONS:
        return None
    if form == "Table":
        return None if media == PROTOBUF or not stored else AsTable(include, version)
    return OnlyMetadata(version) if form in ("PartialObjectMetadata", "PartialObjectMetadataList") else None
