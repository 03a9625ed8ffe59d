"""
The dry run: one pass over an object as the operator would make it now, from the known facts to the decision.

It observes and decides with the code of the operator, but does nothing: it calls no handlers, and saves nothing.
Without an operator, the only facts are the object, and maybe the handlers from the files of the operator.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._controller.changes.decision import decide
from kopf._controller.changes.object_memory import Carried, ObjectMemory
from kopf._controller.changes.observation import Observation
from kopf._controller.changes.selection import Candidates
from kopf._controller.memos import Memo
from kopf._handlers.causes import ResourceCause, WatchingCause
from kopf._handlers.handlers import ChangingHandler, ResourceHandler, SpawningHandler, WatchingHandler
from kopf._handlers.registry import HandlersOfResource
from kopf._insight.explaining.explanation import AttemptInfo, DecisionInfo, OperatorInfo, RunInfo, StateInfo
from kopf._logging.loggers import LocalObjectLogger, ObjectLogger
from kopf._settings.settings import OperatorSettings
from kopf._storage.snapshots import Snapshots
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.records import FrozenRecord, field
from kopf._values.resources import Resource


class LiveFacts(FrozenRecord, frozen=True, kw_only=True):
    """The facts about the object from a running operator."""

    operator: OperatorInfo
    state: StateInfo
    runs: Mapping[str, RunInfo] = field(default_factory=dict)
    """The daemons & timers, by the ids of their handlers."""
    running: Mapping[str, AttemptInfo] = field(default_factory=dict)
    """The running attempts, by the ids of the handlers."""
    decisions: Sequence[DecisionInfo] = ()


class Facts(FrozenRecord, frozen=True, kw_only=True):
    """The facts for an explanation."""

    now: datetime.datetime
    resource: Resource
    obj: KubeObject
    handlers: Sequence[ResourceHandler] | None
    """The handlers for the resource, with admission handlers; ``None`` if they are unknown."""
    elsewhere: Sequence[ResourceHandler] = ()
    """The handlers for other resources."""
    settings: OperatorSettings
    snapshots: Snapshots
    memo: Any = field(default_factory=Memo)
    indices: Mapping[str, Any] = field(default_factory=dict)
    carried: Carried = field(default_factory=Carried)
    """The data that the operator carries from one pass over the object to the next one."""
    memory: ObjectMemory = field(default_factory=ObjectMemory)
    """The other memory of the object."""
    live: LiveFacts | None = None
    notes: Sequence[str] = ()


class _Setting:
    """The facts besides the object, in the form of the scope of a controller."""

    def __init__(self, facts: Facts, handlers: HandlersOfResource) -> None:
        self._facts = facts
        self.resource = facts.resource
        self.candidates = Candidates(handlers)
        self.snapshots = facts.snapshots
        self.persistence = facts.settings.persistence
        self.finalizer = facts.settings.persistence.finalizer
        self.indices = facts.indices
        self.detects_changes = bool(handlers.changing) or facts.handlers is None

    def now(self) -> datetime.datetime:
        return self._facts.now

    def make_logger(self, body: Body) -> ObjectLogger:
        return LocalObjectLogger(body=body, settings=self._facts.settings)

    def recall_memo(self, key: str) -> Any:
        return self._facts.memo

    defer_memo = recall_memo


class DryRun:
    """
    The observation of the object, and the decision.

    Raises :class:`UnreadableError` if the object cannot be decoded.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.handlers = HandlersOfResource.build(facts.handlers or ())
        setting = _Setting(facts, self.handlers)
        self.has_changes = setting.detects_changes
        """Whether the operator detects changes of the object."""
        if self.has_changes:
            facts.obj.check()
        self._observation = observation = Observation(setting, facts.obj, facts.carried, facts.memory)
        self.detection = observation.situation.detection
        self.saved = observation.situation.saved
        self.plan = decide(observation.situation, observation.choose)

    def make_cause(self, handler: ResourceHandler) -> ResourceCause:
        """Make the cause that the handler would get."""
        if isinstance(handler, ChangingHandler | SpawningHandler):
            return self._observation.get_background_cause(self.plan.reason)
        facts, body = self._facts, self._observation.body
        common = {
            "logger": self._observation.logger,
            "memo": facts.memo,
            "indices": facts.indices,
            "resource": facts.resource,
            "body": body,
            "patch": Patch(body=body),
        }
        if isinstance(handler, WatchingHandler):
            return WatchingCause(**common, type="MODIFIED")
        return ResourceCause(**common)
