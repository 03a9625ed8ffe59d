"""Records of Kubernetes events: the reports of the operator, and the resulting events in the cluster."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, NamedTuple

from kopf._settings.settings import Delays, PostingSettings
from kopf._values.references import ObjectReference

MAX_MESSAGE_LENGTH = 1024
"""Kubernetes refuses longer messages (validation of core/v1 events), in bytes of UTF-8."""
MAX_REASON_LENGTH = 128
"""Kubernetes refuses longer reasons, too."""
_CUT = "..."


class EventReport(NamedTuple):
    """A report of something that should become a Kubernetes event."""

    ref: ObjectReference
    type: str
    reason: str
    message: str
    backoffs: Delays
    """The delays between the attempts to post it, in seconds."""
    time: datetime.datetime
    is_explicit: bool = True
    """Whether it was reported as an event, not made from a log message."""


class EventRecord:
    """One Kubernetes event: its content, the number of its reports, and the state of its posting."""

    __slots__ = ("count", "first", "is_busy", "is_pending", "latest", "name", "namespace", "updated_at")

    def __init__(self, report: EventReport) -> None:
        self.namespace = report.ref.get("namespace") or "default"
        self.count = 0
        self.first = report.time
        self.latest = report
        """The latest report."""
        self.updated_at = 0.0
        self.name: str | None = None
        """The name in the cluster; ``None`` until the event is created."""
        self.is_pending = False
        """Whether it has changed since it was posted, and so waits to be posted."""
        self.is_busy = False
        """Whether it is being posted right now; nobody else may post it meanwhile."""

    def note(self, report: EventReport, now: float) -> None:
        """Note another report."""
        self.latest = report
        self.count += 1
        self.updated_at = now

    def make_event(self, settings: PostingSettings) -> Mapping[str, Any]:
        """Make the body of the new event."""
        report = self.latest
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": self.namespace, "generateName": settings.event_name_prefix},
            "action": "Handling",
            "type": report.type,
            "reason": _cut_end(report.reason) or report.type,  # servers refuse an empty one
            "message": _cut(report.message),
            "reportingComponent": settings.reporting_component,
            "reportingInstance": settings.reporting_instance,
            "source": {"component": settings.reporting_component},
            "involvedObject": report.ref,
            "firstTimestamp": _format(self.first),
            "lastTimestamp": _format(report.time),
            "count": self.count,
        }
        if report.ref.get("namespace"):  # Kubernetes 1.20 refuses it for cluster-scoped objects
            event["eventTime"] = _format(self.first, timespec="microseconds")
        return event

    def make_changes(self) -> Mapping[str, Any]:
        """Make the merge-patch for an event that exists already."""
        report = self.latest
        return {"count": self.count, "lastTimestamp": _format(report.time), "message": _cut(report.message)}


def _format(moment: datetime.datetime, timespec: str = "seconds") -> str:
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def _cut_end(reason: str) -> str:
    return reason.encode(errors="surrogatepass")[:MAX_REASON_LENGTH].decode(errors="ignore")


def _cut(message: str) -> str:
    """Cut the middle out: the beginning says what the message is about, the end says what is wrong."""
    encoded = message.encode(errors="surrogatepass")
    if len(encoded) <= MAX_MESSAGE_LENGTH:
        return message
    half = (MAX_MESSAGE_LENGTH - len(_CUT)) // 2
    # The cuts can go through characters; their halves are left out.
    return encoded[:half].decode(errors="ignore") + _CUT + encoded[-half:].decode(errors="ignore")
