"""
The wire format of protocol buffers: messages as numbered values without types.

See "Encoding" of the documentation of protocol buffers. The errors match the decoders for Go.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final, TypeAlias

Raw: TypeAlias = "int | bytes"
"""A value on the wire: a number, or the bytes of anything else."""


class ProtobufError(ValueError):
    """The bytes are not protobuf, or not the expected message."""


class Wire(enum.IntEnum):
    """The encoding of a value on the wire."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


_MASK: Final = (1 << 64) - 1
_SHORT: Final = [bytes([number]) for number in range(0x80)]
_SIZES: Final = {Wire.FIXED64: 8, Wire.FIXED32: 4}


def write_varint(value: int) -> bytes:
    """Encode a number; negative ones are of 64 bits."""
    value &= _MASK
    if value < 0x80:
        return _SHORT[value]
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def write_key(number: int, wire: Wire) -> bytes:
    """Encode the key of a field, which precedes the value."""
    return write_varint(number << 3 | wire)


def write_bytes(value: bytes) -> bytes:
    """Encode bytes with their length before them."""
    return write_varint(len(value)) + value


def write_field(number: int, value: bytes) -> bytes:
    """Encode a field of bytes, with its key."""
    return write_key(number, Wire.BYTES) + write_bytes(value)


def read_fields(data: bytes) -> Iterator[tuple[int, Wire, Raw]]:
    """Split a message into its values with their numbers; raise `ProtobufError` if it is broken."""
    pos, end = 0, len(data)
    while pos < end:
        tag = data[pos]
        if tag < 0x80:  # nearly all
            pos += 1
        else:
            tag, pos = read_varint(data, pos)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise ProtobufError(f"proto: illegal tag {number} (wire type {wire})")
        if wire == Wire.BYTES:
            size, pos = read_varint(data, pos)
            if size > end - pos:
                raise ProtobufError("unexpected EOF")
            yield number, Wire.BYTES, data[pos : pos + size]
            pos += size
        elif wire == Wire.VARINT:
            value, pos = read_varint(data, pos)
            yield number, Wire.VARINT, value
        elif wire in (Wire.FIXED64, Wire.FIXED32):
            size = _SIZES[Wire(wire)]
            if size > end - pos:
                raise ProtobufError("unexpected EOF")
            yield number, Wire(wire), data[pos : pos + size]
            pos += size
        else:  # groups are not used since long ago
            raise ProtobufError(f"proto: illegal wireType {wire}")


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Decode the number at the position; return it, and the position after it."""
    result = shift = 0
    try:
        while True:
            byte = data[pos]
            pos += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result & _MASK, pos
            shift += 7
            if shift >= 64:
                raise ProtobufError("proto: integer overflow")
    except IndexError:
        raise ProtobufError("unexpected EOF") from None
