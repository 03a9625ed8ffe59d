"""
What is known of an object: all that an explanation is made from.

Without an operator, it is the object, and maybe the handlers from the files of the operator; the rest is empty.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._controller.changes.decision import BackgroundActivity
from kopf._controller.changes.handler_state import HandlerState
from kopf._controller.memos import Memo
from kopf._handlers.handlers import ResourceHandler
from kopf._insight.explaining.explanation import AttemptInfo, DecisionInfo, OperatorInfo, RunInfo, StateInfo
from kopf._settings.settings import OperatorSettings
from kopf._storage.snapshots import Snapshots
from kopf._values.ids import HandlerId
from kopf._values.objects import KubeObject
from kopf._values.reasons import Reason
from kopf._values.records import FrozenRecord, field
from kopf._values.resources import Resource


class Remembered(FrozenRecord, frozen=True, kw_only=True):
    """What the operator remembers of the object between the looks at it."""

    initial: bool = False
    """Whether the object existed before the operator started, and is not resumed yet."""
    states: Mapping[HandlerId, HandlerState] = field(default_factory=dict)
    """The progress as it is known better than from the object."""
    unsaved: Mapping[HandlerId, HandlerState] | None = None
    """That of it which could not be saved; ``None`` if there is nothing at all to be saved."""
    unsaved_reason: Reason | None = None
    called: frozenset[HandlerId] | None = None
    fingerprint: int | None = None
    """In which state the object was handled by this process, if it was."""
    is_released: bool = False
    """Whether all was done for the object that is being deleted."""
    errors: int = 0
    removals: int = 0
    background: BackgroundActivity | None = None


class Live(FrozenRecord, frozen=True, kw_only=True):
    """What a running operator has told of the object."""

    operator: OperatorInfo
    state: StateInfo
    runs: Mapping[str, RunInfo] = field(default_factory=dict)
    """Daemons & timers, by the ids of their handlers."""
    running: Mapping[str, AttemptInfo] = field(default_factory=dict)
    """The attempts that are being made right now, by the ids of the handlers."""
    decisions: Sequence[DecisionInfo] = ()


class Known(FrozenRecord, frozen=True, kw_only=True):
    """All that is known."""

    now: datetime.datetime
    resource: Resource
    obj: KubeObject
    handlers: Sequence[ResourceHandler] | None
    """Those for the resource, admission handlers included; ``None`` if it is unknown which there are."""
    elsewhere: Sequence[ResourceHandler] = ()
    """Those for other resources."""
    settings: OperatorSettings
    snapshots: Snapshots
    memo: Any = field(default_factory=Memo)
    indices: Mapping[str, Any] = field(default_factory=dict)
    remembered: Remembered = field(default_factory=Remembered)
    live: Live | None = None
    notes: Sequence[str] = ()
