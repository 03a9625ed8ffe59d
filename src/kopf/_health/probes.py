"""
Probing: the probe handlers are called when the health is asked for, once for all those who ask at the same time.

The results are kept for a few seconds, so that the handlers are not overloaded by mass-requests. What a handler
returns goes to the answer as it is; a handler that fails makes the operator unhealthy.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kopf._handlers.handler_errors import describe
from kopf._handlers.outcomes import Outcome
from kopf._settings.settings import HealthSettings
from kopf._values import codec
from kopf._values.ids import HandlerId
from kopf._values.patches import thaw


@dataclasses.dataclass(frozen=True)
class ProbeResults:
    """What the probe handlers have brought."""

    values: Mapping[str, Any]
    """Their results in the JSON form, by their ids; the handlers with no results are absent."""
    problems: list[str]
    """Descriptions of those that have failed."""


class Prober:
    """Calls the probe handlers of one operator; to be used in the event loop of that operator only."""

    def __init__(self, probe: Callable[[], Awaitable[Mapping[HandlerId, Outcome]]], settings: HealthSettings) -> None:
        self._probe = probe
        self._settings = settings
        self._task: asyncio.Task[ProbeResults] | None = None
        self._results: ProbeResults | None = None
        self._expires = 0.0

    async def get(self) -> ProbeResults:
        """Get the results: the recent ones, or those of the calls which are already underway, or of new calls."""
        loop = asyncio.get_running_loop()
        if self._results is not None and loop.time() < self._expires:
            return self._results
        if self._task is None:
            self._task = loop.create_task(self._run(), name="probe handlers")
        return await asyncio.shield(self._task)

    async def _run(self) -> ProbeResults:
        try:
            outcomes = await self._probe()
            self._results = _encode(outcomes, is_shown=self._settings.show_errors)
            self._expires = asyncio.get_running_loop().time() + self._settings.probe_lifetime
            return self._results
        finally:
            self._task = None

    async def close(self) -> None:
        """Do not wait for the handlers anymore."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


def _encode(outcomes: Mapping[HandlerId, Outcome], *, is_shown: bool) -> ProbeResults:
    values: dict[str, Any] = {}
    problems = []
    for key, outcome in outcomes.items():
        if outcome.exception is not None:
            error = describe(outcome.exception, instead="see the log of the operator.", is_shown=is_shown)
            problems.append(f"The probe {key!r} has failed: {error}")
        elif outcome.result is not None:
            try:
                values[key] = codec.decode(codec.encode(thaw(outcome.result)))
            except (TypeError, ValueError) as e:
                problems.append(f"The probe {key!r} has returned a value with no JSON form: {e}")
    return ProbeResults(values, problems)
