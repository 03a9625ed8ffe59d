"""
Activities: the handlers of the operator's own life (startup, cleanup, login, probes), with retries like all others.

Their progress is in memory: an activity ends when all of its handlers are done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._handlers.attempts import Outcome
from kopf._handlers.causes import ActivityCause
from kopf._handlers.executor import HandlerExecutor, Surroundings
from kopf._handlers.handler_errors import name_error
from kopf._handlers.handlers import ActivityHandler
from kopf._handlers.retry_policy import Retries
from kopf._handlers.time_source import Clock
from kopf._settings.settings import OperatorSettings
from kopf._values.ids import HandlerId
from kopf._values.operator_error import OperatorError
from kopf._values.reasons import Activity


class ActivityError(OperatorError):
    """Some handlers of the activity have failed for good; ``outcomes`` are the outcomes of all of them by their ids."""

    def __init__(self, activity: Activity, outcomes: Mapping[HandlerId, Outcome]) -> None:
        self.outcomes = outcomes
        failures = {key: outcome.exception for key, outcome in outcomes.items() if outcome.exception is not None}
        details = "; ".join(f"{key!r}: {name_error(exc)}" for key, exc in failures.items())
        super().__init__(f"The {activity.value} has failed in {details}")


class Activities:
    """Calls the handlers of the operator's own life. Before the operator runs, they get no indices."""

    def __init__(
        self,
        settings: OperatorSettings,
        executor: HandlerExecutor,
        *,
        memo: Any = None,
        indices: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = settings
        self._executor = executor
        self._memo = memo
        self._indices = indices if indices is not None else {}

    async def run(
        self, activity: Activity, handlers: Sequence[ActivityHandler], *, is_quiet: bool = False
    ) -> Mapping[HandlerId, Any]:
        """
        Call all handlers, one after another, each as often as needed; return their results.

        If ``is_quiet``, only failures are logged.

        Raises :class:`ActivityError` if any of them fails permanently, but after all others were called.
        """
        outcomes = await self.attempt(activity, handlers, is_quiet=is_quiet)
        if any(outcome.exception is not None for outcome in outcomes.values()):
            raise ActivityError(activity, outcomes)
        return {key: outcome.result for key, outcome in outcomes.items() if outcome.result is not None}

    async def attempt(
        self, activity: Activity, handlers: Sequence[ActivityHandler], *, is_quiet: bool = False
    ) -> Mapping[HandlerId, Outcome]:
        """
        Call all handlers, one after another, each as many times as needed; return their final outcomes.

        If ``is_quiet``, only failures are logged.
        """
        cause = ActivityCause(
            logger=logging.getLogger(f"kopf.activities.{activity.value}"),
            memo=self._memo,
            indices=self._indices,
            activity=activity,
            settings=self._settings,
        )
        around = Surroundings(is_quiet=is_quiet)
        clock = Clock()
        return {handler.id: await self._finish(handler, cause, clock, around) for handler in handlers}

    async def _finish(
        self, handler: ActivityHandler, cause: ActivityCause, clock: Clock, around: Surroundings
    ) -> Outcome:
        """Call the handler until it is done, for good or bad."""
        retries = Retries()
        while True:
            outcome = await self._executor.execute(handler, cause, retries.begin(clock.now()), around)
            if outcome.final:
                return outcome
            retries.note(outcome)
            await asyncio.sleep(outcome.delay or 0)
