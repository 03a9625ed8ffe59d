"""
Calls of handlers as they are recorded: the handler, the object and its version, and the outcome.

The causes of calls come from requests and streams, which are recorded, too. So a replay does not need the calls to run
the operator; it needs them for the exact times, and to notice other calls of a changed operator.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import Any

from kopf._controller.instruments import Execute
from kopf._handlers.attempts import Attempt, Outcome, name_outcome, name_reason
from kopf._handlers.causes import ActivityCause, Cause, ResourceCause, WebhookCause
from kopf._handlers.executor import Surroundings
from kopf._handlers.handlers import Handler
from kopf._replay.randomness import Randomness
from kopf._replay.recording_writer import Recorder
from kopf._values.reasons import Activity
from kopf._virtual_time.journal import ObjectPlace

_EXTERNAL = {Activity.AUTHENTICATION, Activity.PROBE}
"""The activities that depend on credentials or on health checks: they are neither recorded nor replayed."""


_BACKGROUND = {"timer", "daemon"}
in_background: ContextVar[bool] = ContextVar("in_background", default=False)
"""Whether the current task is of a timer or a daemon: these send their patches in tasks of their own."""


async def record_call(
    recorder: Recorder,
    randomness: Randomness | None,
    execute: Execute,
    handler: Handler,
    cause: Cause,
    attempt: Attempt,
    around: Surroundings,
) -> Outcome:
    """
    Make the attempt, and record it.

    Large because it is called as all interceptors are.
    """
    if not is_replayable(cause):
        return await execute(handler, cause, attempt, around)
    number = recorder.begin("call", describe_call(handler, cause, attempt), [])
    outcome: Outcome | None = None
    try:
        with contextlib.nullcontext() if randomness is None else randomness.of_call(number):
            outcome = await execute(handler, cause, attempt, around)
    finally:
        recorder.note("done", number, describe_outcome(outcome), [])
    return outcome


def is_replayable(cause: Cause) -> bool:
    """Tell if the cause of the call is in the recording."""
    if isinstance(cause, ActivityCause):
        return cause.activity not in _EXTERNAL
    return not isinstance(cause, WebhookCause)


def describe_call(handler: Handler, cause: Cause, attempt: Attempt) -> dict[str, Any]:
    """Describe the call: the descriptions of equal calls are equal."""
    version = cause.body.object.head.resourceVersion if isinstance(cause, ResourceCause) else ""
    reason = name_reason(handler, cause)
    if reason in _BACKGROUND:
        in_background.set(True)
    return {"id": handler.id, "reason": reason, "retry": attempt.retry, "version": version, **locate(cause)._asdict()}


def describe_outcome(outcome: Outcome | None) -> dict[str, Any]:
    """Describe the outcome of a call; ``None`` is for a cancelled one."""
    error = None if outcome is None else outcome.exception or outcome.ignored
    return {
        "outcome": "ignored" if outcome is not None and outcome.ignored is not None else name_outcome(outcome),
        "delay": None if outcome is None else outcome.delay,
        "text": "" if error is None else f"{type(error).__name__}: {error}".removesuffix(": "),
    }


def locate(cause: Cause) -> ObjectPlace:
    """Return the object of the cause; all its names are empty if there is none."""
    if not isinstance(cause, ResourceCause):
        return ObjectPlace("", "", "")
    head = cause.body.object.head
    return ObjectPlace(cause.resource.name, head.namespace or "", head.name or "")
