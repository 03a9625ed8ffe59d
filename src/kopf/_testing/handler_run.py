"""What has come out of one call of a handler, as tests look at it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from kopf._values.ids import HandlerId
from kopf._values.patches import Patch
from kopf._values.reviews import ResponseStatus

HandlerEnding = Literal["succeeded", "retried", "failed", "ignored", "skipped", "cancelled", "allowed", "denied"]
"""
How a handler has ended: it is to be called again (``retried``), or it never will (``failed``); its error does not
count, as by ``ErrorsMode.IGNORED``; its filters are not for this object or change, so it was not called (``skipped``);
it was a daemon that exits only by force (``cancelled``); and the verdicts of the admission handlers.
"""


class LogLine(NamedTuple):
    """A message of a handler or about it, e.g. ``("INFO", "Hello!")``."""

    level: str
    message: str


class ReportedEvent(NamedTuple):
    """A Kubernetes event that was reported explicitly, e.g. ``("Normal", "Created", "All is well.")``."""

    type: str
    reason: str
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class HandlerRun:
    """How one call of a handler has ended, and what it has left behind."""

    id: HandlerId
    """The id of the handler, as in the logs and in the persisted state."""
    reason: str
    """For what it was called, in the words of the decorators: ``"create"``, ``"timer"``, ``"validate"``, …"""
    outcome: HandlerEnding
    """How it has ended."""
    result: Any = None
    """What the function has returned."""
    exception: BaseException | None = None
    """What the function has raised."""
    delay: float | None = None
    """In how many seconds it is to be called again; ``None`` if it is not."""
    patch: Patch
    """What is to be changed on the object, with the result of the handler in the status, where it goes there."""
    events: Sequence[ReportedEvent] = ()
    """The Kubernetes events by ``kopf.event()`` & Co."""
    logs: Sequence[LogLine] = ()
    """What went through the ``logger`` of the handler, of all levels, with the framework's own messages."""
    children: Sequence[HandlerRun] = ()
    """The calls of its sub-handlers, in their order; they have the same patch."""
    warnings: Sequence[str] = ()
    """The warnings of an admission handler."""
    denial: ResponseStatus | None = None
    """The message and the code for those whose change is denied."""
    body: dict[str, Any] = dataclasses.field(repr=False)
    """The object as the handler has seen it, with all that was added to make it complete."""

    @property
    def applied(self) -> dict[str, Any]:
        """The object with the patch applied, the transformation functions of it included."""
        return self.patch.apply_to(self.body)
