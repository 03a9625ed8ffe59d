"""
Rate limits of Kubernetes events: how many API calls may be made for them, at once and per second.

There is a budget for every object, and one for the whole operator. Events that are made of log messages may use only a
half of both, so that they never supersede those which are posted explicitly. The limits are in ``settings.posting``;
why there are any, see the decision on events in the docs.
"""

from __future__ import annotations

from collections.abc import Hashable

from kopf._events.recent import RecentItems
from kopf._settings.settings import PostingSettings

_RESERVE = 0.5
"""Which part of the budgets is for the explicit events only."""


class EventBudgets:
    """The budgets of API calls for the events of one operator. All moments are in seconds, of any clock."""

    def __init__(self, settings: PostingSettings) -> None:
        self._settings = settings
        self._of_objects: RecentItems[TokenBucket] = RecentItems()
        self._total: TokenBucket | None = None

    def spend(self, obj: Hashable, now: float, *, is_explicit: bool) -> bool:
        """Take one call for this object out of both budgets; tell if it is possible."""
        settings = self._settings
        if self._total is None:
            self._total = TokenBucket(settings.total_burst, now)
        bucket = self._of_objects.get(obj) or self._of_objects.put(obj, TokenBucket(settings.object_burst, now))
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
