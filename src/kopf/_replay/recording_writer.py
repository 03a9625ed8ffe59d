"""
The writer of a recording. The recorder numbers and times the actions of the operator, and passes them to the writer.

The writer is a thread that redacts the entries, compresses them, and appends them to the file, outside of the event
loop.

If the disk fails, the recording ends with one warning, and the operator goes on; the written part can be replayed.
Entries are passed to the system several times a second, so that only the latest are lost if the operator is killed.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import pathlib
import queue
import threading
from collections.abc import Mapping
from typing import Any

from kopf._replay.format import FORMAT, RecordedEntry, encode_entry
from kopf._replay.recording_file import CheckpointTooLargeError, RecordingFile
from kopf._replay.redaction import Redactor

logger = logging.getLogger(__name__)

_MOST_PENDING = 8 * 2**20
"""How many bytes may wait to be written until requests are slowed down."""
_PATIENCE = 5.0
"""How long a request may be slowed down, in seconds; then the recording ends, and the operator goes on."""
_PAUSE = 0.02
_INTERVAL = 0.2
"""For how long entries are gathered, in seconds, so that the thread does not wake up for each one."""
_FAREWELL = 10.0
_SENT = {"req"}
_END = None


class Writer:
    """
    Writes one recording.

    :param path: the file.
    :param limit: the largest size of the file, in bytes.

    Raises :class:`OSError` if the file cannot be written.
    """

    def __init__(self, path: pathlib.Path, limit: int) -> None:
        self._file = RecordingFile(path, limit)
        self._has_given_up = False
        self._redactor = Redactor()
        self._queue: queue.SimpleQueue[RecordedEntry | None] = queue.SimpleQueue()
        self.pending = 0
        """The number of bytes that are not written yet."""
        self._lock = threading.Lock()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf-recording", daemon=True)
        self._thread.start()

    def put(self, entry: RecordedEntry) -> None:
        """Add an entry."""
        if not self._has_given_up:
            with self._lock:
                self.pending += _weigh(entry)
            self._queue.put(entry)

    def give_up(self, reason: str) -> None:
        """End the recording with a warning, and keep the written part."""
        has_given_up, self._has_given_up = self._has_given_up, True
        if not has_given_up:
            logger.warning("The recording ends here, but the operator continues: %s.", reason)

    def close(self) -> None:
        """Write the remaining entries."""
        self._hurry.set()
        self._queue.put(_END)
        self._thread.join(_FAREWELL)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            entries = [self._queue.get()]
            self._hurry.wait(_INTERVAL)
            while not self._queue.empty():
                entries.append(self._queue.get())
            is_over = entries[-1] is _END
            try:
                self._write([entry for entry in entries if entry is not None], is_last=is_over)
            except OSError as e:
                self.give_up(f"the file cannot be written: {e.strerror or e}")
            except CheckpointTooLargeError as e:
                self.give_up(str(e))
            except Exception as e:
                logger.exception("The recording has failed.")
                self.give_up(f"{type(e).__name__}: {e}")
            with self._lock:
                self.pending -= sum(_weigh(entry) for entry in entries if entry is not None)
        self._file.close()

    def _write(self, entries: list[RecordedEntry], *, is_last: bool) -> None:
        for entry in entries:
            if self._has_given_up:
                return
            # The head is alone in its member, as it is the only one that is never dropped.
            self._file.add(encode_entry(self._redact(entry)), is_last=entry.kind == "head")
        if is_last:
            self._file.end()
        else:
            self._file.flush()

    def _redact(self, entry: RecordedEntry) -> RecordedEntry:
        redact = self._redactor.redact
        documents = [redact(item, entry.path, is_sent=entry.kind in _SENT) for item in entry.documents]
        fields = entry.fields
        if "text" in fields:
            fields = {**fields, "text": self._redactor.redact_text(fields["text"])}
        return entry._replace(documents=documents, fields=fields)


def _weigh(entry: RecordedEntry) -> int:
    return 200 + sum(map(len, entry.documents))


class Recorder:
    """Takes notes of one operator; the ``head`` has its versions and options."""

    def __init__(self, writer: Writer, head: Mapping[str, Any]) -> None:
        self._writer = writer
        self._head = head
        self._began = 0.0
        self._number = 0

    def start(self, now: datetime.datetime) -> None:
        """Begin the recording now, by the clock of the operator, which can differ a little from others."""
        self._began = asyncio.get_running_loop().time()
        self._writer.put(RecordedEntry("head", 0, 0.0, {**self._head, "format": FORMAT, "start": now.isoformat()}, []))

    def begin(self, kind: str, fields: Mapping[str, Any], documents: list[bytes], path: str = "") -> int:
        """Note the beginning of an action. Return its number."""
        self._number += 1
        self.note(kind, self._number, fields, documents, path)
        return self._number

    def stop(self) -> None:
        """Note that the operator begins to stop."""
        self.begin("stop", {}, [])

    def note(self, kind: str, number: int, fields: Mapping[str, Any], documents: list[bytes], path: str = "") -> None:
        """Note an event of the action with this number."""
        time = round(asyncio.get_running_loop().time() - self._began, 6)
        self._writer.put(RecordedEntry(kind, number, time, fields, documents, path))

    async def keep_up(self) -> None:
        """Let the writer catch up if it is too far behind: the memory is bounded."""
        loop = asyncio.get_running_loop()
        deadline: float | None = None
        while self._writer.pending > _MOST_PENDING:
            deadline = loop.time() + _PATIENCE if deadline is None else deadline
            if loop.time() > deadline:
                self._writer.give_up("the disk is too slow for it")
                return
            await asyncio.sleep(_PAUSE)
