"""
Single values: their forms in JSON and on the wire.

Some messages are no objects in JSON: times and quantities are strings there, for example. Their forms follow the
documentation of their types in ``k8s.io/apimachinery`` and ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import functools
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from kopf_cluster import codec
from kopf_cluster.protobuf.wire import (
    ProtobufError,
    Raw,
    Wire,
    read_fields,
    write_bytes,
    write_field,
    write_key,
    write_varint,
)


class Value(Protocol):
    """Encodes and decodes values of one type."""

    wire: Wire
    is_structure: bool
    """Whether it is a structure in Go: these are never empty, and always present on the wire and in JSON."""

    def encode(self, value: Any, /) -> bytes:
        """Encode a value of JSON, with its length if it consists of bytes, but without the key."""
        ...

    def decode(self, raw: Raw, /) -> Any:
        """Decode the bytes without their length, or the number; raise `ProtobufError` for wrong ones."""
        ...

    def zero(self) -> Any:
        """Return the value that Go shows in JSON for a value that was never set."""
        ...


@dataclasses.dataclass(slots=True)
class Scalar:
    """A value that has no fields in JSON."""

    wire: Wire
    encode: Callable[[Any], bytes]
    decode: Callable[[Raw], Any]
    empty: Any = None
    is_structure: bool = False

    def zero(self) -> Any:
        return self.empty


class SchemaOr:
    """A schema, or another value in its place; the type in JSON tells which one.

    Parameters:
        schema: Returns the message of schemas, which contains this one.
        number: The field number of the schema, 1 or 2; the other value has the other one.
        other: Returns the other value.
        many: Whether the other value is a list in JSON.
    """

    wire = Wire.BYTES
    is_structure = True

    def __init__(self, schema: Callable[[], Value], number: int, other: Callable[[], Value], *, many: bool) -> None:
        self._schema = schema
        self._number = number
        self._other = other
        self._many = many

    def encode(self, value: Any) -> bytes:
        other = self._other()
        key = write_key(3 - self._number, other.wire)
        if isinstance(value, dict):
            implied = b"" if self._many else key + other.encode(True)
            return write_bytes(implied + write_key(self._number, Wire.BYTES) + self._schema().encode(value))
        return write_bytes(b"".join(key + other.encode(item) for item in (value if self._many else [value])))

    def decode(self, raw: Raw) -> Any:
        others, schema = [], None
        for number, _, value in read_fields(need_bytes(raw)):
            if number == self._number:
                schema = self._schema().decode(value)
            elif number == 3 - self._number:
                others.append(self._other().decode(value))
        if self._many:
            return others or schema
        return schema if schema is not None else bool(others and others[-1])

    def zero(self) -> Any:
        return None if self._many else False


def need_bytes(raw: Raw) -> bytes:
    """Return the bytes of what is not a number; raise `ProtobufError` if it is one."""
    if isinstance(raw, int):
        raise ProtobufError("proto: wrong wireType = 0, bytes are expected")
    return raw


def _need_number(raw: Raw) -> int:
    if not isinstance(raw, int):
        raise ProtobufError("proto: wrong wireType = 2, a number is expected")
    return raw


def _decode_text(raw: Raw) -> str:
    return need_bytes(raw).decode(errors="replace")  # as Go does when it writes JSON


def _decode_integer(bits: int, raw: Raw) -> int:
    value = _need_number(raw) & (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def _decode_double(raw: Raw) -> float:
    """Whole numbers have no point in JSON."""
    [value] = struct.unpack("<d", need_bytes(raw))
    if not math.isfinite(value):
        raise ProtobufError(f"json: unsupported value: {value}")
    return int(value) if value.is_integer() and abs(value) < 1e21 else float(value)


# Timestamps: seconds, or microseconds. The absent one is the year 1 in Go, and null in JSON.
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECONDS, _NANOS = write_key(1, Wire.VARINT), write_key(2, Wire.VARINT)


def _encode_time(precise: bool, value: Any) -> bytes:
    moment = datetime.datetime.fromisoformat(value)
    since = (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - _EPOCH
    seconds, nanos = since.days * 86400 + since.seconds, since.microseconds * 1000 if precise else 0
    return write_bytes(_SECONDS + write_varint(seconds) + _NANOS + write_varint(nanos))


def _decode_time(precise: bool, raw: Raw) -> str | None:
    parts = {number: value for number, wire, value in read_fields(need_bytes(raw)) if wire == Wire.VARINT}
    if not parts:
        return None
    seconds, nanos = _decode_integer(64, parts.get(1, 0)), _decode_integer(32, parts.get(2, 0))
    try:
        moment = _EPOCH + datetime.timedelta(seconds=seconds, microseconds=nanos // 1000 if precise else 0)
    except OverflowError:
        raise ProtobufError("Time.MarshalJSON: year outside of range [0,9999]") from None
    if moment.year == 1:
        return None
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds' if precise else 'seconds')}Z"


def _encode_int_or_string(value: Any) -> bytes:
    """On the wire, there are always both, and which of them counts."""
    is_text = isinstance(value, str)
    number, text = (0, value) if is_text else (value, "")
    return write_bytes(
        write_key(1, Wire.VARINT)
        + write_varint(int(is_text))
        + write_key(2, Wire.VARINT)
        + write_varint(number)
        + write_field(3, text.encode())
    )


def _decode_int_or_string(raw: Raw) -> int | str:
    parts = {number: value for number, _, value in read_fields(need_bytes(raw))}
    return _decode_text(parts.get(3, b"")) if parts.get(1) else _decode_integer(32, parts.get(2, 0))


def _decode_json(raw: Raw) -> Any:
    data = _need_field(raw)
    try:
        return codec.decode(data) if data else None
    except codec.DecodeError as error:
        raise ProtobufError(f"{error} (in embedded JSON)") from None


def _need_field(raw: Raw) -> bytes:
    """Return the bytes of the only field, which is the first one; none if it is absent."""
    found = [value for number, _, value in read_fields(need_bytes(raw)) if number == 1]
    return need_bytes(found[-1]) if found else b""


def _make_integer(bits: int) -> Scalar:
    return Scalar(Wire.VARINT, write_varint, functools.partial(_decode_integer, bits), 0)


_JSON: Final = Scalar(
    Wire.BYTES, lambda value: write_bytes(write_field(1, codec.encode(value))), _decode_json, is_structure=True
)

SCALARS: Final[Mapping[str, Scalar]] = {
    "string": Scalar(Wire.BYTES, lambda value: write_bytes(value.encode()), _decode_text, ""),
    "bool": Scalar(
        Wire.VARINT, lambda value: b"\1" if value else b"\0", lambda raw: _need_number(raw) != 0, empty=False
    ),
    "int32": _make_integer(32),
    "int64": _make_integer(64),
    "double": Scalar(Wire.FIXED64, functools.partial(struct.pack, "<d"), _decode_double, 0),
    "bytes": Scalar(
        Wire.BYTES,
        lambda value: write_bytes(base64.b64decode(value)),
        lambda raw: base64.b64encode(need_bytes(raw)).decode(),
    ),
    "strings": Scalar(
        Wire.BYTES,
        lambda value: write_bytes(b"".join(write_field(1, item.encode()) for item in value)),
        lambda raw: [_decode_text(item) for number, _, item in read_fields(need_bytes(raw)) if number == 1],
    ),
    "io.k8s.apimachinery.pkg.api.resource.Quantity": Scalar(
        Wire.BYTES,
        lambda value: write_bytes(write_field(1, str(value).encode())),
        lambda raw: _decode_text(_need_field(raw) or b"0"),
        "0",
        is_structure=True,
    ),
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": _JSON,
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": Scalar(
        Wire.BYTES, functools.partial(_encode_time, True), functools.partial(_decode_time, True), is_structure=True
    ),
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": Scalar(
        Wire.BYTES, functools.partial(_encode_time, False), functools.partial(_decode_time, False), is_structure=True
    ),
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _JSON,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": Scalar(
        Wire.BYTES, _encode_int_or_string, _decode_int_or_string, 0, is_structure=True
    ),
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": _JSON,
}
