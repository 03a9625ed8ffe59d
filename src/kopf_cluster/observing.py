"""
Observations: what those in this process are told of every change of the objects, as soon as it is made.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.objects import open_record
from kopf_cluster.requests import asking
from kopf_cluster.store.storage import Change, ChangeType


class Observation(msgspec.Struct, frozen=True):
    """One change of one object."""

    user: str
    """Who has changed it; ``system:kube-controller-manager`` for what happens on its own."""
    kind: Kind
    change: Change

    @property
    def type(self) -> ChangeType:
        return self.change.type

    @property
    def resource(self) -> str:
        """The plural name with the group, e.g. ``deployments.apps``."""
        return self.kind.bucket

    @property
    def namespace(self) -> str:
        """Nothing for cluster-wide objects."""
        return self.change.record.key[0]

    @property
    def name(self) -> str:
        return self.change.record.key[1]

    @property
    def before(self) -> Obj | None:
        """The object before the change; none if it was not there."""
        return None if self.change.previous is None else open_record(self.kind, self.change.previous)

    @property
    def after(self) -> Obj | None:
        """The object after the change; none if it is gone."""
        return None if self.type == "DELETED" else open_record(self.kind, self.change.record)


Observer: TypeAlias = Callable[[Observation], None]


def make_observation(kind: Kind, change: Change) -> Observation:
    """Describe a change, in the context of whose request it is made."""
    return Observation(asking.get().name, kind, change)
