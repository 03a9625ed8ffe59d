"""
The file of a recording: entries are appended member by member, up to a limit of its size.

If the file is too large, its oldest half is replaced with a *checkpoint*: the latest known state of all watched
objects, the responses of the discovery, and the open streams at that moment. The operator can be replayed from there as
if it was restarted.
"""

from __future__ import annotations

import io
import pathlib
import re
import shutil
import zlib
from collections.abc import Iterator
from typing import Any

from kopf._replay.format import Lines, RecordedEntry, decode_entry, encode_entry, make_compressor, open_privately
from kopf._values import codec

_MEMBER = 2**20
"""How large a member of the file is before compression, in bytes; smaller if the limit is small."""
_is_discovery = re.compile(r"/(version|api(/v1)?|apis(/[^/]+/[^/]+)?)$").match


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
        self._path = path
        self._limit = limit
        self._file = open_privately(path)
        self._sizes: list[int] = []
        """The sizes of the complete members, in their order."""
        self._compressor: Any = None
        """Compresses the current member; ``None`` if none is begun."""
        self._taken = self._written = 0
        """The size of the current member, before and after compression."""

    def add(self, line: bytes, *, is_last: bool = False) -> None:
        """Add a line; with ``is_last``, the next one is in another member."""
        if self._compressor is None:
            self._compressor, self._taken, self._written = make_compressor(), 0, 0
        self._taken += len(line)
        self._append(self._compressor.compress(line))
        if is_last or self._taken >= min(_MEMBER, self._limit // 8):
            self.end()

    def flush(self) -> None:
        """Pass everything to the system: it survives this process."""
        if self._compressor is not None:
            self._append(self._compressor.flush(zlib.Z_SYNC_FLUSH))

    def end(self) -> None:
        """End the current member."""
        if self._compressor is None:
            return
        self._append(self._compressor.flush())
        self._compressor = None
        self._sizes.append(self._written)
        if sum(self._sizes) > self._limit and len(self._sizes) > 2:
            self._drop()

    def close(self) -> None:
        self._file.close()

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # the disk can take a part of it
            size = self._file.write(view) or 0
            self._written += size
            view = view[size:]

    def _drop(self) -> None:
        """Drop the oldest members, but for the head, in one step."""
        self._file.close()
        end, kept = sum(self._sizes), 0
        while len(self._sizes) - kept > 2 and sum(self._sizes[len(self._sizes) - kept - 1 :]) <= self._limit // 2:
            kept += 1
        head, rest = self._sizes[0], end - sum(self._sizes[len(self._sizes) - kept :])
        checkpoint = Checkpoint()
        for line in Lines(self._path, head, rest):
            checkpoint.note(decode_entry(line))
        draft = self._path.with_name(f"{self._path.name}.draft")
        try:
            with self._path.open("rb") as old, open_privately(draft) as new:
                new.write(old.read(head))
                size = _write(new, checkpoint.make_entries())
                if size > self._limit // 2:
                    raise CheckpointTooLargeError(
                        f"the watched objects alone take {size} bytes, more than half of the limit"
                    )
                old.seek(rest)
                shutil.copyfileobj(old, new)
            draft.replace(self._path)
        finally:
            draft.unlink(missing_ok=True)
        self._sizes = [head, size, *self._sizes[len(self._sizes) - kept :]]
        self._file = io.FileIO(self._path, "ab")


class CheckpointTooLargeError(Exception):
    """The objects alone take more than a half of the limit."""


class Checkpoint:
    """The known state at one moment, from all entries before it. Documents are kept compressed."""

    def __init__(self) -> None:
        self._time = 0.0
        self._streams: dict[int, RecordedEntry] = {}
        self._requests: dict[int, RecordedEntry] = {}
        self._discovery: dict[str, tuple[RecordedEntry, RecordedEntry]] = {}
        self._objects: dict[str, dict[str, bytes]] = {}
        self._versions: dict[str, str] = {}

    def note(self, entry: RecordedEntry) -> None:
        """Update the state by an entry."""
        self._time = max(self._time, entry.time)
        match entry.kind:
            case "state":
                self._keep(entry.path, codec.decode(entry.documents[0]))
            case "checkpoint":
                self._versions.update(entry.fields["versions"])
            case "open":
                self._streams[entry.number] = entry
                self._objects.setdefault(entry.fields["target"], {})
            case "end":
                self._streams.pop(entry.number, None)
            case "lines" if entry.number in self._streams:
                self._note_lines(self._streams[entry.number].fields["target"], entry.documents)
            case "req" if entry.fields["method"] == "GET":
                self._requests[entry.number] = entry
            case "res" if entry.number in self._requests:
                self._note_response(self._requests.pop(entry.number), entry)

    def _note_lines(self, path: str, lines: list[bytes]) -> None:
        for line in lines:
            try:
                event = codec.decode(line)
                kind, obj = event["type"], event["object"]
                if kind in ("ADDED", "MODIFIED"):
                    self._keep(path, obj)
                elif kind == "DELETED":
                    self._objects[path].pop(_identify(obj), None)
                if kind != "ERROR":
                    self._versions[path] = obj["metadata"]["resourceVersion"]
            except (ValueError, LookupError, TypeError):
                continue  # the operator cannot read it either

    def _note_response(self, request: RecordedEntry, response: RecordedEntry) -> None:
        target = str(request.fields["target"])
        path, _, query = target.partition("?")
        if not response.documents:
            return
        if _is_discovery(path):
            self._discovery[f"{target} {request.fields['headers']}"] = (request, response)
            return
        try:
            listing = codec.decode(response.documents[0])
            if not str(listing["kind"]).endswith("List"):
                return
            if "continue=" not in query:
                self._objects[path] = {}
            for item in listing["items"]:
                self._keep(path, item)
            self._versions[path] = listing["metadata"]["resourceVersion"]
            listing["items"] = []
            self._discovery[f"listing {path}"] = (request, response._replace(documents=[codec.encode(listing)]))
        except (ValueError, LookupError, TypeError):
            return

    def _keep(self, path: str, obj: dict[str, Any]) -> None:
        self._objects.setdefault(path, {})[_identify(obj)] = zlib.compress(codec.encode(obj), 1)

    def make_entries(self) -> Iterator[RecordedEntry]:
        """Make the entries that replace all the noted ones."""
        for request, response in self._discovery.values():
            yield request
            yield response
        for path, objects in self._objects.items():
            for obj in objects.values():
                yield RecordedEntry("state", 0, self._time, {}, [zlib.decompress(obj)], path)
        yield from self._streams.values()
        yield RecordedEntry("checkpoint", 0, self._time, {"versions": self._versions}, [])


def _identify(obj: dict[str, Any]) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _write(file: io.FileIO, entries: Iterator[RecordedEntry]) -> int:
    compressor, start = make_compressor(), file.tell()
    for entry in entries:
        file.write(compressor.compress(encode_entry(entry)))
    file.write(compressor.flush())
    return file.tell() - start
