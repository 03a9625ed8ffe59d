"""JSON in and out. No other module knows which library does it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kopf._values.decoded_sizes import find_excess


def _convert(value: Any) -> Any:
    """Convert values that the library cannot encode: views of bodies, strings of other classes."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"values of the type {type(value).__name__} cannot be encoded")


_encoder = msgspec.json.Encoder(enc_hook=_convert)
_sorting_encoder = msgspec.json.Encoder(enc_hook=_convert, order="deterministic")
_decoder = msgspec.json.Decoder()
_skimmer = msgspec.json.Decoder(msgspec.Raw)
_members_splitter = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items_splitter = msgspec.json.Decoder(list[msgspec.Raw])
Raw = msgspec.Raw
"""A serialised value, which the encoder puts into a larger value unchanged."""

_MAX_ANSWER = 256 * 2**20
"""In bytes, decoded. The largest answers describe thousands of resources: 4 MiB, which become 20 times more."""

_SURROGATES = re.compile(r"[\ud800-\udfff]")


class UnreadableError(msgspec.DecodeError):
    """
    A document cannot be decoded, as a whole or in part.

    Kubernetes itself has only valid objects, but aggregated APIs can send anything: numbers that Python cannot hold
    (``1e999``), strings that are not in UTF-8, values that are not JSON (``NaN``).
    """


class NestingError(UnreadableError):
    """The document is nested too deeply for Python: about a thousand levels. It can be valid JSON."""

    def __init__(self) -> None:
        super().__init__("it is nested too deeply")


def encode(value: Any) -> bytes:
    """
    Serialise any JSON-compatible value to compact UTF-8 bytes. Raises :class:`NestingError` if it is too deep.

    Lone surrogates become U+FFFD, as in Kubernetes itself. Python has them in names of files and in the results of
    :func:`json.loads`, so they get into messages of errors, but UTF-8 has no such characters.
    """
    try:
        return _encoder.encode(value)
    except (RecursionError, UnicodeEncodeError):
        return _encode_unusual(_encoder, value)


def encode_sorted(value: Any) -> bytes:
    """Serialise a value with sorted keys: equal values give equal bytes. Raises :class:`NestingError`."""
    try:
        return _sorting_encoder.encode(value)
    except (RecursionError, UnicodeEncodeError):
        return _encode_unusual(_sorting_encoder, value)


def _encode_unusual(encoder: msgspec.json.Encoder, value: Any) -> bytes:
    try:
        return encoder.encode(_replace_surrogates(value))
    except RecursionError as e:
        raise NestingError from e


def _replace_surrogates(value: Any) -> Any:
    """Copy the value with valid strings only."""
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_replace_surrogates(item) for item in value]
    return value


def decode(data: bytes | bytearray | memoryview | str) -> Any:
    """Parse a JSON document. Raises :class:`UnreadableError`, a ``ValueError``, if it is malformed or too deep."""
    try:
        return _decoder.decode(data)
    except (RecursionError, ValueError) as e:
        raise _explain(e) from e


def decode_answer(data: bytes | bytearray | memoryview | str) -> Any:
    """
    Parse the answer of a server. Raises :class:`UnreadableError` also if it would take too much memory.

    A few bytes can become a hundred bytes of memory, and an extension of the cluster can answer anything.
    """
    if problem := find_excess(data, _MAX_ANSWER):
        raise UnreadableError(problem)
    return decode(data)


def skim(data: bytes) -> None:
    """Check that it is a JSON document, faster than by decoding. Raises :class:`UnreadableError` if it is not."""
    _decode(_skimmer, data)


def split_members(data: bytes | Raw) -> dict[str, Raw]:
    """Split an object into its serialised values. Raises :class:`UnreadableError`."""
    members: dict[str, Raw] = _decode(_members_splitter, data)
    return members


def split_items(data: bytes | Raw) -> list[bytes]:
    """Split a list into its serialised items. Raises :class:`UnreadableError`."""
    return [bytes(item) for item in _decode(_items_splitter, data)]


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes | bytearray | memoryview | str | Raw) -> Any:
    try:
        return decoder.decode(data)
    except (RecursionError, ValueError) as e:
        raise _explain(e) from e


def _explain(error: Exception) -> UnreadableError:
    return NestingError() if isinstance(error, RecursionError) else UnreadableError(str(error))


def dumps(value: Any) -> str:
    """Serialise to compact JSON text, as in annotations."""
    return encode(value).decode("utf-8")
