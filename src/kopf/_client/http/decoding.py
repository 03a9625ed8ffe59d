"""
Compressed bodies: API servers compress large listings with gzip, if they are asked to.

A megabyte can become a gigabyte, so it is decompressed piece by piece; whoever reads the pieces, limits them.
"""

from __future__ import annotations

import zlib

from kopf._client.http.transport import ProtocolError

_PIECE = 2**20
_WINDOWS = {b"gzip": 16 + zlib.MAX_WBITS, b"x-gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
"""Of the encodings that are known, as the library wants it. API servers have only gzip, but some proxies have more."""


class Decoder:
    """The body of one response. Raises :class:`ProtocolError` if it is not what the headers say."""

    def __init__(self, encoding: bytes) -> None:
        if encoding not in _WINDOWS:
            raise ProtocolError(f"The body of the response has an unknown encoding: {encoding[:100]!r}")
        self._windows = _WINDOWS[encoding]
        self._inflating = zlib.decompressobj(self._windows)
        self._rest = b""
        self._is_begun = False

    def decode(self, data: bytes) -> bytes:
        """Decompress some megabyte at most; the rest comes when it is called again with no data."""
        piece, rest = b"", self._rest + data
        while not piece:
            if self._inflating.eof and rest:
                self._inflating = zlib.decompressobj(self._windows)  # files of gzip can be put one after another
            try:
                piece = self._inflating.decompress(rest, _PIECE)
            except zlib.error as exc:
                raise ProtocolError(f"The body of the response cannot be decompressed: {exc}") from exc
            rest = self._inflating.unconsumed_tail or self._inflating.unused_data
            if not rest:
                break
        self._rest = rest
        self._is_begun = self._is_begun or bool(piece)
        return piece

    def finish(self) -> None:
        """Check that the end has come."""
        if not self._inflating.eof and (self._is_begun or self._rest):
            raise ProtocolError("The compressed body of the response has no end")
