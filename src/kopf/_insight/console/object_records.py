"""What the console remembers of one object: a row of the list, and its timeline."""

from __future__ import annotations

from kopf._insight.console.texts import cut
from kopf._values.resources import Resource

MAX_NOTE = 200
"""How much of a note is shown, in characters."""
BASE_SIZE = 700
"""About how much memory a record takes without its timeline, in bytes."""
ENTRY_SIZE = 48
"""How much memory an entry takes beside its own bytes."""


class Kind:
    """The objects of one resource."""

    __slots__ = ("is_secret", "number", "records", "resource", "row")

    def __init__(self, number: int, resource: Resource, *, is_secret: bool) -> None:
        self.number = number
        self.resource = resource
        self.is_secret = is_secret
        self.records: dict[str, ObjectRecord] = {}
        """The objects by their keys."""
        self.row = [number, repr(resource), resource.kind or resource.plural, is_secret]
        """As it goes to the page."""


class ObjectRecord:
    """
    One object. Nothing of it is kept but the names and the texts to be shown.

    Large because there can be many of them: several smaller ones would take more memory.
    """

    __slots__ = (
        "calling", "entries", "failed", "id", "key", "kind", "name", "namespace", "next_at", "own_write", "problem",
        "rest", "rest_note", "seen", "since", "size", "work",
    )  # fmt: skip

    def __init__(self, id: int, kind: Kind, key: str, namespace: str | None, name: str) -> None:
        self.id = id
        self.kind = kind
        self.key = key
        self.namespace = namespace
        self.name = name
        self.rest = "idle"
        """The state apart from the work: idle, retrying, failed, gone."""
        self.rest_note = ""
        """What is to be known of that state, e.g. the latest error."""
        self.work = ""
        """Whether it is queued or handling, as of the latest survey; empty if neither."""
        self.calling = ""
        """The running handler."""
        self.seen = 0.0
        """When its latest event has come, in seconds since the epoch."""
        self.since = 0
        """Since when it is in the state, in milliseconds since the epoch."""
        self.next_at = 0
        """When it is looked at again, if that is planned, in the same way."""
        self.problem = ""
        """The latest error of the current change, or of the latest one."""
        self.failed = False
        """Whether a handler has failed for good in the latest change."""
        self.own_write: tuple[str, float] | None = None
        """The version of our latest write that has not come on the stream yet, and when it was made."""
        self.entries: list[bytes] = []
        """The timeline: serialised entries, the oldest ones first."""
        self.size = BASE_SIZE
        """About how much memory it takes, in bytes."""

    @property
    def state(self) -> str:
        """What is going on with it."""
        return self.work if self.work and self.rest != "gone" else self.rest

    @property
    def note(self) -> str:
        """What is to be known of the state: the running handler, or the latest error."""
        if self.work != "handling" or self.rest == "gone":
            return self.rest_note
        return cut(f"calling {self.calling}" if self.calling else self.problem, MAX_NOTE)

    def make_row(self) -> list[object]:
        """What the list of the objects shows."""
        return [
            self.id, self.kind.number, self.namespace or "", self.name, self.state, self.since, self.next_at, self.note
        ]
