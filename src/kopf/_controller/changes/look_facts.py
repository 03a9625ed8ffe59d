"""
The facts of one look at an object: it is begun, decided about, and ended.

The attempts of handlers and the requests are in between, see the facts of those rooms.
"""

from __future__ import annotations

from kopf._controller.changes.decision import Plan
from kopf._controller.changes.detection import Detection
from kopf._facts.bus import Fact
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource


class LookBegun(Fact, frozen=True, eq=False, gc=False):
    """The object is looked at in this state."""

    is_frequent = True
    resource: Resource
    key: str
    obj: KubeObject
    at: float


class LookDecided(Fact, frozen=True, eq=False):
    """It is decided what to do about the object: which handlers are called, and what is saved then."""

    is_frequent = True
    resource: Resource
    key: str
    obj: KubeObject
    detection: Detection
    """What has happened to the object: the reason, and the difference, which is only made if it is asked for."""
    plan: Plan
    at: float


class LookEnded(Fact, frozen=True, eq=False):
    """The look is over: all that was to be done is done and saved, or something has failed."""

    is_frequent = True
    begun: LookBegun
    obj: KubeObject | None
    """The object after it; ``None`` if it is gone."""
    error: BaseException | None
    """What has failed, of the framework or of the API: errors of handlers are in the outcomes of their attempts."""
    delay: float | None
    """
    In how many seconds the object is looked at again; ``None`` if there is nothing to do until it changes, and after
    conflicts, which are no errors: its fresh state is awaited.
    """
    at: float
