"""JSON in and out: the one place that knows which library does it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kopf._values.decoded_sizes import find_excess


def _convert(value: Any) -> Any:
    """Make a value that can be encoded of one that cannot: the views of bodies, texts of other classes."""
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
"""A serialised value, which becomes a part of a larger one as it is."""

_MAX_ANSWER = 256 * 2**20
"""In bytes, decoded. The largest are those of the discovery: 4 MiB with thousands of resources, and 20 times more."""

_SURROGATES = re.compile(r"[\ud800-\udfff]")


class UnreadableError(msgspec.DecodeError):
    """
    A document cannot be decoded: an object, or a part of it.

    Kubernetes itself has only proper objects, but aggregated APIs can send anything: numbers that Python cannot hold
    (``1e999``), texts that are not in UTF-8, values that are not JSON (``NaN``).
    """


class NestingError(UnreadableError):
    """The document is nested too deeply for Python, which is about a thousand levels; it can be proper JSON."""

    def __init__(self) -> None:
        super().__init__("it is nested too deeply")


def encode(value: Any) -> bytes:
    """
    Serialise any JSON-compatible value to compact UTF-8 bytes. Raises :class:`NestingError` if it is too deep.

    Lone surrogates become U+FFFD, as in Kubernetes itself: Python has them in the names of files and in the strings of
    :func:`json.loads`, so they get into messages of errors; UTF-8 has no such characters.
    """
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, RecursionError):
        return _encode_carefully(_encoder, value)


def encode_sorted(value: Any) -> bytes:
    """The same, with the keys sorted: equal values give equal bytes."""
    return _encode_carefully(_sorting_encoder, value)


def _encode_carefully(encoder: msgspec.json.Encoder, value: Any) -> bytes:
    try:
        try:
            return encoder.encode(value)
        except UnicodeEncodeError:
            return encoder.encode(_replace_surrogates(value))
    except RecursionError as e:
        raise NestingError from e


def _replace_surrogates(value: Any) -> Any:
    """Copy the value with all of its texts valid."""
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_replace_surrogates(item) for item in value]
    return value


def decode(data: bytes | bytearray | memoryview | str) -> Any:
    """Parse a JSON document. Raises :class:`UnreadableError` if it is malformed or too deep, which is a ValueError."""
    try:
        return _decoder.decode(data)
    except (RecursionError, ValueError) as e:
        raise _explain(e) from e


def decode_answer(data: bytes | bytearray | memoryview | str) -> Any:
    """
    Parse what others have said, unless it would take too much memory; then it raises :class:`UnreadableError`, too.

    A few bytes can become a hundred, and whoever answers, e.g. an extension of the cluster, can say anything.
    """
    if problem := find_excess(data, _MAX_ANSWER):
        raise UnreadableError(problem)
    return decode(data)


def skim(data: bytes) -> None:
    """Look if it is a JSON document at all, which is faster than to decode it. Raises the same errors."""
    _apply(_skimmer, data)


def split_members(data: bytes) -> dict[str, bytes]:
    """Give the serialised values of an object. Raises the same errors."""
    return {name: bytes(value) for name, value in _apply(_members_splitter, data).items()}


def split_items(data: bytes) -> list[bytes]:
    """Give the serialised items of a list. Raises the same errors."""
    return [bytes(item) for item in _apply(_items_splitter, data)]


def _apply(decoder: msgspec.json.Decoder[Any], data: bytes | bytearray | memoryview | str) -> Any:
    try:
        return decoder.decode(data)
    except (RecursionError, ValueError) as e:
        raise _explain(e) from e


def _explain(error: RecursionError | ValueError) -> UnreadableError:
    return NestingError() if isinstance(error, RecursionError) else UnreadableError(str(error))


def dumps(value: Any) -> str:
    """Serialise to compact JSON text, as it goes to annotations."""
    return encode(value).decode("utf-8")
