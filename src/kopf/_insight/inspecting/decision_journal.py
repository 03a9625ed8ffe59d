"""
The memory of what the operator has decided and tried lately, for each of its objects.

It is bounded: the latest looks at an object, of those objects that were looked at lately. It keeps texts, no objects.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

from kopf._insight.explaining.explanation import AttemptInfo, DecisionInfo
from kopf._insight.inspecting.decisions import Attempt, Decision
from kopf._values.resources import Resource

MAX_OBJECTS = 1000
MAX_DECISIONS = 10

ObjectKey = tuple[Resource, str]


class ObjectRecord:
    """What is remembered of one object."""

    __slots__ = ("decisions", "errors", "is_looked_at", "name", "namespace")

    def __init__(self) -> None:
        self.namespace: str | None = None
        self.name = ""
        self.decisions: list[Decision] = []  # the oldest ones first
        self.is_looked_at = False
        """Whether the latest decision is of a look that is not over."""
        self.errors: dict[str, Attempt] = {}
        """The last attempts of those handlers which have failed in them."""

    def add(self, decision: Decision) -> None:
        """Remember one more decision, and forget the oldest one if there are too many."""
        self.decisions.append(decision)
        if len(self.decisions) > MAX_DECISIONS:
            del self.decisions[0]


class DecisionJournal:
    """The memory of one operator. It is filled in its event loop."""

    def __init__(self) -> None:
        self._records: collections.OrderedDict[ObjectKey, ObjectRecord] = collections.OrderedDict()
        self._running: dict[ObjectKey, dict[str, Attempt]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def get_running(self, resource: Resource, key: str) -> dict[str, AttemptInfo]:
        """Get the attempts for the object that are being made right now, by the ids of their handlers."""
        running = self._running.get((resource, key), {})
        return {handler: attempt.describe() for handler, attempt in [*running.items()]}

    def get_decisions(self, resource: Resource, key: str) -> Sequence[DecisionInfo]:
        """Get the latest decisions about the object, the latest first."""
        record = self._records.get((resource, key))
        return [] if record is None else [decision.describe() for decision in reversed([*record.decisions])]

    def get_error(self, resource: Resource, key: str, handler: str) -> AttemptInfo | None:
        """Get the last attempt of the handler if it has failed."""
        record = self._records.get((resource, key))
        attempt = None if record is None else record.errors.get(handler)
        return None if attempt is None else attempt.describe()

    def find_key(self, resource: Resource, namespace: str | None, name: str) -> str | None:
        """Find the object by its name, if it is remembered; the latest one, if there were several."""
        for known, key in reversed([*self._records]):
            record = self._records.get((known, key))
            if known == resource and record is not None and (record.namespace, record.name) == (namespace, name):
                return key
        return None

    def begin(self, key: ObjectKey, attempt: Attempt) -> None:
        """An attempt for the object begins."""
        running = self._running.get(key)
        if running is None:
            self._running[key] = {attempt.handler: attempt}
        else:
            running[attempt.handler] = attempt

    def end(self, key: ObjectKey, handler: str) -> Attempt | None:
        """The attempt is over: get it, if it is known."""
        running = self._running.get(key)
        if running is None:
            return None
        attempt = running.pop(handler, None)
        if not running:
            del self._running[key]
        return attempt

    def get(self, resource: Resource, key: str) -> ObjectRecord | None:
        """Get what is remembered of the object."""
        return self._records.get((resource, key))

    def obtain(self, resource: Resource, key: str) -> ObjectRecord:
        """The same, or a new one; then, the one is forgotten that was not needed for the longest time."""
        record = self._records.get((resource, key))
        if record is None:
            record = self._records[resource, key] = ObjectRecord()
            if len(self._records) > MAX_OBJECTS:
                self._records.popitem(last=False)
        else:
            self._records.move_to_end((resource, key))
        return record
