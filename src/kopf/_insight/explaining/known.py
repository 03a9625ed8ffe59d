"""
What is known of an object: all that an explanation is made from.

Without an operator, it is the object, and maybe the handlers from the files of the operator; the rest is empty.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._controller.changes.carried import Carried
from kopf._controller.memos import Memo
from kopf._controller.object_memory import ObjectMemory
from kopf._handlers.handlers import ResourceHandler
from kopf._insight.explaining.explanation import AttemptInfo, DecisionInfo, OperatorInfo, RunInfo, StateInfo
from kopf._settings.settings import OperatorSettings
from kopf._storage.snapshots import Snapshots
from kopf._values.objects import KubeObject
from kopf._values.records import FrozenRecord, field
from kopf._values.resources import Resource


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
    carried: Carried = field(default_factory=Carried)
    """What the operator carries from one pass over the object to the next one."""
    memory: ObjectMemory = field(default_factory=ObjectMemory)
    """What it remembers of the object beyond that."""
    live: Live | None = None
    notes: Sequence[str] = ()
