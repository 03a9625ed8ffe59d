"""
The parser of HTTP/1.1 responses (RFC 9112) on one connection, by ``llhttp``, the parser of Node.js.

It is strict where responses could be confused: two lengths at once, or wrong lengths, are errors. It accepts harmless
deviations of some proxies: folded headers, bare line feeds (RFC 9112, sections 2.2 & 5.2), spaces after the sizes of
chunks, and encodings that change nothing.

This module limits everything that the parser does not: headers, interim responses, and all other bytes besides the
body.
"""

from __future__ import annotations

import contextlib
import zlib

import httptools

from kopf._client.http.transport import ProtocolError

MAX_HEAD = 64 * 1024
"""The largest size of the headers, and of everything between two pieces of the body, in bytes."""

MAX_HEADERS = 128
"""The largest number of headers."""

_FIRST_FINAL = 200
"""Lower codes are interim responses, which precede the real one."""

_NO_ENCODINGS = frozenset({b"", b"identity", b"none", b"utf-8"})
"""Encodings that change nothing, proper or not."""

_NO_CODINGS = frozenset({b"", b"identity"})
"""Transfer encodings that change nothing."""

_WITHOUT_BODY = (204, 304)
"""Codes of responses without a body, even if they have a length."""

_PIECE = 2**20
_WINDOWS = {b"gzip": 16 + zlib.MAX_WBITS, b"x-gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
"""The windows of known encodings for the library. API servers have only gzip, but some proxies have more."""

_DEFLATE = 8
"""The compression method in the lower half of the first byte of a wrapped ``deflate`` (RFC 1950)."""


class ResponseParser:
    """
    The current response: takes bytes, and returns chunks of the body.

    Large because it has a method for each part that the parser finds.
    """

    __slots__ = (
        "_codings", "_has_body", "_head_size", "_is_framed", "_overhead", "_parser", "can_stay", "chunks", "encoding",
        "headers", "is_begun", "is_complete", "size", "status",
    )  # fmt: skip

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self.begin()

    def begin(self) -> None:
        """Wait for the next response."""
        self.is_begun = False
        """Whether anything has come."""
        self.is_complete = False
        """Whether everything has come. Chunks can still wait to be taken."""
        self.can_stay = False
        """Whether the connection can be used again; it is known at the end."""
        self.status = 0
        """The status code; 0 until all headers have come."""
        self.headers: list[tuple[bytes, bytes]] = []
        """The raw headers, with duplicates."""
        self.encoding: bytes | None = None
        """The encoding of the body in the header; ``None`` if there is none."""
        self.chunks: list[bytes] = []
        """The parts of the body that have come and are not taken yet."""
        self.size = 0
        """The size of these chunks, in bytes."""
        self._head_size = 0
        self._overhead = 0
        self._is_framed = False
        self._codings: list[bytes] = []
        self._has_body = False

    def feed(self, data: bytes) -> None:
        """Take bytes from the connection. Raises :class:`ProtocolError` if they are not a response."""
        self.is_begun = True
        self._has_body = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            if self.is_complete:  # only the surplus is wrong
                self.can_stay = False
                return
            if isinstance(exc.__context__, ProtocolError):
                raise exc.__context__ from None
            raise ProtocolError(f"The server does not speak proper HTTP: {exc}") from None
        self._overhead = 0 if self._has_body else self._overhead + len(data)
        if self._overhead > MAX_HEAD and not self.is_complete:
            raise ProtocolError("The headers of the response are too large")

    def finish(self) -> None:
        """Note the end of the connection, which ends the body if nothing else does."""
        if self.status and not self._is_framed:
            self.is_complete = True

    def close(self) -> None:
        """Stop parsing. The rest of the body can still be taken."""
        with contextlib.suppress(AttributeError):
            del self._parser  # it refers to this object, and cycles are collected late

    def take(self) -> bytes:
        """Take all parts of the body that have come."""
        chunks = self.chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self.chunks = []
        self.size = 0
        return data

    def on_message_begin(self) -> None:
        """Begin a response, also after an interim one."""
        if self.is_complete:
            raise ProtocolError("There is more than one response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header, or one of the trailers."""
        if b" " in name or b"\x00" in value:  # too much even for a lenient parser
            raise ProtocolError("The server does not speak proper HTTP: a header is malformed")
        self._head_size += len(name) + len(value)
        if self._head_size > MAX_HEAD or len(self.headers) == MAX_HEADERS:
            raise ProtocolError("The headers of the response are too large")
        if self.status:
            return  # the trailers mean nothing
        self.headers.append((name, value))
        if 14 <= len(name) <= 17:
            self._note_framing(name.lower(), value)

    def _note_framing(self, name: bytes, value: bytes) -> None:
        if name == b"content-encoding":
            encoding = value.strip().lower()
            self.encoding = None if encoding in _NO_ENCODINGS else encoding
        elif name == b"content-length":
            self._is_framed = True
        elif name == b"transfer-encoding":
            self._codings += (coding.strip().lower() for coding in value.split(b","))

    def on_headers_complete(self) -> None:
        """Begin the body, if it is not an interim response."""
        status = self._parser.get_status_code()
        if codings := [coding for coding in self._codings if coding not in _NO_CODINGS]:
            self._is_framed = True
            if codings != [b"chunked"] or self._codings[-1] != b"chunked":
                raise ProtocolError(f"The transfer encoding is unknown: {b', '.join(self._codings)[:100]!r}")
        if status == 101:
            raise ProtocolError("The server switches to another protocol without a request for that")
        if status >= _FIRST_FINAL:
            self.status = status
            if status in _WITHOUT_BODY and self._is_framed:
                self.is_complete = True  # the parser waits for a body, so the connection cannot be used again

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        if not self.status or self.is_complete:
            raise ProtocolError("There is a body where it cannot be")
        self._has_body = True
        self.chunks.append(data)
        self.size += len(data)

    def on_message_complete(self) -> None:
        """End, unless it was an interim response."""
        if not self.status:
            self.headers.clear()
            self.encoding = None
            self._is_framed = False
            self._codings.clear()
        elif not self.is_complete:
            self.is_complete = True
            self.can_stay = self._parser.should_keep_alive()


class BodyDecoder:
    """
    The decoder of a compressed body: API servers compress large listings with gzip on request.

    A megabyte can become a gigabyte, so the body is decompressed piece by piece, and the reader limits their size.

    Raises :class:`ProtocolError` if the body does not match its headers.
    """

    def __init__(self, encoding: bytes) -> None:
        if encoding not in _WINDOWS:
            raise ProtocolError(f"The body of the response has an unknown encoding: {encoding[:100]!r}")
        self._windows = _WINDOWS[encoding]
        self._inflating: zlib._Decompress | None = None
        self._rest = b""

    def decode(self, data: bytes) -> bytes:
        """Decompress about a megabyte at most. Call it again without data for the rest."""
        piece, rest = b"", self._rest + data
        while not piece:
            if self._inflating is None or (self._inflating.eof and rest):
                if not rest:
                    break
                self._inflating = self._begin(rest)  # gzip permits several members
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
            self._windows = -zlib.MAX_WBITS  # some servers omit the wrapper (RFC 9110, section 8.4.1.2)
        return zlib.decompressobj(self._windows)

    def finish(self) -> None:
        """Check that the body is complete."""
        if self._inflating is not None and not self._inflating.eof:
            raise ProtocolError("The compressed body of the response has no end")
