"""
A look at an object, as the operator itself would look at it now: what has happened to it, and what is to be done.

It is the observation and the decision of the operator, made by its own code, but nothing follows from it: nothing is
called, saved, noted.
"""

from __future__ import annotations

import datetime
from typing import Any

from kopf._controller.changes.decision import decide
from kopf._controller.changes.observation import Observation
from kopf._controller.changes.selection import Candidates
from kopf._handlers.causes import ChangingCause, ResourceCause, WatchingCause
from kopf._handlers.handlers import ResourceHandler, WatchingHandler
from kopf._handlers.registry import HandlersOfResource
from kopf._insight.explaining.known import Known
from kopf._logging.loggers import LocalObjectLogger, ObjectLogger
from kopf._values.bodies import Body
from kopf._values.patches import Patch
from kopf._values.raw_events import LazyEvent
from kopf._values.reasons import Reason


class _Setting:
    """What is known besides the object, in the way of the scope of a controller."""

    def __init__(self, known: Known, handlers: HandlersOfResource) -> None:
        self._known = known
        self.resource = known.resource
        self.candidates = Candidates(handlers)
        self.snapshots = known.snapshots
        self.persistence = known.settings.persistence
        self.finalizer = known.settings.persistence.finalizer
        self.indices = known.indices
        self.detects_changes = bool(handlers.changing) or known.handlers is None

    def now(self) -> datetime.datetime:
        return self._known.now

    def make_logger(self, body: Body) -> ObjectLogger:
        return LocalObjectLogger(body=body, settings=self._known.settings)

    def recall_memo(self, key: str) -> Any:
        return self._known.memo

    defer_memo = recall_memo


class ObjectLook:
    """
    What there is to be seen.

    Raises :class:`UnreadableError` if the object cannot be decoded.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self.handlers = HandlersOfResource.build(known.handlers or ())
        setting = _Setting(known, self.handlers)
        self.has_changes = setting.detects_changes
        """Whether it matters what has changed in the object."""
        if self.has_changes:
            known.obj.check()
        self._observation = observation = Observation(setting, known.obj, known.carried, known.memory)
        self.detection = observation.situation.detection
        self.saved = observation.situation.saved
        self.plan = decide(observation.situation, observation.choose)

    def make_changing_cause(self, reason: Reason) -> ChangingCause:
        """What the handlers of changes would get for this reason."""
        return self._observation.get_cause(reason)

    def make_cause(self, handler: ResourceHandler | None = None) -> ResourceCause:
        """What the other handlers would get."""
        known, body = self._known, self._observation.body
        common = {
            "logger": LocalObjectLogger(body=body, settings=known.settings),
            "memo": known.memo,
            "indices": known.indices,
            "resource": known.resource,
            "body": body,
            "patch": Patch(body=body),
        }
        if isinstance(handler, WatchingHandler):
            return WatchingCause(**common, event=LazyEvent("MODIFIED", body.object))
        return ResourceCause(**common)
