"""
The history: the objects and their timelines, within a limit of memory.

The threads of the operator write it, and the thread of the console reads it. The listeners write through the backlog,
which is settled before anything is read. The backlog holds its lock while it is settled, so that the lock is not taken
for each entry again.

If the history is too large, it first cuts the timelines of the objects that were idle for the longest time; then, it
forgets these timelines; then, the objects themselves.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from typing import Any

from kopf._insight.backlog import Backlog
from kopf._insight.console.texts import Details, cut, show_details
from kopf._insight.explaining.redacted_texts import is_secret
from kopf._values import codec
from kopf._values.records import Record, field
from kopf._values.references import ObjectReference
from kopf._values.resources import Resource

MAX_NOTE = 200
"""The length of a shown note, in characters."""
BASE_SIZE = 700
"""The approximate memory of a record without its timeline, in bytes."""
ENTRY_SIZE = 48
"""The memory of an entry besides its own bytes, in bytes."""


class Kind(Record, eq=False):
    """The objects of one resource."""

    number: int
    resource: Resource
    is_secret: bool
    records: dict[str, ObjectRecord] = field(default_factory=dict)
    """The objects by their keys."""

    @property
    def row(self) -> list[object]:
        """The row for the page."""
        return [self.number, repr(self.resource), self.resource.kind or self.resource.plural, self.is_secret]


class ObjectRecord(Record, eq=False):
    """One object: only its names and the texts to be shown."""

    id: int
    kind: Kind
    key: str
    namespace: str | None
    name: str
    rest: str = "idle"
    """The state apart from the work: idle, retrying, failed, gone."""
    rest_note: str = ""
    """A note on that state, e.g. the latest error."""
    work: str = ""
    """Whether it is queued or handling, as of the latest survey; empty if neither."""
    calling: str = ""
    """The running handler."""
    seen: float = 0.0
    """When its latest event has come, in seconds since the epoch."""
    since: int = 0
    """Since when it is in the state, in milliseconds since the epoch."""
    next_at: int = 0
    """When the next pass over it is planned, in milliseconds since the epoch; 0 if none is."""
    problem: str = ""
    """The latest error of the current change, or of the latest one."""
    failed: bool = False
    """Whether a handler has failed for good in the latest change."""
    own_write: tuple[str, float] | None = None
    """The version of our latest write that has not come on the stream yet, and when it was made."""
    entries: list[bytes] = field(default_factory=list)
    """The timeline: serialised entries, the oldest ones first."""
    size: int = BASE_SIZE
    """The approximate memory of the record, in bytes."""

    @property
    def path(self) -> str:
        """The name for humans, with the namespace if there is one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def state(self) -> str:
        """The shown state: ``queued`` or ``handling`` during the work; otherwise, the state apart from it."""
        return self.work if self.work and self.rest != "gone" else self.rest

    @property
    def note(self) -> str:
        """The note on the state: the running handler, or the latest error."""
        if self.work != "handling" or self.rest == "gone":
            return self.rest_note
        return cut(f"calling {self.calling}" if self.calling else self.problem, MAX_NOTE)

    def make_row(self) -> list[object]:
        """Make the row for the list of objects."""
        return [
            self.id,
            self.kind.number,
            self.namespace or "",
            self.name,
            self.state,
            self.since,
            self.next_at,
            self.note,
        ]


MAX_SIZE = 24 * 2**20
"""The limit of the memory of the history, in bytes: more than 2 KB for each of 10,000 objects."""
MAX_ENTRIES = 100
"""How many entries are kept for an object."""
MAX_GONE = 1000
"""How many deleted objects are kept."""

KEPT_ENTRIES = 8
"""How many entries are left for an object when the history is too large."""

INFO, WARNING, ERROR = range(3)

_MAX_RAW = 2500
"""Up to which size details are kept as they are, in bytes, and converted to texts when a page needs them."""
_OPERATOR = Resource("", "", "operator")

Rows = dict[int, "ObjectRecord | None"]
"""The changed records, by their ids; ``None`` is for forgotten ones."""


