"""
The recorder: it numbers and times what happens in the operator, and hands it over to the thread that writes.

Nothing else is done in the event loop: the documents are redacted, compressed and written by the thread.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

FORMAT = 1
"""The version of the format; it is raised when older readers would misunderstand the file."""

_MOST_PENDING = 8 * 2**20
"""How much may wait to be written until requests are slowed down, in bytes."""
_PATIENCE = 5.0
"""How long a request may be slowed down, in seconds; then the recording ends, and the operator goes on."""
_PAUSE = 0.02


class Entry(NamedTuple):
    """
    One line of the file.

    The kinds: ``head`` is what the operator was started with; ``req`` & ``res`` are an attempt of a request and how it
    has ended; ``open``, ``lines`` & ``end`` are of a stream; ``call`` & ``done`` are of a handler; ``stop`` is when the
    operator began to stop. What belongs together has the same number. ``state`` & ``checkpoint`` come from the
    writer: they stand for what was dropped from a recording that was too large.
    """

    kind: str
    number: int
    time: float
    """In seconds since the beginning."""
    fields: Mapping[str, Any]
    """What is known besides the documents. No secrets here, except for those in ``text``, which is redacted."""
    documents: list[bytes]
    path: str = ""
    """Which path the documents come from or go to."""


class Sink(Protocol):
    """Where the entries go."""

    @property
    def pending(self) -> int:
        """How many bytes are not written yet."""

    def put(self, entry: Entry) -> None:
        """Take one more entry; from any thread."""

    def give_up(self, reason: str) -> None:
        """End the recording as it is, with no more entries."""


class Recorder:
    """Takes notes of one operator. ``head`` is what it was started with."""

    def __init__(self, sink: Sink, head: Mapping[str, Any]) -> None:
        self._sink = sink
        self._head = head
        self._began = 0.0
        self._number = 0

    def start(self, now: datetime.datetime) -> None:
        """Begin the recording now, by the clock of the operator: it can be some moments off from all others."""
        self._began = asyncio.get_running_loop().time()
        self._sink.put(Entry("head", 0, 0.0, {**self._head, "format": FORMAT, "start": now.isoformat()}, []))

    def begin(self, kind: str, fields: Mapping[str, Any], documents: list[bytes], path: str = "") -> int:
        """Note the beginning of something. Get its number."""
        self._number += 1
        self.note(kind, self._number, fields, documents, path)
        return self._number

    def note(
        self, kind: str, number: int, fields: Mapping[str, Any], documents: list[bytes], path: str = ""
    ) -> None:
        """Note what goes on with that number."""
        time = round(asyncio.get_running_loop().time() - self._began, 6)
        self._sink.put(Entry(kind, number, time, fields, documents, path))

    async def keep_up(self) -> None:
        """Let the writer catch up if it is too far behind: the memory is bounded."""
        loop = asyncio.get_running_loop()
        deadline: float | None = None
        while self._sink.pending > _MOST_PENDING:
            deadline = loop.time() + _PATIENCE if deadline is None else deadline
            if loop.time() > deadline:
                self._sink.give_up("the disk is too slow for it")
                return
            await asyncio.sleep(_PAUSE)
