"""
Correlation of events: a report becomes a new Kubernetes event, or is counted on an existing event, or is dropped, so
that events flood neither the cluster nor its users.

The rules are the same as in the event recorder of the Kubernetes clients (client-go, ``EventCorrelator``):

* The same message about the same object is counted (``count``) on the existing event, if that one is recent.
* If one object gets too many different messages of the same kind, the excessive ones are combined: one event counts
  them and shows the latest one.
* Every object and the whole operator have budgets of API calls. Reports over the budget are not posted, but they are
  counted, and the next posted event shows the count.

This module does no I/O, and gets the time from outside.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from kopf._events.event_records import EventRecord, EventReport
from kopf._settings.settings import PostingSettings
from kopf._values.lru_dict import LRUDict

CAPACITY = 2000
"""The number of the latest events and objects that are remembered."""

_RESERVE = 0.5
"""The share of the budgets that only explicit events may use."""


class EventBudgets:
    """
    The budgets of API calls for the events of one operator: per object, and in total. Moments are in seconds.

    Events that are made from log messages may use only a half of both, so that they never displace explicit events.
    The limits are in ``settings.posting``. For the reasons, see the decision record on events.
    """

    def __init__(self, settings: PostingSettings) -> None:
        self._settings = settings
        self._of_objects: LRUDict[Hashable, TokenBucket] = LRUDict(CAPACITY)
        self._total: TokenBucket | None = None

    def spend(self, obj: Hashable, now: float, *, is_explicit: bool) -> bool:
        """Take one call for this object out of both budgets. Return whether both allow it."""
        settings = self._settings
        if self._total is None:
            self._total = TokenBucket(settings.total_burst, now)
        bucket = self._of_objects.obtain(obj, lambda: TokenBucket(settings.object_burst, now))
        bucket.refill(settings.object_rate, settings.object_burst, now)
        self._total.refill(settings.total_rate, settings.total_burst, now)
        reserve = 0.0 if is_explicit else _RESERVE
        is_possible = bucket.tokens >= 1 + reserve * (settings.object_burst - 1) and (
            self._total.tokens >= 1 + reserve * (settings.total_burst - 1)
        )
        if is_possible:
            bucket.tokens -= 1
            self._total.tokens -= 1
        return is_possible


class TokenBucket:
    """A budget that refills over time: a burst of calls at once, then a number of calls per second."""

    __slots__ = ("tokens", "updated_at")

    def __init__(self, tokens: float, now: float) -> None:
        self.tokens = tokens
        self.updated_at = now

    def refill(self, rate: float, burst: float, now: float) -> None:
        """Add the tokens since the last update: ``rate`` per second, but no more than ``burst`` in total."""
        self.tokens = min(burst, self.tokens + rate * max(0.0, now - self.updated_at))
        self.updated_at = now


COMBINED_PREFIX = "(combined from similar events): "


class EventCorrelator:
    """The recent events of one operator. Moments are in seconds, by the clock of the event loop."""

    def __init__(self, settings: PostingSettings) -> None:
        self._settings = settings
        self._records: LRUDict[Hashable, EventRecord] = LRUDict(CAPACITY)
        self._messages: LRUDict[Hashable, _Messages] = LRUDict(CAPACITY)
        self._budgets = EventBudgets(settings)

    def accept(self, report: EventReport, now: float) -> tuple[EventRecord, bool]:
        """Accept a report. Return its record, and whether to post the record now."""
        ref = report.ref
        obj: Hashable = (ref.get("uid"), ref.get("kind"), ref.get("namespace"), ref.get("name"))
        kind = (obj, report.type, report.reason)
        horizon = now - self._settings.aggregation_window
        _forget_until(horizon, self._messages)
        _forget_until(horizon, self._records)
        messages = self._messages.obtain(kind, _Messages)
        is_combined = not messages.add(report.message, now, limit=self._settings.similar_limit)
        key = (*kind, None if is_combined else report.message)
        record = self._records.obtain(key, lambda: EventRecord(report))
        record.note(report._replace(message=COMBINED_PREFIX + report.message) if is_combined else report, now)
        if record.is_pending:
            return record, False  # it waits to be posted already
        record.is_pending = self._budgets.spend(obj, now, is_explicit=report.is_explicit)
        return record, record.is_pending


class _Messages:
    """The different messages of one kind about one object."""

    __slots__ = ("_known", "updated_at")

    def __init__(self) -> None:
        self._known: set[str] = set()
        self.updated_at = 0.0

    def add(self, message: str, now: float, *, limit: int) -> bool:
        """Note the message. Return whether it is one of the few that have events of their own."""
        self.updated_at = now
        if message not in self._known and len(self._known) < limit:
            self._known.add(message)
        return message in self._known


V = TypeVar("V", _Messages, EventRecord)


def _forget_until(moment: float, items: LRUDict[Hashable, V]) -> None:
    """Forget the items that were updated at that moment or before."""
    while items and next(iter(items.values())).updated_at <= moment:
        items.popitem(last=False)
