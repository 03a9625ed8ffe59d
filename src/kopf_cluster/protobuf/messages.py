"""
Messages: objects of JSON with known fields, each of which has a number and a type.

Absent fields in JSON are zero values on the wire, unless the field may be absent there, too. Zero values on the wire
are absent in JSON, unless Go shows them. Both are exactly as in kube-apiserver. Fields outside of the tables are
omitted, as by clients and servers of other versions.

Whole objects are in an envelope with their types: the message `Unknown` of ``k8s.io/apimachinery/pkg/runtime``
after four magic bytes. An event of a watch is a message `WatchEvent` with such an object inside; it has no envelope
itself, but its length before it, in four bytes.
"""

from __future__ import annotations

import functools
import gzip
import importlib.resources
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kopf_cluster.protobuf.values import SCALARS, SchemaOr, Value, need_bytes
from kopf_cluster.protobuf.wire import (
    ProtobufError,
    Raw,
    Wire,
    read_fields,
    read_varint,
    write_bytes,
    write_field,
    write_key,
)

Obj: TypeAlias = dict[str, Any]

SCHEMA: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A field in the data."""

    number: int
    name: str
    """The name in JSON; empty if the fields of the message are inlined among the others."""
    type: str
    cardinality: Literal["one", "optional", "list", "map"]
    leaving: Literal["never", "empty", "zero"]
    """When JSON omits it: if it is an empty value; or a value never set, even if that is a message."""


class _Data(msgspec.Struct, frozen=True):
    source: str
    packages: Mapping[str, str]
    messages: Mapping[str, msgspec.Raw]


class Field:
    """A field of a message."""

    def __init__(self, row: Row) -> None:
        self.number = row.number
        self.name = row.name
        self.cardinality = row.cardinality
        self.value = find_value(row.type)
        is_set = row.cardinality == "one" and self.value.is_structure and row.leaving == "empty"
        self.is_shown_absent = is_set or row.leaving == "never"
        """Whether JSON has it if it is absent on the wire."""
        self.is_shown_empty = self.is_shown_absent or row.cardinality == "optional"
        """Whether JSON has it if the value on the wire is empty."""
        self.wire = Wire.BYTES if row.cardinality == "map" else self.value.wire
        self._key = write_key(row.number, self.wire)
        self._item_key = write_key(2, self.value.wire)

    @functools.cached_property
    def absent(self) -> bytes:
        """The bytes on the wire for an absent field in JSON."""
        zero = self.zero()
        return self.encode(zero) if zero is not None or (self.cardinality == "one" and self.value.is_structure) else b""

    def zero(self) -> Any:
        """Return the value in JSON for an absent field on the wire."""
        return self.value.zero() if self.cardinality == "one" else None

    def encode(self, value: Any) -> bytes:
        """Encode a value of JSON, with all its keys."""
        if self.cardinality == "list":
            return b"".join([self._key + self._encode_value(item) for item in value])
        if self.cardinality == "map":
            return b"".join([self._key + self._encode_entry(name, value[name]) for name in sorted(value)])
        return self._key + self._encode_value(value)

    def _encode_entry(self, name: str, value: Any) -> bytes:
        return write_bytes(_ENTRY_KEY + write_bytes(name.encode()) + self._item_key + self._encode_value(value))

    def _encode_value(self, value: Any) -> bytes:
        """Encode a single value; null is a value that was never set, which can be absent on the wire."""
        value = self.value.zero() if value is None else value
        return self.value.encode(value) if value is not None else b"\0"

    def decode(self, wire: Wire, raw: Raw, before: Any) -> Any:
        """Decode a value; return it together with the previous ones of a list or a map."""
        if self.cardinality == "list":
            values = before if before is not None else []
            values.extend(map(self.value.decode, self._unpack(wire, raw)))
            return values
        if wire != self.wire:
            raise ProtobufError(f"proto: wrong wireType = {int(wire)} for field {self.name}")
        if self.cardinality == "map":
            entries = before if before is not None else {}
            name, value = self._decode_entry(raw)
            entries[name] = value
            return entries
        return self.value.decode(raw)

    def _unpack(self, wire: Wire, raw: Raw) -> list[Raw]:
        """Return the items of a list: one, or all packed numbers."""
        if wire == self.wire:
            return [raw]
        if (self.wire, wire) != (Wire.VARINT, Wire.BYTES):
            raise ProtobufError(f"proto: wrong wireType = {int(wire)} for field {self.name}")
        raw = need_bytes(raw)
        items: list[Raw] = []
        pos = 0
        while pos < len(raw):
            item, pos = read_varint(raw, pos)
            items.append(item)
        return items

    def _decode_entry(self, raw: Raw) -> tuple[str, Any]:
        parts = {number: part for number, _, part in read_fields(need_bytes(raw))}
        value = self.value.decode(parts[2]) if 2 in parts else self.value.zero()
        return _TEXT.decode(parts.get(1, b"")), value


_TEXT: Final = SCALARS["string"]
_ENTRY_KEY: Final = write_key(1, Wire.BYTES)


class Message:
    """A message, which can be a value in other messages."""

    wire = Wire.BYTES
    is_structure = True

    def __init__(self, name: str) -> None:
        self.name = name

    @functools.cached_property
    def _fields(self) -> list[Field]:
        """The fields in their order in JSON."""
        return [Field(row) for row in read_rows(self.name)]

    @functools.cached_property
    def _ordered(self) -> list[Field]:
        """The fields in their order on the wire."""
        return sorted(self._fields, key=lambda field: field.number)

    @functools.cached_property
    def _numbered(self) -> Mapping[int, Field]:
        return {field.number: field for field in self._fields}

    def encode(self, value: Any) -> bytes:
        return write_bytes(self.encode_fields(value))

    def encode_fields(self, obj: Obj) -> bytes:
        """Encode the fields only, without the length of the message."""
        parts = []
        for field in self._ordered:
            value = obj.get(field.name) if field.name else obj
            parts.append(field.encode(value) if value is not None else field.absent)
        return b"".join(parts)

    def decode(self, raw: Raw) -> Obj:
        found: dict[int, Any] = {}
        for number, wire, part in read_fields(need_bytes(raw)):
            field = self._numbered.get(number)
            if field is not None:
                found[number] = field.decode(wire, part, found.get(number))
        return self._show(found)

    def _show(self, found: dict[int, Any]) -> Obj:
        """Make the object with the fields that Go shows in JSON."""
        obj: Obj = {}
        for field in self._fields:
            if field.number in found:
                value = found[field.number]
                is_shown = value or field.is_shown_empty
            elif field.is_shown_absent:
                value, is_shown = field.zero(), True
            else:
                continue
            if not field.name:
                obj.update(value)
            elif is_shown:
                obj[field.name] = value
        return obj

    def zero(self) -> Obj:
        return self._show({})


@functools.cache
def find_value(type_: str) -> Value:
    """Find the type of values by its name in the data."""
    if type_ in SCALARS:
        return SCALARS[type_]
    schema = functools.partial(find_value, SCHEMA)
    match type_.removeprefix(SCHEMA):
        case "OrArray":
            return SchemaOr(schema, 1, schema, many=True)
        case "OrBool":
            return SchemaOr(schema, 2, functools.partial(find_value, "bool"), many=False)
        case "OrStringArray":
            return SchemaOr(schema, 1, functools.partial(find_value, "string"), many=True)
    return Message(type_)


@functools.cache
def find_message(api_version: str, kind: str) -> Message | None:
    """Find the message of a kind; those without a group, such as `DeleteOptions`, belong to all groups."""
    names = (f"{package}.{kind}" for package in (_data().packages.get(api_version), _META) if package)
    for name in names:
        if name in _data().messages:
            value = find_value(name)
            return value if isinstance(value, Message) else None
    return None


def read_rows(name: str) -> list[Row]:
    """Return the fields of a message in the data, in their order in JSON."""
    return msgspec.json.decode(_data().messages[name], type=list[Row])


def find_omitted(name: str) -> Iterator[str]:
    """Yield the fields of a message that JSON omits if they are empty; none for an unknown message."""
    for row in read_rows(name) if name in _data().messages else ():
        if not row.name:
            yield from find_omitted(row.type)
        elif not Field(row).is_shown_empty:
            yield row.name


def find_shown(name: str) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a message that JSON has even if they are absent, with their values; none if it is unknown."""
    for row in read_rows(name) if name in _data().messages else ():
        if not row.name:
            yield from find_shown(row.type)
        elif (field := Field(row)).is_shown_absent:
            yield row.name, field.zero()


