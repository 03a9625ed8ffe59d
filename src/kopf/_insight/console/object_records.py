"""What the console remembers of one object: a row of the list, and its timeline."""

from __future__ import annotations

from kopf._values.resources import Resource

BASE_SIZE = 700
"""About how much memory a record takes without its timeline, in bytes."""
ENTRY_SIZE = 48
"""How much memory an entry takes beside its own bytes."""


class Kind:
    """The objects of one resource."""

    __slots__ = ("is_secret", "number", "resource", "row")

    def __init__(self, number: int, resource: Resource, *, is_secret: bool) -> None:
        self.number = number
        self.resource = resource
        self.is_secret = is_secret
        self.row = [number, repr(resource), resource.kind or resource.plural, is_secret]
        """As it goes to the page."""


class ObjectRecord:
    """
    One object. Nothing of it is kept but the names and the texts to be shown.

    Large because there can be many of them: several smaller ones would take more memory.
    """

    __slots__ = (
        "entries",
        "failed",
        "id",
        "key",
        "kind",
        "name",
        "namespace",
        "next_at",
        "note",
        "own_write",
        "problem",
        "since",
        "size",
        "state",
    )

    def __init__(self, id: int, kind: Kind, key: str, namespace: str | None, name: str) -> None:
        self.id = id
        self.kind = kind
        self.key = key
        self.namespace = namespace
        self.name = name
        self.state = "idle"
        self.since = 0
        """Since when it is in the state, in milliseconds since the epoch."""
        self.next_at = 0
        """When it is looked at again, if that is planned, in the same way."""
        self.note = ""
        """What is to be known of the state: the running handlers, or the latest error."""
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

    def make_row(self) -> list[object]:
        """What the list of the objects shows."""
        return [
            self.id, self.kind.number, self.namespace or "", self.name, self.state, self.since, self.next_at, self.note
        ]
