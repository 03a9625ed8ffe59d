"""Records of Kubernetes events: what is reported by the operator, and what has become of it in the cluster."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, NamedTuple

from kopf._settings.settings import Delays, PostingSettings
from kopf._values.references import ObjectReference

MAX_MESSAGE_LENGTH = 1024
"""Longer messages are refused by Kubernetes (validation of core/v1 events)."""
MAX_REASON_LENGTH = 128
"""Longer reasons are refused, too."""
_CUT = "..."


class EventReport(NamedTuple):
    """An event as it is reported by those who want it to be posted."""

    ref: ObjectReference
    type: str
    reason: str
    message: str
    backoffs: Delays
    """The delays between the attempts to post it."""
    time: datetime.datetime
    is_explicit: bool = True
    """Whether it is reported as such, and is not made of a log message."""


class EventRecord:
    """One Kubernetes event: what it says, how many times it was reported, and how far it is posted."""

    __slots__ = ("count", "first", "is_busy", "is_pending", "latest", "name", "namespace", "updated_at")

    def __init__(self, report: EventReport) -> None:
        self.namespace = report.ref.get("namespace") or "default"
        self.count = 0
        self.first = report.time
        self.latest = report
        """How it was reported for the last time."""
        self.updated_at = 0.0
        self.name: str | None = None
        """The name in the cluster; ``None`` if it is not there yet."""
        self.is_pending = False
        """Whether it has changed since it was posted, and is to be posted."""
        self.is_busy = False
        """Whether it is being posted right now, so that others must not."""

    def note(self, report: EventReport, now: float) -> None:
        """Note that it was reported once more."""
        self.latest = report
        self.count += 1
        self.updated_at = now

    def make_event(self, settings: PostingSettings) -> Mapping[str, Any]:
        """Make the event as it is posted for the first time."""
        report = self.latest
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": self.namespace, "generateName": settings.event_name_prefix},
            "action": "Handling",
            "type": report.type,
            "reason": report.reason[:MAX_REASON_LENGTH],
            "message": _cut(report.message),
            "reportingComponent": settings.reporting_component,
            "reportingInstance": settings.reporting_instance,
            "source": {"component": settings.reporting_component},
            "involvedObject": report.ref,
            "firstTimestamp": _format(self.first),
            "lastTimestamp": _format(report.time),
            "eventTime": _format(self.first, timespec="microseconds"),
            "count": self.count,
        }

    def make_changes(self) -> Mapping[str, Any]:
        """Make a merge-patch of the event that is already posted."""
        report = self.latest
        return {"count": self.count, "lastTimestamp": _format(report.time), "message": _cut(report.message)}


def _format(moment: datetime.datetime, timespec: str = "seconds") -> str:
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def _cut(message: str) -> str:
    """Cut from the middle: the beginning says what it is about, the end says what is wrong."""
    if len(message) <= MAX_MESSAGE_LENGTH:
        return message
    half = (MAX_MESSAGE_LENGTH - len(_CUT)) // 2
    return message[:half] + _CUT + message[-half:]
