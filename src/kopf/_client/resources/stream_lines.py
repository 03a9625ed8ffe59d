"""Lines of a watch stream: each is an event, i.e. its type and the object, or the error instead of the object."""

from __future__ import annotations

import msgspec

from kopf._client.errors import APIGoneError, make_error
from kopf._client.resources.setbacks import BrokenStreamError
from kopf._values import codec, nesting


class Line(msgspec.Struct, gc=False):
    """One event, as it arrived; the object is not decoded."""

    type: str
    object: msgspec.Raw


class _SplitLine(msgspec.Struct, gc=False):
    """The same, but instead of the object, there is a list of one number: its position in a list apart."""

    type: str
    object: tuple[int]


_decode_line = msgspec.json.Decoder(Line).decode
_decode_split_line = msgspec.json.Decoder(_SplitLine).decode


def parse_line(raw: bytes) -> Line:
    """
    Split the line to its type and object, even if the decoder cannot skip the object: it is too deep, or malformed.

    Raises :class:`msgspec.DecodeError` if it makes no sense.
    """
    try:
        return _decode_line(raw)
    except (RecursionError, msgspec.DecodeError):
        shallow, inner = nesting.split(raw, 1)
        split = _decode_split_line(shallow)
        return Line(split.type, msgspec.Raw(inner[split.object[0]]))


def make_line_error(body: bytes, *, path: str) -> Exception:
    """Make an error of an event about an error: instead of HTTP, there is only the ``Status`` object."""
    content = codec.decode_answer(body)
    code = content.get("code") if isinstance(content, dict) else None
    status = code if isinstance(code, int) and code >= 400 else 500
    error = make_error(status=status, method="WATCH", path=path, body=body)
    return error if isinstance(error, APIGoneError) else BrokenStreamError(str(error))