class History:
    """
    The objects and their timelines, and the timeline of the operator itself.

    Large because all of it changes together, under one lock.
    """

    def __init__(self, backlog: Backlog, *, limit: int = MAX_SIZE) -> None:
        self._limit = limit
        self.backlog = backlog
        """The notices that are not written yet."""
        self._lock = self.backlog.lock
        self._ids = itertools.count(1)
        self._sequence = itertools.count(1)
        self.kinds: dict[Resource, Kind] = {}
        self._resources: dict[tuple[str, str], Resource] = {}
        """The same resources by their versions and kinds."""
        self._kind = Kind(-1, _OPERATOR, is_secret=False)
        """The latest used kind: most of the next notices are about it."""
        self._records: collections.OrderedDict[int, ObjectRecord] = collections.OrderedDict()
        self._storied: collections.OrderedDict[int, ObjectRecord] = collections.OrderedDict()
        self._latest: ObjectRecord | None = None
        """The latest record in ``_storied``: most of the next notices are about it."""
        self._gone: collections.deque[ObjectRecord] = collections.deque()
        self._changes: Rows | None = None
        self.forgotten = 0
        """How many objects were forgotten because the history was too large."""
        self.size = 0
        """The approximate memory of the history, in bytes."""
        self.operator = ObjectRecord(0, self._kind, "", None, "operator")
        """The record of the operator itself."""
        self.survey: Callable[[], None] = lambda: None
        """Updates which objects are queued or handled right now; called before the states are shown."""

    def get_kind(self, resource: Resource) -> Kind:
        """Get the kind of the resource, or make it."""
        kind = self.kinds.get(resource)
        if kind is None:
            with self._lock:
                kind = self.kinds[resource] = Kind(len(self.kinds), resource, is_secret=is_secret(resource))
        return kind

    def find_resource(self, ref: ObjectReference) -> Resource | None:
        """Find the resource of a referenced object; in any thread."""
        key = ref.get("apiVersion", ""), ref.get("kind", "")
        if key not in self._resources:
            self._resources.update({(item.api_version, item.kind or ""): item for item in [*self.kinds]})
        return self._resources.get(key)

    def find(self, resource: Resource, key: str) -> ObjectRecord | None:
        """Find the record of the object; return ``None`` if it was not seen, or is forgotten."""
        kind = self._kind
        if kind.resource is not resource:
            known = self.kinds.get(resource)
            if known is None:
                return None
            kind = self._kind = known
        return kind.records.get(key)

    def obtain(self, resource: Resource, key: str, namespace: str | None, name: str) -> ObjectRecord:
        """Find the record of the object, or make it."""
        record = self.find(resource, key)
        if record is None:
            kind = self.get_kind(resource)
            record = ObjectRecord(next(self._ids), kind, key, namespace and cut(namespace), cut(name))
            record.since = int(self.backlog.now * 1000)
            kind.records[key] = self._records[record.id] = record
            self.size += record.size
            self.mark(record)
            self._shrink()
        return record

    def add(self, record: ObjectRecord, sort: str, text: str, *, level: int = INFO, details: Details = ()) -> None:
        """Add an entry to the timeline of the object."""
        at = self.backlog.stamp or int(self.backlog.now * 1000)
        entry: list[object] = [next(self._sequence), at, sort, level, text]
        encoded = _encode(entry, details) if details else codec.encode(entry)
        entries = record.entries
        entries.append(encoded)
        grown = len(encoded) + ENTRY_SIZE
        if len(entries) > MAX_ENTRIES:
            grown -= len(entries.pop(0)) + ENTRY_SIZE
        if record is self.operator:
            return
        record.size += grown
        self.size += grown
        if record is not self._latest:
            self._storied[record.id] = self._latest = record
            self._storied.move_to_end(record.id)
        self.mark(record)
        if self.size > self._limit:
            self._shrink()

    def add_own(self, sort: str, text: str, *, level: int = INFO) -> None:
        """Add an entry to the timeline of the operator, at once: not through the backlog."""
        with self._lock:
            self.add(self.operator, sort, text, level=level)

    def set_state(self, record: ObjectRecord, state: str, *, note: str = "", next_at: int = 0) -> None:
        """Set the state of the object apart from the work; ``next_at`` is in milliseconds since the epoch."""
        if state == "gone" != record.rest:
            self._gone.append(record)
        record.rest = state
        record.since = self.backlog.stamp or int(self.backlog.now * 1000)
        record.rest_note = cut(note, MAX_NOTE) if note else note
        record.next_at = next_at
        self.mark(record)
        while len(self._gone) > MAX_GONE:
            oldest = self._gone.popleft()
            if oldest.rest == "gone":  # it can be back
                self._forget(oldest)

    def set_work(self, record: ObjectRecord, work: str) -> None:
        """Set the work: ``queued``, ``handling``, or empty for neither. The caller holds the lock of the backlog."""
        record.work = work
        record.since = int(self.backlog.now * 1000)
        self.mark(record)

    def watch(self) -> list[ObjectRecord]:
        """Begin to collect changes, as a page is open. Return all records as of now."""
        self.backlog.is_watched = True
        self.backlog.settle()
        self.survey()
        with self._lock:
            self._changes = {} if self._changes is None else self._changes
            return [*self._records.values()]

    def unwatch(self) -> None:
        """Stop collecting changes, as no page is open."""
        self.backlog.is_watched = False
        self._changes = None

    def take_changes(self) -> Rows:
        """Return the changes since the last call, up to a moment ago."""
        self.backlog.settle_old()
        if self._changes is not None:
            self.survey()
        with self._lock:
            changes, self._changes = self._changes, None if self._changes is None else {}
            return changes or {}

    def get_timeline(self, id: int, after: int = 0) -> list[list[Any]] | None:
        """
        Get the entries after the given one; return ``None`` if the object has no timeline.

        An entry is a list: its number, the time in milliseconds since the epoch, the sort, the level, the text, and, if
        there are any details, their lines.
        """
        self.backlog.settle()
        record = self._storied.get(id) if id else self.operator
        if record is None:
            return None
        with self._lock:
            entries = [*record.entries]
        return [_show(entry) for entry in map(_decode, entries) if entry[0] > after]

    def mark(self, record: ObjectRecord) -> None:
        """Note that the record has changed, if a page is open."""
        if self._changes is not None:
            self._changes[record.id] = record

    def _shrink(self) -> None:
        self._latest = None
        while self.size > self._limit and self._storied:
            id, record = self._storied.popitem(last=False)
            if len(record.entries) > KEPT_ENTRIES:
                self._storied[id] = record
                left = record.entries[-KEPT_ENTRIES:]
            else:
                left = []
            freed = record.size - BASE_SIZE - sum(len(entry) + ENTRY_SIZE for entry in left)
            record.entries = left
            record.size -= freed
            self.size -= freed
        while self.size > self._limit and self._records:
            self._forget(next(iter(self._records.values())))
            self.forgotten += 1

    def _forget(self, record: ObjectRecord) -> None:
        if self._records.pop(record.id, None) is not None:
            del record.kind.records[record.key]
            self._storied.pop(record.id, None)
            self._latest = None
            self.size -= record.size
            if self._changes is not None:
                self._changes[record.id] = None


def _encode(entry: list[Any], details: Details) -> bytes:
    if not isinstance(details, dict):
        return codec.encode([*entry, details])
    try:
        encoded = codec.encode([*entry, details])
    except (ValueError, TypeError):  # too deep
        encoded = b""
    return encoded if 0 < len(encoded) <= _MAX_RAW else codec.encode([*entry, show_details(details, entry[1])])


def _decode(encoded: bytes) -> list[Any]:
    try:
        return codec.decode(encoded)  # type: ignore[no-any-return]
    except ValueError:  # something in the details, which are parts of the objects as they came
        return [codec.decode(item) for item in codec.split_items(encoded)[:5]]


def _show(entry: list[Any]) -> list[Any]:
    return [*entry[:-1], show_details(entry[-1], entry[1])] if isinstance(entry[-1], dict) else entry
