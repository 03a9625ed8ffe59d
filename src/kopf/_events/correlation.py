"""
Correlation: which of the reported events become new Kubernetes events, which ones are counted on the existing events,
and which ones are dropped, so that neither the cluster nor its users are flooded.

The rules are those of the recorder of events in the clients of Kubernetes itself (client-go, ``EventCorrelator``):

* The same message about the same object is counted (``count``) on the existing event if it was there recently.
* When there are too many different messages of the same kind about the same object, the excessive ones are combined:
  counted on one event that shows the latest of them.
* There is a budget of API calls for every object, and one for the whole operator. What is over the budget is not
  posted; it is counted nevertheless, and the count is seen with the next one that is posted.

Events that are made of log messages may use only a half of the budgets, so that they never supersede those which are
posted explicitly. There is no I/O here, and the time is passed from outside.
"""

from __future__ import annotations

import datetime
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from kopf._settings.settings import Delays, PostingSettings
from kopf._values.references import ObjectReference

V = TypeVar("V")

COMBINED_PREFIX = "(combined from similar events): "

_CACHE_SIZE = 2000
"""How many of the latest events and objects are remembered."""


class EventRecord:
    """One Kubernetes event: what it says, how many times it was reported, and how far it is posted."""

    __slots__ = (
        "backoffs", "count", "first", "is_busy", "is_pending", "last", "message", "name", "namespace", "reason", "ref",
        "type", "updated_at",
    )

    def __init__(self, ref: ObjectReference, type: str, reason: str, backoffs: Delays) -> None:
        self.ref = ref
        self.type = type
        self.reason = reason
        self.backoffs = backoffs
        self.namespace = ref.get("namespace") or "default"
        self.message = ""
        self.count = 0
        self.first: datetime.datetime | None = None
        self.last: datetime.datetime | None = None
        self.updated_at = 0.0
        self.name: str | None = None
        """The name in the cluster; ``None`` if it is not there yet."""
        self.is_pending = False
        """Whether it has changed since it was posted, and is to be posted."""
        self.is_busy = False
        """Whether it is being posted right now, so that others must not."""

    def note(self, message: str, when: datetime.datetime, now: float) -> None:
        """Note that it was reported once more."""
        self.message = message
        self.count += 1
        self.first = self.first or when
        self.last = when
        self.updated_at = now


class EventCorrelator:
    """The memory of the recent events of one operator. All moments are in seconds, by the clock of the event loop."""

    def __init__(self, settings: PostingSettings) -> None:
        self._settings = settings
        self._records: _Cache[EventRecord] = _Cache()
        self._messages: _Cache[_Messages] = _Cache()
        self._buckets: _Cache[TokenBucket] = _Cache()
        self._bucket: TokenBucket | None = None

    def accept(
        self,
        ref: ObjectReference,
        *,
        type: str,
        reason: str,
        message: str,
        backoffs: Delays,
        when: datetime.datetime,
        now: float,
        is_explicit: bool,
    ) -> tuple[EventRecord, bool]:
        """Take one more report in; get its record, and whether it is to be posted now."""
        obj: Hashable = (ref.get("uid"), ref.get("kind"), ref.get("namespace"), ref.get("name"))
        kind = (obj, type, reason)
        window = self._settings.aggregation_window
        messages = self._messages.get(kind)
        if messages is None or now - messages.updated_at >= window:
            messages = self._messages.put(kind, _Messages())
        is_combined = not messages.add(message, now, limit=self._settings.similar_limit)
        key = (*kind, None if is_combined else message)
        record = self._records.get(key)
        if record is None or now - record.updated_at >= window:
            record = self._records.put(key, EventRecord(ref, type, reason, backoffs))
        record.note(COMBINED_PREFIX + message if is_combined else message, when, now)
        if record.is_pending:
            return record, False  # it will be posted anyway
        record.is_pending = self._spend(obj, now, is_explicit=is_explicit)
        return record, record.is_pending

    def _spend(self, obj: Hashable, now: float, *, is_explicit: bool) -> bool:
        """Take an API call out of both budgets; tell if it is possible."""
        settings = self._settings
        if self._bucket is None:
            self._bucket = TokenBucket(settings.total_burst, now)
        bucket = self._buckets.get(obj) or self._buckets.put(obj, TokenBucket(settings.object_burst, now))
        bucket.refill(settings.object_rate, settings.object_burst, now)
        self._bucket.refill(settings.total_rate, settings.total_burst, now)
        reserve = 0.0 if is_explicit else 0.5
        is_possible = bucket.tokens >= 1 + reserve * (settings.object_burst - 1) and (
            self._bucket.tokens >= 1 + reserve * (settings.total_burst - 1)
        )
        if is_possible:
            bucket.tokens -= 1
            self._bucket.tokens -= 1
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


class _Cache(Generic[V]):
    """The recently used items; the others are forgotten."""

    def __init__(self) -> None:
        self._items: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        item = self._items.get(key)
        if item is not None:
            self._items.move_to_end(key)
        return item

    def put(self, key: Hashable, item: V) -> V:
        self._items[key] = item
        self._items.move_to_end(key)
        if len(self._items) > _CACHE_SIZE:
            self._items.popitem(last=False)
        return item
