"""JSON in and out: the one place that knows which library does it."""

from __future__ import annotations

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()
_sorting_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder()


class NestingError(msgspec.DecodeError):
    """The document is nested too deeply for Python, which is about a thousand levels; it can be proper JSON."""

    def __init__(self) -> None:
        super().__init__("it is nested too deeply")


def encode(value: Any) -> bytes:
    """Serialise any JSON-compatible value to compact UTF-8 bytes. Raises :class:`NestingError` if it is too deep."""
    try:
        return _encoder.encode(value)
    except RecursionError as e:
        raise NestingError from e


def encode_sorted(value: Any) -> bytes:
    """The same, with the keys sorted: equal values give equal bytes."""
    try:
        return _sorting_encoder.encode(value)
    except RecursionError as e:
        raise NestingError from e


def decode(data: bytes | bytearray | memoryview | str) -> Any:
    """Parse a JSON document. Raises :class:`ValueError` if it is malformed, :class:`NestingError` if it is too deep."""
    try:
        return _decoder.decode(data)
    except RecursionError as e:
        raise NestingError from e


def dumps(value: Any) -> str:
    """Serialise to compact JSON text, as it goes to annotations."""
    return encode(value).decode("utf-8")