@functools.cache
def _data() -> _Data:
    packed = importlib.resources.files(__package__).joinpath("data/messages.json.gz").read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=_Data)


MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
NO_MESSAGE: Final = "does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message"
_MAGIC: Final = b"k8s\0"
_PLAIN: Final = write_field(3, b"") + write_field(4, b"")  # neither packed, nor of another media type


class Envelope(msgspec.Struct, frozen=True):
    """An object that is not decoded yet. Clients may omit its type."""

    api_version: str
    kind: str
    raw: bytes


class NotEncodable(Exception):
    """There is no message for the kind: its objects can only be in JSON."""


def encode_object(obj: dict[str, Any]) -> bytes:
    """Encode an object in its envelope."""
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    message = find_message(api_version, kind)
    if message is None:
        raise NotEncodable(f"object {kind} of {api_version} {NO_MESSAGE}")
    meta = write_field(1, api_version.encode()) + write_field(2, kind.encode())
    return _MAGIC + write_field(1, meta) + write_field(2, message.encode_fields(obj)) + _PLAIN


def open_envelope(data: bytes) -> Envelope:
    """Open the envelope; raise `ProtobufError` if it is broken."""
    if not data:
        raise ProtobufError("empty data")
    if not data.startswith(_MAGIC):
        raise ProtobufError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    if len(data) == len(_MAGIC):
        raise ProtobufError("empty body")
    parts = _split(data[len(_MAGIC) :])
    meta = _split(parts.get(1, b""))
    return Envelope(
        meta.get(1, b"").decode(errors="replace"), meta.get(2, b"").decode(errors="replace"), parts.get(2, b"")
    )


def encode_event(type_: str, obj: dict[str, Any]) -> bytes:
    """Encode an event of a watch as it is in a stream."""
    event = write_field(1, type_.encode()) + write_field(2, write_field(1, encode_object(obj)))
    return len(event).to_bytes(4) + event


def _split(data: bytes) -> dict[int, bytes]:
    return {number: value for number, _, value in read_fields(data) if isinstance(value, bytes)}
