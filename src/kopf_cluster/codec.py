"""
JSON: the fast encoder and decoder, and the equality and the types of values.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from typing import Any, Final

import msgspec

DecodeError = msgspec.DecodeError

_TYPES: Final[dict[type, str]] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    type(None): "null",
}

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


def normalise(value: Any) -> Any:
    """Copy JSON values with numbers as API servers store them in custom resources: those without fractions, as ints."""
    return _normaliser.decode(_encoder.encode(value))


def _read_number(text: str) -> int | float:
    number = float(text)
    return int(Decimal(text)) if number.is_integer() and abs(number) < _FIRST_WITH_EXPONENT else number


_FIRST_WITH_EXPONENT: Final = 1e21
_normaliser: Final = msgspec.json.Decoder(float_hook=_read_number)


def same(one: Any, two: Any) -> bool:
    """Compare JSON values: unlike in Python, booleans are no numbers."""
    return bool(one == two) and _same_types(one, two)


def _same_types(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return all(_same_types(value, two[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(_same_types, one, two))
    return isinstance(one, bool) == isinstance(two, bool)


def same_fields(one: dict[str, Any], two: dict[str, Any], ignored: Collection[str]) -> bool:
    """Whether two objects have the same fields, except for the ignored ones; absent fields are nulls."""
    return all(same(one.get(name), two.get(name)) for name in {*one, *two} if name not in ignored)


def type_name(value: Any) -> str:
    """Name the type of a JSON value as API servers do."""
    return _TYPES[type(value)]


def dig(value: Any, *names: str) -> Any:
    """Return the value at the path of fields; none if it is absent, or if a parent is no object."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def dig_objects(value: Any, *names: str) -> list[Any]:
    """Return the objects in the list at the path of fields; an empty list if there is no list."""
    found = dig(value, *names)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
