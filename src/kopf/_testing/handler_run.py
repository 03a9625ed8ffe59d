"""The result of one call of a handler, for tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from kopf._values.ids import HandlerId
from kopf._values.patches import Patch
from kopf._values.reviews import ResponseStatus

HandlerEnding = Literal["succeeded", "retried", "failed", "ignored", "skipped", "cancelled", "allowed", "denied"]
"""
The outcome of a handler. ``retried``: it will be called again. ``failed``: it will never be called again. ``ignored``:
its error does not count, as in ``ErrorsMode.IGNORED``. ``skipped``: its filters reject the object or the change, so it
was not called. ``cancelled``: it is a daemon that exits only by force. ``allowed`` and ``denied`` are the verdicts of
admission handlers.
"""


class LogLine(NamedTuple):
    """A message of a handler or about it, e.g. ``("INFO", "Hello!")``."""

    level: str
    """The name of the level, e.g. ``WARNING``."""
    message: str
    """The formatted text."""


class ReportedEvent(NamedTuple):
    """A Kubernetes event that was reported explicitly, e.g. ``("Normal", "Created", "All is well.")``."""

    type: str
    """``Normal`` or ``Warning``, or as the handler has called it."""
    reason: str
    """The reason in one word, for machines."""
    message: str
    """The text for people."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HandlerRun:
    """The outcome of one call of a handler, and its effects."""

    id: HandlerId
    """The id of the handler, as in the logs and in the persisted state."""
    reason: str
    """The reason of the call, as the name of the decorator: ``"create"``, ``"timer"``, ``"validate"``, …"""
    outcome: HandlerEnding
    """The outcome, in one word."""
    result: Any = None
    """The value that the function has returned."""
    exception: BaseException | None = None
    """The error that the function has raised."""
    delay: float | None = None
    """The delay until the next call, in seconds; ``None`` if there is none."""
    patch: Patch
    """The changes of the object, including the result of the handler if Kopf stores it in the status."""
    events: Sequence[ReportedEvent] = ()
    """The Kubernetes events from ``kopf.event()`` and its siblings."""
    logs: Sequence[LogLine] = ()
    """All messages of the handler's ``logger``, of all levels, including the messages of Kopf."""
    children: Sequence[HandlerRun] = ()
    """The calls of its sub-handlers, in order; they share the patch."""
    warnings: Sequence[str] = ()
    """The warnings of an admission handler."""
    denial: ResponseStatus | None = None
    """The message and the code for the user whose change is denied."""
    body: dict[str, Any] = dataclasses.field(repr=False)
    """The object as the handler saw it, with the invented fields."""

    @property
    def applied(self) -> dict[str, Any]:
        """The object with the patch applied, including its transformation functions."""
        return self.patch.apply_to(self.body)
