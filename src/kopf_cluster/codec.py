"""
JSON in one place: the fast encoder and decoder that all other files use, and the equality of values.
"""

from __future__ import annotations

from typing import Any

import msgspec

DecodeError = msgspec.DecodeError

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: Any) -> bytes:
    """Encode JSON-compatible values."""
    return _encoder.encode(value)


def decode(data: bytes) -> Any:
    """Decode JSON or raise `DecodeError`."""
    try:
        return _decoder.decode(data)
    except UnicodeDecodeError as error:  # in the names of fields only
        raise DecodeError(f"invalid UTF-8: {error}") from None


def same(one: Any, two: Any) -> bool:
    """Compare JSON values: unlike in Python, truth is not a number."""
    return bool(one == two) and _same_types(one, two)


def _same_types(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return all(_same_types(value, two[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(_same_types, one, two))
    return isinstance(one, bool) == isinstance(two, bool)
