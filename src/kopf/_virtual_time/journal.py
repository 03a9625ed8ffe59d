"""
The journal: the history of a simulation, in order: calls of handlers, changes of objects, starts and exits of the
operator; and the log messages, with the same times.

The same story has the same journal, to the byte: all times are virtual, and all random values come from the seed.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kopf._logging.tracebacks import is_framework
from kopf._values import codec
from kopf._values.diffs import DiffOperation, diff

_VOLATILE = {"managedFields", "resourceVersion", "generation", "selfLink"}
"""The fields of the metadata that change with every write."""
_MAX_VALUE = 60
"""The shown length of a value, in characters."""


class ObjectPlace(NamedTuple):
    """
    An object, by its names; or, without a name, all objects of the resource in the namespace or in the cluster.

    As a text, it is ``kopfexamples.kopf.dev default/obj``.
    """

    resource: str
    """The plural name with the group."""
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.resource} {f'{self.namespace}/{self.name}' if self.namespace else self.name}".strip()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry(abc.ABC):
    """One entry of the journal."""

    time: float
    """The time, in seconds since the beginning of the simulation."""
    resource: str = ""
    """The resource of the object: the plural name with the group; empty for entries without an object."""
    namespace: str = ""
    name: str = ""

    @property
    def place(self) -> ObjectPlace:
        """The object; all its names are empty if there is none."""
        return ObjectPlace(self.resource, self.namespace, self.name)

    @abc.abstractmethod
    def describe(self) -> str:
        """Describe the entry in one line."""

    def __str__(self) -> str:
        return f"{self.time:12.3f}  {self.describe()}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class HandlerCall(Entry):
    """One attempt of a handler, noted at its end."""

    id: str
    reason: str
    """The reason of the call: ``create``, ``update``, ``resume``, ``timer``, ``event``, ``startup``, ... ."""
    retry: int
    duration: float
    """The duration, in seconds of the virtual time."""
    outcome: str
    """``succeeded``, ``retried``, ``failed``, or ``cancelled``."""
    delay: float | None = None
    """The delay until the next attempt, in seconds, if there is one."""
    error: str = ""
    digest: str = ""
    """A fingerprint of the object that the handler was called for: equal for equal objects."""
    replica: str = ""
    """The replica that has called it, if there are several."""

    def describe(self) -> str:
        again = f" in {self.delay:g}s" if self.outcome == "retried" and self.delay is not None else ""
        error = f": {self.error}" if self.error else ""
        retry = f" #{self.retry}" if self.retry else ""
        took = f" after {self.duration:g}s" if self.duration else ""
        place = f" of {self.place}" if self.resource else ""
        what = f"{self.replica}: {self.reason}" if self.replica else self.reason
        return f"{what} handler {self.id!r}{retry}{place} {self.outcome}{again}{took}{error} [{self.digest}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Write(Entry):
    """One change of one object."""

    author: str
    """The name of the user: ``operator`` for the operator, ``kubernetes-admin`` for the test."""
    type: str
    """``ADDED``, ``MODIFIED``, or ``DELETED``."""
    changes: tuple[str, ...] = ()
    """The changes, one line for each field."""

    def describe(self) -> str:
        what = "; ".join(self.changes) if self.type == "MODIFIED" else ""
        return f"{self.author} {_DOINGS[self.type]} {self.place}{': ' if what else ''}{what}"


_DOINGS: Mapping[str, str] = {"ADDED": "creates", "MODIFIED": "changes", "DELETED": "removes"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Note(Entry):
    """Anything else: the operator starts, crashes, exits; trouble begins or ends."""

    text: str

    def describe(self) -> str:
        return self.text


class Journal:
    """The entries in their order."""

    def __init__(self, get_time: Callable[[], float]) -> None:
        self._get_time = get_time
        self._entries: list[Entry] = []
        self.overlaps: set[tuple[str, str]] = set()
        """The pairs of calls that ran at once in threads: their order is not certain."""

    def __iter__(self) -> Iterator[Entry]:
        return iter([*self._entries])

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> Entry:
        return self._entries[index]

    def __str__(self) -> str:
        return "\n".join(map(str, self._entries))

    @property
    def now(self) -> float:
        """The time since the beginning of the simulation, in seconds."""
        return self._get_time()

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        self._entries.append(entry)

    def note(self, text: str) -> None:
        """Add a note about something that happens now, without an object."""
        self.add(Note(time=self.now, text=text))

    def get_calls(
        self,
        id: str | None = None,
        *,
        name: str | None = None,
        reason: str | None = None,
        replica: str | None = None,
    ) -> list[HandlerCall]:
        """
        Return the attempts of handlers; select them by the id of the handler, the name of the object, the reason of the
        call, and the name of the replica.
        """
        return [
            entry
            for entry in self._entries
            if isinstance(entry, HandlerCall)
            and id in (None, entry.id)
            and name in (None, entry.name)
            and reason in (None, entry.reason)
            and replica in (None, entry.replica)
        ]

    def get_writes(self, author: str | None = None, *, name: str | None = None) -> list[Write]:
        """Return the changes; select them by the user, and by the name of the object."""
        return [
            entry
            for entry in self._entries
            if isinstance(entry, Write) and author in (None, entry.author) and name in (None, entry.name)
        ]

    def get_timeline(self, place: tuple[str, str, str]) -> list[Entry]:
        """Return all entries about the object, and about the operator."""
        return [entry for entry in self._entries if isinstance(entry, Note) or entry.place == place]


def describe_changes(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Describe the changes of an object, one line for each field, without the fields that always change."""
    return tuple(describe_diff(_strip(before), _strip(after), _CHANGES, _show))


