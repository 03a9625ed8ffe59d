"""
The data of a store in a directory: the current records and the revision, in SQLite.

Only current states are kept, no history: a restarted server knows nothing of the changes before it, so that
watches from older revisions get the error 410 and list anew.

Changes are written in batches, a moment after they happen, and never delay a request. When a server is killed, its last
batch is lost. So that no client sees a revision again with another content, the next server then skips many revisions.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import sqlite3
from collections.abc import Iterable
from typing import Final

import msgspec

from kopf_cluster.store.watch_cache import Change, Key, Record

BATCH_DELAY: Final = 0.05
"""The time to collect changes for a batch, in seconds."""

SKIPPED: Final = 1_000_000
"""The number of skipped revisions after a killed server, many more than a batch can have."""

_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS records (
        bucket TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, record BLOB NOT NULL,
        PRIMARY KEY (bucket, namespace, name)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class ArchiveError(Exception):
    """The data directory cannot be used: by another local cluster, without permissions, or with broken data."""


class Snapshot(msgspec.Struct, frozen=True):
    """The data of a store: the revision, and the records by buckets."""

    revision: int
    records: list[tuple[str, Record]]


class Archive:
    """The database of one running server, which uses the directory exclusively."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._changed: dict[tuple[str, Key], Record | None] = {}
        self._revision = 0
        self._timer: asyncio.TimerHandle | None = None
        self._database: sqlite3.Connection | None = None

    def open(self) -> Snapshot | None:
        """Open the directory; return its data, or none if it is new. Raise `ArchiveError` if it cannot be used."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._directory / "cluster.sqlite"
        try:
            # SQLite gives the same permissions to the files beside it; all contain secrets.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            path.chmod(0o600)
            self._database = sqlite3.connect(path, timeout=0, check_same_thread=False)
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_SCHEMA)
            return self._read(self._database)
        except (sqlite3.Error, msgspec.MsgspecError, OSError) as error:
            self.close()
            hint = " (by another local cluster?)" if "locked" in str(error) else ""
            raise ArchiveError(f"the data directory {self._directory} cannot be used: {error}{hint}") from error

    def _read(self, database: sqlite3.Connection) -> Snapshot | None:
        facts = dict(database.execute("SELECT name, value FROM facts"))
        if "revision" not in facts:
            with database:  # the first write takes the lock for as long as the server runs
                database.execute("INSERT OR REPLACE INTO facts VALUES ('clean', 0)")
            return None
        self._revision = facts["revision"] if facts.get("clean") else facts["revision"] + SKIPPED
        decoder = msgspec.msgpack.Decoder(Record)
        rows = database.execute("SELECT bucket, record FROM records ORDER BY bucket, namespace, name")
        records = [(bucket, decoder.decode(raw)) for bucket, raw in rows]
        with database:
            self._write_facts(database, clean=False)
        return Snapshot(self._revision, records)

    def observe(self, bucket: str, change: Change) -> None:
        """Note a change, and write it soon."""
        record = change.record
        self._changed[bucket, record.key] = None if change.type == "DELETED" else record
        self._revision = record.revision
        if self._timer is None:
            with contextlib.suppress(RuntimeError):  # before the loop runs: it is written with the next changes
                self._timer = asyncio.get_running_loop().call_later(BATCH_DELAY, self.flush)

    def flush(self, *, clean: bool = False) -> None:
        """Write all noted changes in one transaction."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._database is None:
            return
        changed, self._changed = self._changed, {}
        encode = msgspec.msgpack.Encoder().encode
        kept = [(bucket, *key, encode(record)) for (bucket, key), record in changed.items() if record is not None]
        gone = [(bucket, *key) for (bucket, key), record in changed.items() if record is None]
        with self._database:
            self._database.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", kept)
            self._database.executemany("DELETE FROM records WHERE bucket = ? AND namespace = ? AND name = ?", gone)
            self._write_facts(self._database, clean=clean)

    def _write_facts(self, database: sqlite3.Connection, *, clean: bool) -> None:
        facts: Iterable[tuple[str, int]] = [("revision", self._revision), ("clean", clean)]
        database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)

    def erase(self) -> None:
        """Delete all data."""
        self._changed.clear()
        if self._database is not None:
            with self._database:
                self._database.execute("DELETE FROM records")
                self._database.execute("DELETE FROM facts")

    def close(self) -> None:
        """Close the directory; changes that are not flushed are lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._database is not None:
            self._database.close()
            self._database = None
