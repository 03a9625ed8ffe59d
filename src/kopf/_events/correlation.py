"""
Correlation: which of the reported events become new Kubernetes events, which ones are counted on the existing events,
and which ones are dropped, so that neither the cluster nor its users are flooded.

The rules are those of the recorder of events in the clients of Kubernetes itself (client-go, ``EventCorrelator``):

* The same message about the same object is counted (``count``) on the existing event if it was there recently.
* When there are too many different messages of the same kind about the same object, the excessive ones are combined:
  counted on one event that shows the latest of them.
* There are budgets of API calls, for every object and for the whole operator. What is over the budget is not posted;
  it is counted nevertheless, and the count is seen with the next one that is posted.

There is no I/O here, and the time is passed from outside.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from kopf._events.event_records import EventRecord, EventReport
from kopf._settings.settings import PostingSettings


class Dated(Protocol):
    """What is updated whenever it is used."""

    updated_at: float


V = TypeVar("V", bound=Dated)

CAPACITY = 2000
"""How many of the latest events and objects are remembered."""


class RecentItems(Generic[V]):
    """The recently used items, limited in time and number: what was not used for the longest time is forgotten."""

    def __init__(self) -> None:
        self._items: OrderedDict[Hashable, V] = OrderedDict()

    def obtain(self, key: Hashable, make: Callable[[], V]) -> V:
        """Find the item, or make it; consider it as used."""
        if key not in self._items:
            self._items[key] = make()
            if len(self._items) > CAPACITY:
                self._items.popitem(last=False)
        self._items.move_to_end(key)
        return self._items[key]

    def forget_until(self, moment: float) -> None:
        """Forget what was updated at that moment or before."""
        while self._items and next(iter(self._items.values())).updated_at <= moment:
            self._items.popitem(last=False)


_RESERVE = 0.5
"""Which part of the budgets is for the explicit events only."""


class EventBudgets:
    """
    The budgets of API calls for the events of one operator: for every object, and for all. Moments are in seconds.

    Events that are made of log messages may use only a half of both, so that they never supersede those which are
    posted explicitly. The limits are in ``settings.posting``; why there are any: see the decision on events in docs.
    """

    def __init__(self, settings: PostingSettings) -> None:
        self._settings = settings
        self._of_objects: RecentItems[TokenBucket] = RecentItems()
        self._total: TokenBucket | None = None

    def spend(self, obj: Hashable, now: float, *, is_explicit: bool) -> bool:
        """Take one call for this object out of both budgets; tell if it is possible."""
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
    """A budget that is refilled with time: so many calls at once, then so many per second."""

    __slots__ = ("tokens", "updated_at")

    def __init__(self, tokens: float, now: float) -> None:
        self.tokens = tokens
        self.updated_at = now

    def refill(self, rate: float, burst: float, now: float) -> None:
        """Add what has come since the last time: so many tokens per second, but no more than the burst."""
        self.tokens = min(burst, self.tokens + rate * max(0.0, now - self.updated_at))
        self.updated_at = now


COMBINED_PREFIX = "(combined from similar events): "


class EventCorrelator:
    """The memory of the recent events of one operator. All moments are in seconds, by the clock of the event loop."""

    def __init__(self, settings: PostingSettings) -> None:
        self._settings = settings
        self._records: RecentItems[EventRecord] = RecentItems()
        self._messages: RecentItems[_Messages] = RecentItems()
        self._budgets = EventBudgets(settings)

    def accept(self, report: EventReport, now: float) -> tuple[EventRecord, bool]:
        """Take one more report in; get its record, and whether it is to be posted now."""
        ref = report.ref
        obj: Hashable = (ref.get("uid"), ref.get("kind"), ref.get("namespace"), ref.get("name"))
        kind = (obj, report.type, report.reason)
        horizon = now - self._settings.aggregation_window
        self._messages.forget_until(horizon)
        self._records.forget_until(horizon)
        messages = self._messages.obtain(kind, _Messages)
        is_combined = not messages.add(report.message, now, limit=self._settings.similar_limit)
        key = (*kind, None if is_combined else report.message)
        record = self._records.obtain(key, lambda: EventRecord(report))
        record.note(report._replace(message=COMBINED_PREFIX + report.message) if is_combined else report, now)
        if record.is_pending:
            return record, False  # it will be posted anyway
        record.is_pending = self._budgets.spend(obj, now, is_explicit=report.is_explicit)
        return record, record.is_pending


class _Messages:
    """The different messages of one kind about one object."""

    __slots__ = ("_known", "updated_at")

    def __init__(self) -> None:
        self._known: set[str] = set()
        self.updated_at = 0.0

    def add(self, message: str, now: float, *, limit: int) -> bool:
        """Tell if the message is one of the few that are posted on their own."""
        self.updated_at = now
        if message not in self._known and len(self._known) < limit:
            self._known.add(message)
        return message in self._known
