"""
The format of recordings: lines of JSON, in gzip; ``zcat`` and ``jq`` are enough to look into them.

A file is a sequence of gzip members, so that the oldest of them can be dropped, and the last of them can be cut.
"""

from __future__ import annotations

import io
import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kopf._replay.redaction import TEXT
from kopf._values import codec
from kopf._values.operator_error import OperatorError

FORMAT = 1
"""The version of the format; it is raised when older readers would misunderstand the file."""
_CHUNK = 2**18
_TEXT_START = b'{"%s":' % TEXT.encode()
_GZIP = 31
"""The number of this format in zlib."""
_LEVEL = 1

# A hostile recording can be made to take all the memory, and all the time.
_LONGEST = 10 * 366 * 86400
"""How long a recording can be, in seconds."""
_LONGEST_LINE = 64 * 2**20
_LARGEST_FIELDS = 4 * 2**20
_LEAST_ROOM, _ROOM = 128 * 2**20, 60
"""How much memory a recording can take: so many bytes, plus so many times the size of the file."""
_ENTRY_WEIGHT, _VALUE_WEIGHT = 500, 60


class RecordedEntry(NamedTuple):
    """
    One line of the file.

    The kinds: ``head`` has the options of the operator; ``req`` & ``res`` are an attempt of a request and its outcome;
    ``open``, ``lines`` & ``end`` are of a stream; ``call`` & ``done`` are of a handler; ``stop`` is the moment when the
    operator began to stop. The entries of one action have the same number. ``state`` & ``checkpoint`` come from the
    writer: they replace the dropped half of a recording that was too large.
    """

    kind: str
    number: int
    time: float
    """In seconds since the beginning."""
    fields: Mapping[str, Any]
    """The data besides the documents. There are no secrets but in ``text``, which is redacted."""
    documents: list[bytes]
    path: str = ""
    """The path of the API that the documents come from or go to."""


class RecordingError(OperatorError):
    """The file is not a recording, or cannot be read or written."""


def encode_entry(entry: RecordedEntry) -> bytes:
    """Encode the entry as a line. The documents must be valid JSON, each on one line."""
    fields = {"kind": entry.kind, "n": entry.number, "t": entry.time, **entry.fields}
    if entry.path and entry.kind == "state":
        fields["path"] = entry.path
    head = codec.encode(fields)
    if not entry.documents:
        return head + b"\n"
    return b'%s,"docs":[%s]}\n' % (head[:-1], b",".join(entry.documents))


def decode_entry(line: bytes) -> RecordedEntry:
    """Decode a line. Raises :class:`ValueError` if it is malformed."""
    members = codec.split_members(line)
    documents = [_restore(document) for document in codec.split_items(members.pop("docs", codec.Raw(b"[]")))]
    if sum(len(bytes(value)) for value in members.values()) > _LARGEST_FIELDS:
        raise ValueError("its fields are too large")
    fields = {name: codec.decode(value) for name, value in members.items()}
    try:
        kind, number, time = fields.pop("kind"), fields.pop("n"), fields.pop("t")
    except KeyError as e:
        raise ValueError(f"it is not an entry of a recording: it has no {e}") from e
    if not isinstance(time, int | float) or not 0 <= time <= _LONGEST:
        raise ValueError("its time is invalid")
    if not isinstance(kind, str) or not isinstance(number, int):
        raise ValueError("its kind or its number is invalid")
    return RecordedEntry(kind, number, time, fields, documents, fields.get("path", ""))


def _restore(document: bytes) -> bytes:
    """Restore a document that was not valid JSON, and so was put into a text."""
    if document.startswith(_TEXT_START):
        text = codec.decode(document)[TEXT]
        return text.encode() if isinstance(text, str) else document
    return document


def make_compressor() -> Any:
    """Make the compressor of one member."""
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)


def open_privately(path: pathlib.Path) -> io.FileIO:
    """
    Open a new file that only its owner can read: even redacted, it tells a lot about the cluster.

    Links are not followed. An existing file is removed, as it can belong to others, or be readable by them.
    """
    if path.is_file() and not path.is_symlink():
        path.unlink()
    is_new = not os.path.lexists(path)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if is_new else 0) | getattr(os, "O_NOFOLLOW", 0)
    return io.FileIO(os.open(path, flags, 0o600), "wb")


class Lines:
    """
    The lines of a whole file, or of a part.

    After all lines are read, ``is_cut`` tells if the last one is cut, and ``is_damaged`` if there is more in the file
    that cannot be read.
    """

    def __init__(self, path: pathlib.Path, start: int = 0, end: int | None = None) -> None:
        self._path = path
        self._start = start
        self._end = end
        self.is_cut = False
        self.is_damaged = False

    def __iter__(self) -> Iterator[bytes]:
        rest = bytearray()
        for data in self._decompress():
            end, newline, begin = data.rpartition(b"\n")
            if newline:
                rest += end
                yield from bytes(rest).split(b"\n")
                rest.clear()
            rest += begin
            if len(rest) > _LONGEST_LINE:
                raise ValueError("it is too long")
        self.is_cut = self.is_cut or bool(rest)

    def _decompress(self) -> Iterator[bytes]:
        member = zlib.decompressobj(_GZIP)
        for chunk in self._read():
            data = chunk
            while data:
                self.is_cut = True  # until the member ends
                try:
                    text = member.decompress(data, _CHUNK)
                except zlib.error:
                    self.is_damaged = True
                    return
                if text:
                    yield text
                data = member.unconsumed_tail
                if member.eof:
                    self.is_cut, data, member = False, member.unused_data, zlib.decompressobj(_GZIP)

    def _read(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            file.seek(self._start)
            while chunk := file.read(_CHUNK if self._end is None else min(_CHUNK, self._end - file.tell())):
                yield chunk


def read_entries(path: pathlib.Path) -> tuple[list[RecordedEntry], bool]:
    """
    Read the whole file. Return the entries, and whether the end is cut, as when the operator was killed.

    Raises :class:`RecordingError` if it cannot be read, is no recording, or is of a newer version.
    """
    lines = Lines(path)
    entries: list[RecordedEntry] = []
    try:
        room = _LEAST_ROOM + _ROOM * path.stat().st_size
        for line in lines:
            room -= len(line) + _ENTRY_WEIGHT
            if room > 0:
                entries.append(decode_entry(line))
                room -= _VALUE_WEIGHT * len(entries[-1].documents)
            if room <= 0:
                raise ValueError("it takes too much memory for its size")
            if len(entries) == 1:
                _check_head(entries[0], path)
    except OSError as e:
        raise RecordingError(f"The recording {str(path)!r} cannot be read: {e.strerror or e}.") from e
    except ValueError as e:
        place = f"{str(path)!r}, line {len(entries) + 1}"
        raise RecordingError(f"This is not a recording, or it is damaged: {place}: {e}.") from e
    if not entries:
        raise RecordingError(f"{str(path)!r} is not a recording: it has no readable entries.")
    if lines.is_damaged:
        raise RecordingError(f"{str(path)!r} is damaged after line {len(entries)}: it cannot be decompressed.")
    return entries, lines.is_cut


def _check_head(entry: RecordedEntry, path: pathlib.Path) -> None:
    version = entry.fields.get("format")
    if entry.kind != "head" or not isinstance(version, int):
        raise ValueError("it does not begin with a head")
    if version > FORMAT:
        raise RecordingError(
            f"The recording {str(path)!r} is of the format {version}, written by kopf {entry.fields.get('kopf')}; "
            f"this version reads formats up to {FORMAT}. Replay it with that version, or a newer one."
        )
