"""
JSON in and out, in one place: the fast encoder and decoder that all other files use.
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
