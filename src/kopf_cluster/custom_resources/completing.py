"""
Custom resources that were stored before their definition has changed: shown as the schemas of now want them.

What is read from the storage is pruned and gets its defaults by the schema of the version in which it is stored, and
that is not written back unless somebody writes the object: see "Defaulting" in "Extend the Kubernetes API with
CustomResourceDefinitions". What is stored since the change is complete already, and is not looked at.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kopf_cluster import codec
from kopf_cluster.kinds import schemas
from kopf_cluster.kinds.kind import Converter, Kind, Obj
from kopf_cluster.kinds.schemas import Schema
from kopf_cluster.store.storage import Record

# How many completed states are remembered.
_REMEMBERED: Final = 10_000


class Completer:
    """Completes the objects of one definition on their way out, before they are converted if they must be."""

    def __init__(self, definition: Obj, since: int, converter: Converter | None) -> None:
        """The revision is that of the definition: the older objects are to be completed."""
        super().__init__()
        self._since = since
        self._converter = converter
        self._schemas: dict[str, Schema] = {version["name"]: schemas.parse(version["schema"]["openAPIV3Schema"])
                                            for version in definition["spec"]["versions"]}
        self._completed: dict[bytes, Record] = {}

    @property
    def converts(self) -> bool:
        return self._converter is not None

    def require(self, kind: Kind, records: Iterable[Record]) -> None:
        if self._converter is not None:
            self._converter.require(kind, [self._complete(record) for record in records])

    def read(self, kind: Kind, record: Record) -> bytes:
        record = self._complete(record)
        return record.data if self._converter is None else self._converter.read(kind, record)

    def write(self, kind: Kind, obj: Obj) -> Obj:
        return obj if self._converter is None else self._converter.write(kind, obj)

    def remember(self, kind: Kind, record: Record, data: bytes) -> None:
        if self._converter is not None:
            self._converter.remember(kind, record, data)

    def _complete(self, record: Record) -> Record:
        schema = self._schemas.get(record.form)
        if record.revision > self._since or schema is None:
            return record
        known = self._completed.get(record.data)
        if known is None:
            if len(self._completed) >= _REMEMBERED:
                self._completed.clear()
            known = self._completed[record.data] = _complete(record, schema)
        return known


def _complete(record: Record, schema: Schema) -> Record:
    body = codec.decode(b"{" + record.data)
    metadata = body.pop("metadata")
    for _ in schemas.prune(body, schema, "", root=True):
        pass
    schemas.fill_defaults(body, schema)
    return msgspec.structs.replace(record, data=codec.encode({"metadata": metadata, **body})[1:])
