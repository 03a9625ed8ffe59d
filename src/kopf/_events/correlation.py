"""
Correlation: which of the reported events become new Kubernetes events, which ones are counted on the existing events,
and which ones are dropped, so that neither the cluster nor its users are flooded.

The rules are those of the recorder of events in the clients of Kubernetes itself (client-go, ``EventCorrelator``):

* The same message about the same object is counted (``count``) on the existing event if it was there recently.
* When there are too many different messages of the same kind about the same object, the excessive ones are combined:
  counted on one event that shows the latest of them.
* There are budgets of API calls, see the rate limits. What is over the budget is not posted; it is counted
  nevertheless, and the count is seen with the next one that is posted.

There is no I/O here, and the time is passed from outside.
"""

from __future__ import annotations

from collections.abc import Hashable

from kopf._events.event_records import EventRecord, EventReport
from kopf._events.rate_limits import EventBudgets
from kopf._events.recent import RecentItems
from kopf._settings.settings import PostingSettings

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
        messages = self._messages.get(kind) or self._messages.put(kind, _Messages())
        is_combined = not messages.add(report.message, now, limit=self._settings.similar_limit)
        key = (*kind, None if is_combined else report.message)
        record = self._records.get(key) or self._records.put(key, EventRecord(report))
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
