"""
Single values: how they are in JSON, and how on the wire.

Some messages are not put together of their fields in JSON: times are strings there, quantities too, and so on. They
follow the documentation of their types in ``k8s.io/apimachinery`` and ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

import base64
import datetime
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from kopf_cluster import codec
from kopf_cluster.protobuf.wire import (
    ProtobufError,
    Raw,
    Wire,
    read_double,
    read_fields,
    write_bytes,
    write_field,
    write_key,
    write_varint,
)


class Value(Protocol):
    """Encodes and decodes values of one type."""

    @property
    def wire(self) -> Wire: ...

    @property
    def is_structure(self) -> bool:
        """Whether it is one in Go: these are never empty, so that they are always there, on the wire and in JSON."""
        ...

    def encode(self, value: Any) -> bytes:
        """Encode a value as it is in JSON: with its length if it consists of bytes, but without the key."""
        ...

    def decode(self, raw: Raw) -> Any:
        """Decode the bytes without their length, or the number; raise `ProtobufError` if they are wrong."""
        ...

    def zero(self) -> Any:
        """Give what Go shows in JSON for a value that was never set."""
        ...


class Text:
    """A string."""

    wire = Wire.BYTES
    is_structure = False

    def encode(self, value: Any) -> bytes:
        return write_bytes(value.encode())

    def decode(self, raw: Raw) -> str:
        return need_bytes(raw).decode(errors="replace")  # as Go does when it writes JSON

    def zero(self) -> str:
        return ""


class Integer:
    """A number of so many bits."""

    wire = Wire.VARINT
    is_structure = False

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def encode(self, value: Any) -> bytes:
        return write_varint(value)

    def decode(self, raw: Raw) -> int:
        value = _need_number(raw) & (1 << self._bits) - 1
        return value - (1 << self._bits) if value >> self._bits - 1 else value

    def zero(self) -> int:
        return 0


class Boolean:
    """Yes or no."""

    wire = Wire.VARINT
    is_structure = False

    def encode(self, value: Any) -> bytes:
        return b"\1" if value else b"\0"

    def decode(self, raw: Raw) -> bool:
        return _need_number(raw) != 0

    def zero(self) -> bool:
        return False


class Double:
    """A number with a floating point; whole ones have no point in JSON."""

    wire = Wire.FIXED64
    is_structure = False

    def encode(self, value: Any) -> bytes:
        return struct.pack("<d", value)

    def decode(self, raw: Raw) -> float:
        value = read_double(raw)
        if not math.isfinite(value):
            raise ProtobufError(f"json: unsupported value: {value}")
        return int(value) if value.is_integer() and abs(value) < 1e21 else value

    def zero(self) -> float:
        return 0


class Binary:
    """Bytes, which are in Base64 in JSON."""

    wire = Wire.BYTES
    is_structure = False

    def encode(self, value: Any) -> bytes:
        return write_bytes(base64.b64decode(value))

    def decode(self, raw: Raw) -> str:
        return base64.b64encode(need_bytes(raw)).decode()

    def zero(self) -> None:
        return None


class Strings:
    """A list of strings that is a message on its own."""

    wire = Wire.BYTES
    is_structure = False

    def encode(self, value: Any) -> bytes:
        return write_bytes(b"".join(write_field(1, item.encode()) for item in value))

    def decode(self, raw: Raw) -> list[str]:
        return [Text().decode(item) for number, _, item in read_fields(need_bytes(raw)) if number == 1]

    def zero(self) -> None:
        return None


class Time:
    """A timestamp: seconds, or microseconds. The absent one is the year 1 in Go, and null in JSON."""

    wire = Wire.BYTES
    is_structure = True

    def __init__(self, *, precise: bool) -> None:
        self._precise = precise

    def encode(self, value: Any) -> bytes:
        moment = datetime.datetime.fromisoformat(value)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - _EPOCH
        seconds, nanos = since.days * 86400 + since.seconds, since.microseconds * 1000 if self._precise else 0
        return write_bytes(_SECONDS + write_varint(seconds) + _NANOS + write_varint(nanos))

    def decode(self, raw: Raw) -> str | None:
        parts = {number: value for number, wire, value in read_fields(need_bytes(raw)) if wire == Wire.VARINT}
        if not parts:
            return None
        seconds, nanos = Integer(64).decode(parts.get(1, 0)), Integer(32).decode(parts.get(2, 0))
        try:
            moment = _EPOCH + datetime.timedelta(seconds=seconds, microseconds=nanos // 1000 if self._precise else 0)
        except OverflowError:
            raise ProtobufError("Time.MarshalJSON: year outside of range [0,9999]") from None
        if moment.year == 1:
            return None
        text = moment.replace(tzinfo=None).isoformat(timespec="microseconds" if self._precise else "seconds")
        return f"{text}Z"

    def zero(self) -> None:
        return None


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECONDS, _NANOS = write_key(1, Wire.VARINT), write_key(2, Wire.VARINT)


class Quantity:
    """An amount, e.g. ``100Mi``."""

    wire = Wire.BYTES
    is_structure = True

    def encode(self, value: Any) -> bytes:
        return write_bytes(write_field(1, str(value).encode()))

    def decode(self, raw: Raw) -> str:
        return Text().decode(_need_field(raw, 1) or b"0")

    def zero(self) -> str:
        return "0"


class IntOrString:
    """A number or a string; on the wire, there are always both, and which of them counts."""

    wire = Wire.BYTES
    is_structure = True

    def encode(self, value: Any) -> bytes:
        is_text = isinstance(value, str)
        number, text = (0, value) if is_text else (value, "")
        return write_bytes(
            write_key(1, Wire.VARINT)
            + write_varint(int(is_text))
            + write_key(2, Wire.VARINT)
            + write_varint(number)
            + write_field(3, text.encode())
        )

    def decode(self, raw: Raw) -> int | str:
        parts = {number: value for number, _, value in read_fields(need_bytes(raw))}
        return Text().decode(parts.get(3, b"")) if parts.get(1) else Integer(32).decode(parts.get(2, 0))

    def zero(self) -> int:
        return 0


class Json:
    """Anything at all, as JSON in bytes."""

    wire = Wire.BYTES
    is_structure = True

    def encode(self, value: Any) -> bytes:
        return write_bytes(write_field(1, codec.encode(value)))

    def decode(self, raw: Raw) -> Any:
        data = _need_field(raw, 1)
        try:
            return codec.decode(data) if data else None
        except codec.DecodeError as error:
            raise ProtobufError(f"{error} (in embedded JSON)") from None

    def zero(self) -> None:
        return None


class SchemaOr:
    """A schema, or what can be instead of it: which one, JSON tells by the type.

    Parameters:
        schema: Gives the message of schemas, which contains this.
        number: The number of the schema among the fields; that of the other value is 1 or 2, too.
        other: The other value; repeated if it is a list in JSON.
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
    """Give the bytes of what is not a number; raise `ProtobufError` if it is one."""
    if isinstance(raw, int):
        raise ProtobufError("proto: wrong wireType = 0, bytes are expected")
    return raw


def _need_number(raw: Raw) -> int:
    if not isinstance(raw, int):
        raise ProtobufError("proto: wrong wireType = 2, a number is expected")
    return raw


def _need_field(raw: Raw, wanted: int) -> bytes:
    """Give the bytes of the only field that matters; none if it is absent."""
    found = [value for number, _, value in read_fields(need_bytes(raw)) if number == wanted]
    return need_bytes(found[-1]) if found else b""


SCALARS: Final[Mapping[str, Value]] = {
    "string": Text(),
    "bool": Boolean(),
    "int32": Integer(32),
    "int64": Integer(64),
    "double": Double(),
    "bytes": Binary(),
    "strings": Strings(),
    "io.k8s.apimachinery.pkg.api.resource.Quantity": Quantity(),
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": Json(),
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": Time(precise=True),
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": Time(precise=False),
    "io.k8s.apimachinery.pkg.runtime.RawExtension": Json(),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": IntOrString(),
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": Json(),
}
