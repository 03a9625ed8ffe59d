"""
How much memory a JSON document takes when it is decoded, told from its bytes, with nothing decoded.

A few bytes can become a hundred: an empty dict is 2 bytes of JSON, and 64 bytes in Python. So whoever limits the bytes
only, limits nothing. What is told is never too little, and mostly up to twice too much.
"""

from __future__ import annotations

# What one of them can take, in bytes, as measured with CPython; the values that are not texts belong to what is before.
_DICT = 64
_LIST = 88
_ITEM = 48
_MEMBER = 152
_TEXT = 56
_WIDEST = 4  # bytes of one character of a text, if any character of that text needs so many

_DENSEST = 160
"""How many times more than its bytes a document seems to take at most: of colons alone."""

_SLICE = 64 * 1024
_MIB = 2**20
_STRUCTURE = b'{[,:"'
_OTHERS = bytes(set(range(256)) - set(_STRUCTURE))


def estimate_decoded_size(data: bytes, *, enough: int) -> int:
    """
    Tell how many bytes the document takes at most. It is cheap, unless it seems to be more than ``enough``: then it is
    looked closer at what only seems so, e.g. documents with other documents as texts in them.
    """
    rough = _estimate(data, data, data.count(b'"') // 2)
    return rough if rough <= enough else _estimate(data, *_leave_out_texts(data))


def find_excess(data: bytes | bytearray | memoryview | str, limit: int) -> str:
    """Say what is wrong if the document would take more than so many bytes; if it fits, there is nothing to say."""
    if len(data) * _DENSEST <= limit:
        return ""
    size = estimate_decoded_size(data.encode() if isinstance(data, str) else bytes(data), enough=limit)
    if size <= limit:
        return ""
    return f"it would take {size // _MIB} MiB of memory, and the limit is {limit // _MIB} MiB"


def _estimate(data: bytes, structure: bytes, texts: int) -> int:
    width = 1 if data.isascii() and b"\\u" not in data else _WIDEST
    return (
        len(data) * width
        + structure.count(b"{") * _DICT
        + structure.count(b"[") * _LIST
        + structure.count(b",") * _ITEM
        + structure.count(b":") * _MEMBER
        + texts * _TEXT
    )


def _leave_out_texts(data: bytes) -> tuple[bytes, int]:
    """Give the brackets, commas, and colons outside of texts, and the number of the texts."""
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    kept: list[bytes] = []
    quotes = 0
    for start in range(0, len(unescaped), _SLICE):  # all at once, it would be the very memory that is to be saved
        parts = unescaped[start : start + _SLICE].split(b'"')
        kept += [b"".join(parts[quotes % 2 :: 2])]
        quotes += len(parts) - 1
    return b"".join(kept), quotes // 2
