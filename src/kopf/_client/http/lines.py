"""
Lines out of a stream of bytes: a watch stream is JSON documents separated by newlines, of any length.

The chunks of the network know nothing of lines: a line of megabytes comes in hundreds of chunks, and a chunk
has dozens of small lines. Each byte is copied a constant number of times in either case.
"""

from __future__ import annotations

from kopf._client.http.transport import ProtocolError

MAX_LINE = 128 * 2**20
"""How long a line can be, in bytes: API servers have no objects of more than some megabytes."""


class LineSplitter:
    """
    Accumulates chunks, and gives the complete lines as soon as they are complete; bytes are never decoded
    here.
    """

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """
        Take the next chunk, give the lines completed by it, with no newlines; empty lines are dropped.

        Raises :class:`ProtocolError` if a line has no end for too long.
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
