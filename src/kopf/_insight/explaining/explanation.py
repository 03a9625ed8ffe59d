"""
The explanation of one object as data, also for programs (``kopf explain --json``).

The times are in ISO 8601, with a time zone. Unknown values are ``None``. New keys can be added; the existing keys keep
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
    """A question about an object."""

    resource: str
    """The resource as for kubectl: ``kopfexamples``, ``kex``, ``kopfexamples.v1.kopf.dev``."""
    namespace: str | None
    """The namespace; ``None`` is for the default one, if any."""
    name: str


class ObjectInfo(TypedDict):
    """The identity of the object."""

    resource: str
    """``kopfexamples.v1.kopf.dev``"""
    kind: str | None
    namespace: str | None
    name: str
    uid: str | None
    version: str | None
    created: str | None
    deleted: str | None
    """The time since which it is being deleted."""
    finalizers: list[str]
    """The finalizers, which block its deletion."""
    problem: str | None
    """The reason why it cannot be handled at all, e.g. because it cannot be decoded."""


class OperatorInfo(TypedDict):
    """The operator that was asked."""

    paused: list[str]
    """The reasons of its pause; empty if it is not paused."""
    blocked: str | None
    """The code that blocks its event loop, if any: then, the explanation is incomplete."""


class StateInfo(TypedDict):
    """The state of the object in the operator."""

    name: StateName
    text: str
    position: int | None
    """The position in the queue; 1 is for the next object."""
    next: str | None
    """The time of the next pass over the object, if nothing changes until then."""
    handler: str | None
    """The handlers that run right now."""
    since: str | None
    errors: int
    """The number of passes in a row that have failed because of the framework or the API."""
    unsaved: str | None
    """The results that are not saved on the object yet."""


class ChangeInfo(TypedDict):
    """One field that has changed since the object was last handled."""

    operation: str
    field: str
    old: str | None
    new: str | None


class HandledInfo(TypedDict):
    """The last handled state, and the changes since then."""

    known: bool
    """Whether there is a last handled state; if not, the object is new."""
    reason: str
    """The reason of handlers for the changes: ``create``, ``update``, ``delete``, ``noop``, …"""
    text: str
    changes: list[ChangeInfo]
    more: int
    """The number of changes that are not shown."""


class Rejection(TypedDict):
    """A filter that rejects the object."""

    filter: str
    """The option of the decorator: ``labels``, ``annotations``, ``field``, ``value``, ``old``, ``new``, ``when``."""
    key: str | None
    """The label, the annotation, the field."""
    expected: str
    actual: str | None
    error: str | None
    """The error of the callback of the filter, if it has failed: it is unknown then if the handler matches."""
    text: str


class ProgressInfo(TypedDict):
    """The progress of a handler with the current change."""

    handler: str
    outcome: Outcome
    attempts: int
    started: str | None
    next: str | None
    """The time of the next attempt."""
    error: str | None
    """The last error."""
    purpose: str | None
    """The reason of its calls: ``create``, ``update``, …"""
    saved: bool
    """Whether the progress is on the object; otherwise, it is only in the memory of the operator."""


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
    """The name of the function, with its file and line."""
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
    """One pass of the operator over the object."""

    at: str
    reason: str
    """The reason of handlers: ``create``, …; ``look`` if changes are not detected (there are only daemons & timers)."""
    text: str
    called: list[str]
    attempts: list[AttemptInfo]
    error: str | None
    """The error of the framework or of the API."""
    next: str | None


class EventInfo(TypedDict):
    """A Kubernetes event about the object."""

    at: str | None
    type: str
    reason: str
    message: str
    count: int


class Explanation(TypedDict):
    """The whole explanation."""

    schema: Literal["kopf.dev/explanation/v1"]
    at: str
    source: Source
    """The source: a running operator, or the object alone (with the code of the operator, if it was given)."""
    notes: list[str]
    """The facts that are unknown, and why."""
    object: ObjectInfo
    operator: OperatorInfo | None
    state: StateInfo
    handled: HandledInfo | None
    handlers: list[HandlerInfo]
    elsewhere: list[str]
    """The handlers for other resources."""
    leftovers: list[ProgressInfo]
    """The progress of handlers that are not declared (anymore)."""
    decisions: list[DecisionInfo]
    """The latest passes of the operator, the latest first."""
    events: list[EventInfo]
    """The Kubernetes events about the object, the latest first."""
