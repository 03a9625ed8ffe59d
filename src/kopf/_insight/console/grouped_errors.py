"""Errors, grouped by their causes: what fails, how, and where; how often, and for which objects."""

from __future__ import annotations

import collections
import re
import traceback

from kopf._insight.backlog import Backlog
from kopf._insight.console.history import ObjectRecord
from kopf._insight.console.texts import WITHHELD, cut, show_error

MAX_GROUPS = 200
_MAX_EXAMPLES = 5
_MAX_FRAMES = 50
_VARYING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


class Group:
    """The errors of one cause."""

    __slots__ = ("count", "examples", "first", "last", "place", "text", "who")

    def __init__(self, who: str, text: str, place: str) -> None:
        self.who = who
        """Which handler has failed, or what else."""
        self.text = text
        """The latest one."""
        self.place = place
        """Where in the code it comes from."""
        self.count = 0
        self.first = self.last = 0
        self.examples: dict[int, str] = {}
        """The latest objects: their ids and names."""

    def describe(self) -> dict[str, object]:
        """As it goes to the page."""
        return {
            "who": self.who,
            "text": self.text,
            "place": self.place,
            "count": self.count,
            "first": self.first,
            "last": self.last,
            "examples": [*self.examples.items()],
        }


class GroupedErrors:
    """All groups, of which the longest unseen ones are forgotten."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._groups: collections.OrderedDict[tuple[str, str, str], Group] = collections.OrderedDict()

    def add(self, who: str, error: BaseException, record: ObjectRecord) -> None:
        """Count the error."""
        text = f"{type(error).__name__}: {WITHHELD}" if record.kind.is_secret else show_error(error)
        place = _locate(error)
        key = who, _VARYING.sub("#", text), place
        group = self._groups.get(key)
        now = int(self._backlog.now * 1000)
        if group is None:
            group = self._groups[key] = Group(who, text, place)
            group.first = now
            if len(self._groups) > MAX_GROUPS:
                self._groups.popitem(last=False)
        self._groups.move_to_end(key)
        group.text, group.last = text, now
        group.count += 1
        group.examples.pop(record.id, None)
        group.examples[record.id] = f"{record.namespace}/{record.name}" if record.namespace else record.name
        if len(group.examples) > _MAX_EXAMPLES:
            del group.examples[next(iter(group.examples))]

    def describe(self) -> list[dict[str, object]]:
        """As they go to the page: the latest ones first."""
        return [group.describe() for group in reversed([*self._groups.values()])]


def _locate(error: BaseException) -> str:
    """Find the innermost line of the code that is not of a library."""
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), limit=-_MAX_FRAMES, lookup_lines=False
    )
    own = [frame for frame in frames if not any(part in frame.filename for part in _LIBRARIES)] or [*frames]
    return cut(f"{own[-1].filename}:{own[-1].lineno}, in {own[-1].name}") if own else ""


_LIBRARIES = ("site-packages", "/lib/python", "/kopf/_", "<frozen")
