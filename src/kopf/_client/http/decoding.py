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

_DEFLATE = 8
"""The method of compression with which the wrapper of ``deflate`` begins, in its lower half-byte (RFC 1950)."""


class Decoder:
    """The body of one response. Raises :class:`ProtocolError` if it is not what the headers say."""

    def __init__(self, encoding: bytes) -> None:
        if encoding not in _WINDOWS:
            raise ProtocolError(f"The body of the response has an unknown encoding: {encoding[:100]!r}")
        self._windows = _WINDOWS[encoding]
        self._inflating: zlib._Decompress | None = None
        self._rest = b""

    def decode(self, data: bytes) -> bytes:
        """Decompress some megabyte at most; the rest comes when it is called again with no data."""
        piece, rest = b"", self._rest + data
        while not piece:
            if self._inflating is None or (self._inflating.eof and rest):
                if not rest:
                    break
                self._inflating = self._begin(rest)  # files of gzip can be put one after another
            try:
                piece = self._inflating.decompress(rest, _PIECE)
            except zlib.error as exc:
                raise ProtocolError(f"The body of the response cannot be decompressed: {exc}") from exc
            rest = self._inflating.unconsumed_tail or self._inflating.unused_data
            if not rest:
                break
        self._rest = rest
        return piece

    def _begin(self, data: bytes) -> zlib._Decompress:
        if self._windows == zlib.MAX_WBITS and data[0] & 0x0F != _DEFLATE:
            self._windows = -zlib.MAX_WBITS  # some servers leave the wrapper out (RFC 9110, section 8.4.1.2)
        return zlib.decompressobj(self._windows)

    def finish(self) -> None:
        """Check that the end has come."""
        if self._inflating is not None and not self._inflating.eof:
            raise ProtocolError("The compressed body of the response has no end")
