"""JSON in and out: the one place that knows which library does it."""

from __future__ import annotations

from typing import Any

import msgspec

encode = msgspec.json.Encoder().encode
"""Serialise any JSON-compatible value to compact UTF-8 bytes."""

_decoder = msgspec.json.Decoder()


def decode(data: bytes | bytearray | memoryview | str) -> Any:
    """Parse a JSON document. Raises :class:`ValueError` if it is malformed."""
    return _decoder.decode(data)


def dumps(value: Any) -> str:
    """Serialise to compact JSON text, as it goes to annotations."""
    return encode(value).decode("utf-8")
