"""
YAML from clients, with limits.

A few lines with aliases of aliases can mean billions of values; as in the API server, they are refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import yaml

from kopf_cluster import codec, json_fields

MAX_SIZE: Final = 10_000_000
"""The maximal number of characters and values of a document with aliases, including all copies."""

MAX_VALUES: Final = 200_000
"""The maximal number of values and keys of a document; each takes a KiB while it is decoded."""

MAX_DEPTH: Final = 500
"""The maximal depth of a document."""

T = TypeVar("T")
_turn: Final = threading.Lock()
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the former has been compiled with libyaml


def load(text: bytes) -> Any:
    """Decode a document or raise `yaml.YAMLError`."""
    if (obj := _decode_json(text)) is not None:
        return obj
    try:
        _survey(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if b"&" in text:
                _measure(node, {})
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (ValueError, RecursionError) as error:  # impossible dates, too deep documents
        raise yaml.YAMLError(f"it cannot be decoded: {type(error).__name__}") from None


def load_json(text: bytes) -> Any:
    """Decode a document into values of JSON, or raise `yaml.YAMLError`."""
    try:
        return codec.decode(codec.encode(load(text)))
    except ValueError as error:  # numbers of thousands of digits
        raise yaml.YAMLError(str(error)) from None


def attempt(decode: Callable[[bytes], T], text: bytes) -> tuple[T | None, Exception | None]:
    """Call a decoder, in one thread at a time, as several would slow down the event loop; return its error."""
    with _turn:
        try:
            return decode(text), None
        except Exception as error:  # the caller raises it
            return None, error


def _decode_json(text: bytes) -> Any:
    """Decode a JSON object, which is YAML, too, but much faster; return none for anything else.

    Tabs are allowed only between the values of JSON, where the API server accepts them as blanks even in YAML.
    """
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        return codec.decode(text)
    except (codec.DecodeError, RecursionError):
        return None


def dump(value: Any) -> bytes:
    """Encode as the API server does: sorted, in blocks, with lists as deep as their parents."""
    return yaml.dump(value, Dumper=_Dumper, allow_unicode=True, encoding="utf-8", width=float("inf"))


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts in the literal style."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def find_repeated(text: bytes) -> list[str]:
    """Return notes on repeated keys in a valid document, in the words of the decoder of the API server."""
    if _decode_json(text) is not None:
        if not json_fields.has_repeated(text):
            return []
        text = text.replace(b"\t", b" ")
    _survey(text)
    loader = _Loader(text)
    try:
        return list(_find_repeated(loader.get_single_node(), set()))
    finally:
        loader.dispose()


def _find_repeated(node: yaml.Node | None, visited: set[int]) -> Iterator[str]:
    if id(node) in visited:  # an alias
        return
    visited.add(id(node))
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    yield f'line {key.start_mark.line + 1}: key "{key.value}" already set in map'
                seen.add(key.value)
            yield from _find_repeated(value, visited)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _find_repeated(item, visited)


def _survey(text: bytes) -> None:
    """Refuse too large or too deep documents before they are parsed, as the fast loader would overflow its stack."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, _Loader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if count > MAX_VALUES or depth > MAX_DEPTH:
            raise yaml.YAMLError("document contains too many values" if count > MAX_VALUES else "exceeded max depth")


def _measure(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the size of a node with all its aliases resolved; refuse excessive ones."""
    known = sizes.get(id(node))
    if known is not None:
        return known
    sizes[id(node)] = MAX_SIZE  # if it contains itself
    match node:
        case yaml.MappingNode():
            size = 1 + sum(_measure(key, sizes) + _measure(value, sizes) for key, value in node.value)
        case yaml.SequenceNode():
            size = 1 + sum(_measure(item, sizes) for item in node.value)
        case _:
            size = 1 + len(node.value)
    if size > MAX_SIZE:
        raise yaml.YAMLError("document contains excessive aliasing")
    sizes[id(node)] = size
    return size
