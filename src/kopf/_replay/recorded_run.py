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
    """An action of the operator: a request, a stream, or a call of a handler."""

    begin: RecordedEntry
    position: int
    """The position of its beginning among all entries."""
    end: RecordedEntry | None = None
    """The entry of its end; ``None`` if the end is not recorded."""
    end_position: int = -1
    lines: list[tuple[int, RecordedEntry]] = dataclasses.field(default_factory=list)
    """The lines of a stream as they have come, with their positions among all entries."""
    is_repeated: bool = False
    """Whether the replayed operator has done the same."""

    @property
    def fields(self) -> Mapping[str, Any]:
        return self.begin.fields

    @property
    def time(self) -> float:
        return self.begin.time


@dataclasses.dataclass(kw_only=True)
class Checkpoint:
    """The state when the older half was dropped: the objects and versions, by the paths of their listings."""

    time: float
    versions: Mapping[str, str]
    objects: dict[str, list[bytes]]


class RecordedRun:
    """
    The content of a recording.

    Raises :class:`RecordingError` if it cannot be read, or is damaged.
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
        """The versions, the options, and the time of the start."""
        return self.entries[0].fields

    @property
    def stop_time(self) -> float:
        """The time when the operator was stopped, in seconds since the start; infinity if it was not."""
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

    def find_next(self, stream: RecordedAction) -> RecordedAction | None:
        """
        Find the listing or the stream that replaced the stream when the operator closed it.

        Replicas do so when they get or lose objects.
        """
        if stream.end is None or stream.end.fields.get("failure") != "cancelled":
            return None
        for action in self.list_actions("req", "open"):
            is_same = action.fields["target"].partition("?")[0] == stream.fields["target"]
            if is_same and action.position > stream.end_position and action.fields.get("method", "GET") == "GET":
                return action
        return None

    def make_journal(self) -> Journal:
        """Make the journal of the calls that have ended, as simulations have it."""
        journal = Journal(lambda: self.duration)
        for call in sorted(self.list_actions("call"), key=lambda call: call.end_position):
            if call.end is not None:
                journal.add(make_journal_entry(call.fields, call.time, call.end.fields, call.end.time))
        return journal


def make_journal_entry(call: Mapping[str, Any], began: float, done: Mapping[str, Any], ended: float) -> HandlerCall:
    """Make an entry of a journal from a recorded call."""
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
