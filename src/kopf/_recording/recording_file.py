"""
The file of a recording: it is appended to, member by member, and does not grow beyond its limit.
"""

from __future__ import annotations

import io
import pathlib
import zlib
from typing import Any

from kopf._recording.format import make_compressor, open_privately
from kopf._recording.ring import Ring

_MEMBER = 2**20
"""How large a member of the file is before compression, in bytes; smaller if the limit is small."""


class RecordingFile:
    """
    Appends lines to the file.

    :param path: the file; if it is there, it is kept with ``.1`` in its name, as operators are restarted by Kubernetes.
    :param limit: the largest size of the file, in bytes: of more than that, the oldest half is dropped.

    Raises :class:`OSError` if the file cannot be written.
    """

    def __init__(self, path: pathlib.Path, limit: int) -> None:
        if path.is_file() and path.stat().st_size:
            path.replace(path.with_name(f"{path.name}.1"))
        self._file = open_privately(path)
        self._ring = Ring(path, limit)
        self._most = min(_MEMBER, limit // 8)
        self._member: _Member | None = None

    def add(self, line: bytes, *, is_last: bool = False) -> None:
        """Add a line; with ``is_last``, the next one is in another member."""
        member = self._member = self._member or _Member(self._file)
        member.add(line)
        if is_last or member.taken >= self._most:
            self.end()

    def flush(self) -> None:
        """Pass everything to the system: it survives this process."""
        if self._member is not None:
            self._member.flush()

    def end(self) -> None:
        """End the current member."""
        member, self._member = self._member, None
        if member is not None and self._ring.add(member.end()):
            self._file.close()
            self._file = self._ring.drop()

    def close(self) -> None:
        self._file.close()


class _Member:
    """The member that is being written."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self._compressor: Any = make_compressor()
        self._written = 0
        self.taken = 0

    def add(self, line: bytes) -> None:
        self.taken += len(line)
        self._append(self._compressor.compress(line))

    def flush(self) -> None:
        self._append(self._compressor.flush(zlib.Z_SYNC_FLUSH))

    def end(self) -> int:
        """End it; get its size in the file."""
        self._append(self._compressor.flush())
        return self._written

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # the disk can take a part of it
            size = self._file.write(view) or 0
            self._written += size
            view = view[size:]
