"""
Activities: the handlers of the operator's own life (startup, cleanup, login, probes), retried like all others.

Their progress is kept in memory: an activity is over when all of its handlers are done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._controller.clock import Clock
from kopf._handlers.causes import ActivityCause
from kopf._handlers.errors import ErrorsMode
from kopf._handlers.handlers import ActivityHandler
from kopf._handlers.invocation import invoke
from kopf._handlers.outcomes import Attempt, Outcome, execute_once
from kopf._settings.settings import OperatorSettings
from kopf._values.ids import HandlerId
from kopf._values.reasons import Activity


class ActivityError(Exception):
    """Some handlers of the activity have failed for good, so the activity has failed too."""

    def __init__(self, activity: Activity, outcomes: Mapping[HandlerId, Outcome]) -> None:
        self.outcomes = outcomes
        failures = {key: outcome.exception for key, outcome in outcomes.items() if outcome.exception is not None}
        details = "; ".join(f"{key!r}: {str(exc) or type(exc).__name__}" for key, exc in failures.items())
        super().__init__(f"The {activity.value} has failed in {details}")


async def run_activity(
    activity: Activity,
    handlers: Sequence[ActivityHandler],
    *,
    settings: OperatorSettings,
    memo: Any,
    indices: Mapping[str, Any],
    default_errors: ErrorsMode = ErrorsMode.TEMPORARY,
    verbose: bool = True,
) -> Mapping[HandlerId, Any]:
    """
    Call all handlers, one after another, each as many times as needed; return their results.

    If not ``verbose``, only failures are logged.

    Raises :class:`ActivityError` if any of them fails permanently; all others are called nevertheless.
    """
    outcomes = await try_activity(
        activity,
        handlers,
        settings=settings,
        memo=memo,
        indices=indices,
        default_errors=default_errors,
        verbose=verbose,
    )
    if any(outcome.exception is not None for outcome in outcomes.values()):
        raise ActivityError(activity, outcomes)
    return {key: outcome.result for key, outcome in outcomes.items() if outcome.result is not None}


async def try_activity(
    activity: Activity,
    handlers: Sequence[ActivityHandler],
    *,
    settings: OperatorSettings,
    memo: Any,
    indices: Mapping[str, Any],
    default_errors: ErrorsMode,
    verbose: bool = True,
) -> Mapping[HandlerId, Outcome]:
    """
    Call all handlers, one after another, each as many times as needed; return how they have ended.

    If not ``verbose``, only failures are logged.
    """
    logger = logging.getLogger(f"kopf.activities.{activity.value}")
    clock = Clock()
    cause = ActivityCause(logger=logger, memo=memo, indices=indices, activity=activity, settings=settings)
    return {
        handler.id: await _run_handler(handler, cause, clock, default_errors=default_errors, verbose=verbose)
        for handler in handlers
    }


async def _run_handler(
    handler: ActivityHandler, cause: ActivityCause, clock: Clock, *, default_errors: ErrorsMode, verbose: bool
) -> Outcome:
    started = clock.now()
    retry = 0
    while True:
        attempt = Attempt(retry=retry, started=started, runtime=clock.now() - started)
        kwargs = {"retry": retry, "started": started, "runtime": attempt.runtime, **cause.kwargs_for(handler)}

        async def call(kwargs: Mapping[str, Any] = kwargs) -> Any:
            return await invoke(handler, kwargs, execution=cause.settings.execution)

        outcome = await execute_once(
            handler,
            attempt,
            call,
            logger=cause.logger,
            default_backoff=cause.settings.execution.default_backoff,
            default_errors=default_errors,
            verbose=verbose,
        )
        if outcome.final:
            return outcome
        await asyncio.sleep(outcome.delay or 0)
        retry += 1
