"""
What the operator has decided and tried, as it is remembered: few small values for each look, and no live objects.

They are only made to what is told when somebody asks.
"""

from __future__ import annotations

import datetime

from kopf._insight.explaining.explanation import AttemptInfo, DecisionInfo, Outcome
from kopf._insight.explaining.showing import show_time


class Attempt:
    """One attempt of a handler."""

    __slots__ = ("at", "error", "handler", "next_at", "outcome")

    def __init__(self, handler: str, at: float) -> None:
        self.handler = handler
        self.at = at
        self.outcome: Outcome = "running"
        self.error: str | None = None
        self.next_at: float | None = None

    def describe(self) -> AttemptInfo:
        """Tell of it."""
        return AttemptInfo(
            handler=self.handler, at=_show(self.at) or "", outcome=self.outcome, error=self.error,
            next=_show(self.next_at),
        )


class Decision:
    """One look at the object."""

    __slots__ = ("at", "attempts", "called", "error", "next_at", "reason", "text")

    def __init__(self, at: float) -> None:
        self.at = at
        self.reason = "look"
        self.text = "looks at the object"
        self.called: tuple[str, ...] = ()
        self.attempts: tuple[Attempt, ...] = ()
        self.error: str | None = None
        self.next_at: float | None = None

    def describe(self) -> DecisionInfo:
        """Tell of it."""
        return DecisionInfo(
            at=_show(self.at) or "", reason=self.reason, text=self.text, called=[*self.called],
            attempts=[attempt.describe() for attempt in self.attempts], error=self.error, next=_show(self.next_at),
        )


def _show(timestamp: float | None) -> str | None:
    return None if timestamp is None else show_time(datetime.datetime.fromtimestamp(timestamp, datetime.UTC))
