"""
The explanation: all that is told of one object, as it goes to programs, too (``kopf explain --json``).

The times are in ISO 8601, with a time zone. What is unknown, is ``None``. New keys can be added; those that exist, keep
their meaning.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from kopf._values.records import FrozenRecord

Source = Literal["operator", "object"]
StateName = Literal["unknown", "paused", "handling", "queued", "waiting", "running", "idle"]
Verdict = Literal["called", "matching", "later", "rejected", "unknown"]
Outcome = Literal["pending", "running", "retrying", "succeeded", "failed"]


class Query(FrozenRecord, frozen=True):
    """Which object is asked about."""

    resource: str
    """As kubectl users write it."""
    namespace: str | None
    """``None`` is for the default one, where there is any."""
    name: str


class ObjectInfo(TypedDict):
    """Which object it is."""

    resource: str
    """``kopfexamples.v1.kopf.dev``"""
    kind: str | None
    namespace: str | None
    name: str
    uid: str | None
    version: str | None
    created: str | None
    deleted: str | None
    """Since when it is being deleted."""
    finalizers: list[str]
    """What blocks its deletion."""
    problem: str | None
    """Why it cannot be handled at all, e.g. because it cannot be decoded."""


class OperatorInfo(TypedDict):
    """The operator that was asked."""

    paused: list[str]
    """Why it is paused; it is not if there is nothing."""
    blocked: str | None
    """By whom its event loop is blocked: then, only a part of the truth is known."""


class StateInfo(TypedDict):
    """What is going on with the object in the operator."""

    name: StateName
    text: str
    position: int | None
    """In the queue; 1 is for the next one."""
    next: str | None
    """When the object is looked at again, if nothing changes until then."""
    handler: str | None
    """Which handler runs right now."""
    since: str | None
    errors: int
    """How many times in a row the object could not be handled because of the framework or the API."""
    unsaved: str | None
    """What is still to be saved on the object."""


class ChangeInfo(TypedDict):
    """One field that has changed since the object was last handled."""

    operation: str
    field: str
    old: str | None
    new: str | None


class HandledInfo(TypedDict):
    """What is known of the last handled state."""

    known: bool
    """Whether there is any; if not, the object is new."""
    reason: str
    """What has happened to the object since then: ``create``, ``update``, ``delete``, ``noop``, …"""
    text: str
    changes: list[ChangeInfo]
    more: int
    """How many changes are not shown."""


class Rejection(TypedDict):
    """A filter that does not let the object through."""

    filter: str
    """The option of the decorator: ``labels``, ``annotations``, ``field``, ``value``, ``old``, ``new``, ``when``."""
    key: str | None
    """The label, the annotation, the field."""
    expected: str
    actual: str | None
    error: str | None
    """If the callback of the filter has failed, so it is unknown whether the handler is for the object."""
    text: str


class ProgressInfo(TypedDict):
    """How far a handler has come with the current change."""

    handler: str
    outcome: Outcome
    attempts: int
    started: str | None
    next: str | None
    """When it is tried again."""
    error: str | None
    """The last error."""
    purpose: str | None
    """For what it was called: ``create``, ``update``, …"""
    saved: bool
    """Whether it is on the object; otherwise, it is only in the memory of the operator."""


class RunInfo(TypedDict):
    """The daemon or the timer of the object."""

    state: Literal["running", "waiting", "stopping", "stopped", "absent"]
    text: str
    attempts: int
    since: str | None
    next: str | None
    error: str | None


class HandlerInfo(TypedDict):
    """One declaration of a handler for the resource."""

    id: str
    kind: str
    """The decorator: ``create``, ``update``, ``field``, ``event``, ``daemon``, ``validate``, …"""
    function: str
    """Its name, and where it is."""
    verdict: Verdict
    text: str
    rejections: list[Rejection]
    progress: ProgressInfo | None
    subhandlers: list[ProgressInfo]
    run: RunInfo | None


class AttemptInfo(TypedDict):
    """One attempt of a handler."""

    handler: str
    at: str
    outcome: Outcome
    error: str | None
    next: str | None


class DecisionInfo(TypedDict):
    """One look of the operator at the object."""

    at: str
    reason: str
    """What has happened to the object: ``create``, …; ``look`` if it is not asked (there are only daemons & timers)."""
    text: str
    called: list[str]
    attempts: list[AttemptInfo]
    error: str | None
    """Of the framework or of the API."""
    next: str | None


class EventInfo(TypedDict):
    """A Kubernetes event about the object."""

    at: str | None
    type: str
    reason: str
    message: str
    count: int


class Explanation(TypedDict):
    """The whole answer."""

    schema: Literal["kopf.dev/explanation/v1"]
    at: str
    source: Source
    """Whether an operator has answered, or it was all found out from the object (and from the code if it was given)."""
    notes: list[str]
    """What could not be found out, and why."""
    object: ObjectInfo
    operator: OperatorInfo | None
    state: StateInfo
    handled: HandledInfo | None
    handlers: list[HandlerInfo]
    elsewhere: list[str]
    """The declarations that are not for this resource."""
    leftovers: list[ProgressInfo]
    """The progress of handlers that are not declared (anymore)."""
    decisions: list[DecisionInfo]
    """The latest first."""
    events: list[EventInfo]
    """The latest first."""
