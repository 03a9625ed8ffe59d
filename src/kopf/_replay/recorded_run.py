"""
A recorded run: the entries of a recording, combined to requests, streams, and calls of handlers.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from kopf._replay.format import RecordedEntry, RecordingError, read_entries
from kopf._virtual_time.journal import HandlerCall, Journal


@dataclasses.dataclass(kw_only=True)
class RecordedAction:
    """Something that the operator did: it made a request, opened a stream, or called a handler."""

    begin: RecordedEntry
    position: int
    """The position of its beginning among all entries."""
    end: RecordedEntry | None = None
    """How it has ended; ``None`` if nobody knows."""
    end_position: int = -1
    lines: list[tuple[int, RecordedEntry]] = dataclasses.field(default_factory=list)
    """The lines of a stream as they have come, with their positions among all entries."""
    is_repeated: bool = False
    """Whether the replayed operator has done that, too."""

    @property
    def fields(self) -> Mapping[str, Any]:
        return self.begin.fields

    @property
    def time(self) -> float:
        return self.begin.time


@dataclasses.dataclass(kw_only=True)
class Checkpoint:
    """What was there when the rest was dropped: the objects by the path where they are listed."""

    time: float
    versions: Mapping[str, str]
    objects: dict[str, list[bytes]]


class RecordedRun:
    """
    What is in a recording.

    Raises :class:`RecordingError` if it cannot be read, or if there is nothing to replay.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.entries, self.is_cut = read_entries(path)
        self._actions: dict[int, RecordedAction] = {}
        """The actions by their numbers."""
        self.checkpoint: Checkpoint | None = None
        try:
            self.seed, self.start = int(self.head.get("seed", 0)), datetime.datetime.fromisoformat(self.head["start"])
            self._build()
        except (LookupError, TypeError, ValueError) as e:
            raise RecordingError(f"The recording {str(path)!r} is damaged: {e!r}.") from e

    @property
    def head(self) -> Mapping[str, Any]:
        """What the operator was started with."""
        return self.entries[0].fields

    @property
    def stop_time(self) -> float:
        """When the operator was told to stop; infinity if it was not."""
        return max((entry.time for entry in self.entries if entry.kind == "stop"), default=math.inf)

    @property
    def duration(self) -> float:
        return self.entries[-1].time

    def _build(self) -> None:
        objects: dict[str, list[bytes]] = {}
        for position, entry in enumerate(self.entries):
            match entry.kind:
                case "req" | "open" | "call":
                    self._actions[entry.number] = RecordedAction(begin=entry, position=position)
                case "lines" if entry.number in self._actions:  # otherwise, it has begun before the checkpoint
                    self._actions[entry.number].lines.append((position, entry))
                case "res" | "end" | "done" if entry.number in self._actions:
                    action = self._actions[entry.number]
                    action.end, action.end_position = entry, position
                case "state":
                    objects.setdefault(entry.path, []).extend(entry.documents)
                case "checkpoint":
                    time, versions = entry.time, entry.fields["versions"]
                    self.checkpoint = Checkpoint(time=time, versions=versions, objects=objects)

    def list_actions(self, *kinds: str) -> list[RecordedAction]:
        """List all actions of these kinds: ``req``, ``open``, ``call``."""
        return [action for action in self._actions.values() if action.begin.kind in kinds]

    def make_journal(self) -> Journal:
        """Make the journal of the calls that have ended, as simulations have it."""
        journal = Journal(lambda: self.duration)
        for call in sorted(self.list_actions("call"), key=lambda call: call.end_position):
            if call.end is not None:
                journal.add(make_journal_entry(call.fields, call.time, call.end.fields, call.end.time))
        return journal


def make_journal_entry(call: Mapping[str, Any], began: float, done: Mapping[str, Any], ended: float) -> HandlerCall:
    """Make an entry of a journal of what is recorded of a call."""
    return HandlerCall(
        time=ended,
        resource=call["resource"],
        namespace=call["namespace"],
        name=call["name"],
        id=call["id"],
        reason=call["reason"],
        retry=call["retry"],
        duration=round(ended - began, 3),
        outcome=done["outcome"],
        delay=done["delay"],
        error=done["text"],
        digest=call["version"],
    )
