"""What is in a recording, for those who look for something in it."""

from __future__ import annotations

import pathlib
from typing import Any

from kopf._replay.format import Lines, RecordedEntry, read_entries


def read_all(path: pathlib.Path) -> bytes:
    """Get the whole text."""
    return b"\n".join(Lines(path))


def list_kinds(path: pathlib.Path) -> list[str]:
    entries, _ = read_entries(path)
    return [entry.kind for entry in entries]


def make_entry(
    kind: str = "res",
    number: int = 1,
    time: float = 0.0,
    *documents: bytes,
    path: str = "",
    **fields: Any,
) -> RecordedEntry:
    return RecordedEntry(kind, number, time, fields, [*documents], path)


HEAD = make_entry("head", 0, format=1, seed=1, start="2026-01-01T00:00:00+00:00", kopf="2.0", options={})