_CHANGES: Mapping[DiffOperation, str] = {
    DiffOperation.ADD: "+{path}={new}",
    DiffOperation.REMOVE: "-{path}",
    DiffOperation.CHANGE: "{path}: {old} -> {new}",
}


def describe_diff(
    before: Mapping[str, Any], after: Mapping[str, Any], words: Mapping[DiffOperation, str], show: Callable[[Any], str]
) -> Iterator[str]:
    """Describe each difference in the words for its operation, with ``{path}``, ``{old}``, and ``{new}``."""
    for operation, field, old, new in diff(before, after):
        yield words[operation].format(path=".".join(field), old=show(old), new=show(new))


def _strip(obj: Mapping[str, Any] | None) -> dict[str, Any]:
    if obj is None:
        return {}
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key not in _VOLATILE}
    return {**obj, "metadata": metadata}


def _show(value: Any) -> str:
    return shorten(codec.encode(value).decode(), _MAX_VALUE)


def shorten(text: str, limit: int) -> str:
    """Cut the text to this number of characters, and mark the cut."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


@dataclasses.dataclass(frozen=True)
class TimedLine:
    """One log message."""

    time: float
    """The time, in seconds since the beginning of the simulation."""
    level: int
    message: str
    error: BaseException | None
    """The error of the traceback, if there is one."""
    namespace: str
    name: str
    """The name of the object, if the message is about an object."""
    is_routine: bool = False
    """Whether it is a debug message of Kopf itself; the journal has the same facts in fewer words."""
    replica: str = ""
    """The replica of the message, if there are several."""

    def __str__(self) -> str:
        replica = f"{self.replica}: " if self.replica else ""
        error = f" {type(self.error).__name__}: {self.error}" if self.error is not None else ""
        return f"{self.time:12.3f}  [{logging.getLevelName(self.level).lower()}] {replica}{self.message}{error}"


class SimulatedLogs(logging.Handler):
    """All log messages of Kopf, and of the handlers through their loggers."""

    def __init__(self, get_time: Callable[[], float]) -> None:
        super().__init__(logging.DEBUG)
        self._get_time = get_time
        self.lines: list[TimedLine] = []

    def __iter__(self) -> Iterator[TimedLine]:
        return iter([*self.lines])

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, text: object) -> bool:
        return any(str(text) in line.message for line in self.lines)

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))

    def get_messages(self, level: int = logging.DEBUG, *, name: str | None = None) -> list[str]:
        """Return the messages of this level and higher, about objects of this name, or about all objects."""
        return [line.message for line in self.lines if line.level >= level and name in (None, line.name)]

    def emit(self, record: logging.LogRecord) -> None:
        ref = getattr(record, "k8s_ref", None) or {}
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(
            TimedLine(
                self._get_time(),
                record.levelno,
                record.getMessage(),
                error,
                ref.get("namespace") or "",
                ref.get("name") or "",
                is_routine=record.levelno <= logging.DEBUG and is_framework(record.pathname),
                replica=getattr(record, "replica", ""),
            )
        )

    @contextlib.contextmanager
    def taking(self) -> Iterator[None]:
        """Collect the log messages, down to the debug level."""
        logger = logging.getLogger("kopf")
        level = logger.level
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            logger.setLevel(level)
            logger.removeHandler(self)
