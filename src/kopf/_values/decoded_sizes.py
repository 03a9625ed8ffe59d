"""
Estimates of the memory that a JSON document takes when decoded, made from its bytes.

A few bytes can become a hundred: an empty dict is 2 bytes of JSON, and 64 bytes in Python. So, a limit of bytes alone
limits nothing. The estimates are never too low, and usually at most twice too high.
"""

from __future__ import annotations

# The maximal sizes in bytes, measured with CPython. Values other than texts count with the comma or colon before them.
_DICT = 64
_LIST = 88
_ITEM = 48
_MEMBER = 152
_TEXT = 56
_WIDEST = 4  # bytes of each character of a text, if any character of this text is wide

_DENSEST = 160
"""The maximal ratio of the estimate to the bytes of a document: for a document of colons."""

_SLICE = 64 * 1024
_MIB = 2**20
_STRUCTURE = b'{[,:"'
_OTHERS = bytes(set(range(256)) - set(_STRUCTURE))


def estimate_decoded_size(data: bytes, *, enough: int) -> int:
    """
    Estimate how many bytes the document takes at most.

    It is cheap. Only if the result is more than ``enough``, a second, closer look ignores the contents of texts: they
    can be other documents.
    """
    rough = _estimate(data, data, data.count(b'"') // 2)
    return rough if rough <= enough else _estimate(data, *_leave_out_texts(data))


def find_excess(data: bytes | bytearray | memoryview | str, limit: int) -> str:
    """Describe the problem if the decoded document would exceed the limit in bytes; empty if it fits."""
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
    """Find the brackets, commas, and colons outside of texts, and the number of texts."""
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    kept: list[bytes] = []
    quotes = 0
    for start in range(0, len(unescaped), _SLICE):  # all at once, it would take as much memory as it must save
        parts = unescaped[start : start + _SLICE].split(b'"')
        kept += [b"".join(parts[quotes % 2 :: 2])]
        quotes += len(parts) - 1
    return b"".join(kept), quotes // 2
