"""
The forms in which objects are shown: as they are, only their metadata, or as rows of a table.

Which one, the client tells in the Accept header: see "Alternate representations of resources" of
the Kubernetes "API Concepts". As-is is the fast way: stored bytes are joined, nothing is decoded.
"""
from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final, Protocol

from .. import codec, statuses
from ..kinds.kind import Kind, Obj
from ..store.storage import Record
from ..writes import objects

JSON: Final = "application/json"


class Representation(Protocol):
    """How to encode objects."""

    @property
    def content_type(self) -> str: ...

    def one(self, kind: Kind, record: Record, first: bool = True) -> bytes: ...

    def many(self, kind: Kind, records: Iterable[Record], metadata: Obj) -> bytes: ...

    def bookmark(self, kind: Kind, obj: Obj, first: bool = True) -> bytes: ...


class AsIs:
    """Objects as they are stored."""

    content_type = JSON

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
        return b"%s%s,\"items\":[%s]}" % (kind.list_head, codec.encode(metadata), items)

    def bookmark(self, kind: Kind, obj: Obj, first: bool = True) -> bytes:
        return codec.encode(obj)


class OnlyMetadata:
    """`PartialObjectMetadata` of `meta.k8s.io`."""

    content_type = JSON

    def __init__(self, version: str = "v1") -> None:
        super().__init__()
        self._version = version

    def one(self, kind: Kind, record: Record, first: bool = True) -> bytes:
        return self.bookmark(kind, objects.open_record(kind, record))

    def many(self, kind: Kind, records: Iterable[Record], metadata: Obj) -> bytes:
        items = [_partial(obj, self._version) for obj in _open_all(kind, records)]
        return codec.encode({"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{self._version}",
                             "metadata": metadata, "items": items})

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
    """`Table` of `meta.k8s.io`, as ``kubectl get`` shows it."""

    content_type = JSON

    def __init__(self, include: str = "Metadata", version: str = "v1") -> None:
        super().__init__()
        if include not in _INCLUDES:
            wrong = statuses.invalid_value("includeObject", include, "must be 'Metadata', 'Object', 'None', or empty")
            raise statuses.bad_request(f"Unable to convert to Table as requested: {wrong}")
        self._include = include
        self._version = version

    def one(self, kind: Kind, record: Record, first: bool = True) -> bytes:
        return self.bookmark(kind, objects.open_record(kind, record), first)

    def bookmark(self, kind: Kind, obj: Obj, first: bool = True) -> bytes:
        """Give a table of one row, even if there is nothing to show in it; only the first one has the columns."""
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return codec.encode(self._table(kind, [obj], metadata, columns=first))

    def many(self, kind: Kind, records: Iterable[Record], metadata: Obj) -> bytes:
        return codec.encode(self._table(kind, _open_all(kind, records), metadata))

    def _table(self, kind: Kind, objs: list[Obj], metadata: Obj, columns: bool = True) -> Obj:
        definitions = [column.as_definition() for column in kind.columns] if columns else []
        return {"kind": "Table", "apiVersion": f"meta.k8s.io/{self._version}", "metadata": metadata,
                "columnDefinitions": definitions, "rows": [self._row(kind, obj) for obj in objs]}

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
_ACCEPTED: Final = (JSON,)


@functools.lru_cache(maxsize=256)
def negotiate(accept: str, include: str = "Metadata") -> Representation:
    """Choose by the Accept header: the first of the listed media types that can be served."""
    for item in accept.split(",") if accept else [JSON]:
        media, *params = (part.strip() for part in item.split(";"))
        if media not in (JSON, "*/*", "application/*"):
            continue
        options = dict(_split(param) for param in params)
        form = options.get("as", "")
        if not form:
            return _AS_IS
        version = options.get("v", "")
        if options.get("g") != "meta.k8s.io" or version not in _VERSIONS:
            continue
        if form == "Table":
            return AsTable(include, version)
        if form in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return OnlyMetadata(version)
    raise statuses.not_acceptable(_ACCEPTED)


def _split(param: str) -> tuple[str, Any]:
    name, _, value = param.partition("=")
    return name.strip(), value.strip()
