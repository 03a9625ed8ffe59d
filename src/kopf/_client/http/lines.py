"""
Lines of a stream of bytes: a watch stream consists of JSON documents of any length, separated by newlines.

Chunks from the network do not match lines: a line of megabytes comes in hundreds of chunks, and a chunk contains dozens
of small lines. In either case, each byte is copied a constant number of times.
"""

from __future__ import annotations

from kopf._client.http.transport import ProtocolError

MAX_LINE = 128 * 2**20
"""The longest line, in bytes: objects in API servers take some megabytes at most."""


class LineSplitter:
    """Accumulates chunks, and returns lines as soon as they are complete. It never decodes bytes."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """
        Take the next chunk. Return the lines that it completes, without newlines and empty lines.

        Raises :class:`ProtocolError` if a line is too long.
        """
        if b"\n" not in chunk:
            self._size += len(chunk)
            if self._size > MAX_LINE:
                raise ProtocolError(f"The line of the stream is longer than {MAX_LINE} bytes")
            self._parts.append(chunk)
            return []
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
        self._parts = [tail] if tail else []
        self._size = len(tail)
        return [line for line in lines if line]
