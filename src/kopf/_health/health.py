"""
Health: whether the operator really operates, as told to those who ask, usually to Kubernetes.

It is healthy if all watch streams bring something from time to time, the supervised tasks do not fail again and again,
the event loop is not blocked, and the users' own probes do not fail. Being paused in favour of another one is fine.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any

from kopf._handlers.outcomes import Outcome
from kopf._health.health_server import HealthServer
from kopf._health.liveness import Liveness
from kopf._health.probes import Prober
from kopf._health.watchdog import Watchdog
from kopf._settings.settings import OperatorSettings
from kopf._values.ids import HandlerId
from kopf._values.records import FrozenRecord

_POLLING_INTERVAL = 0.2
"""How often to check if the event loop is blocked while it is expected to call the probe handlers, in seconds."""

_OWN_KEY = "kopf"
"""Where in the answer the framework itself says something; all other keys are of the probe handlers."""


class HealthReport(FrozenRecord, frozen=True):
    """The answer to those who ask."""

    is_healthy: bool
    content: bytes
    """A JSON object."""


class Health:
    """
    The judge of one operator's health.

    It is made in the event loop of the operator, but asked from the event loop of the server, which is in another
    thread: so, the answer comes even if the operator is blocked.
    """

    def __init__(
        self,
        liveness: Liveness,
        get_pause_reasons: Callable[[], Collection[str]],
        watchdog: Watchdog,
        prober: Prober | None,
        settings: OperatorSettings,
    ) -> None:
        self._liveness = liveness
        self._get_pause_reasons = get_pause_reasons
        self._watchdog = watchdog
        self._prober = prober
        self._settings = settings
        self._loop = asyncio.get_running_loop()

    async def report(self) -> HealthReport:
        """Examine the operator."""
        values: Mapping[str, Any] = {}
        problems: list[str] = []
        if self._prober is not None and self._watchdog.blockage is None:
            future = asyncio.run_coroutine_threadsafe(self._prober.get(), self._loop)
            if await self._wait(future):
                results = future.result()
                values, problems = results.values, [*results.problems]
            else:
                future.cancel()
        problems += self._liveness.find_problems(self._settings)
        if (culprit := self._watchdog.blockage) is not None:
            problems.append(f"The event loop is blocked by {culprit}")
        own = {
            **({"paused": "; ".join(reasons)} if (reasons := self._get_pause_reasons()) else {}),
            **({"peers": peers} if (peers := self._liveness.describe_seniors()) else {}),
            **({"problems": problems} if problems else {}),
        }
        content = {**values, _OWN_KEY: own} if own else values
        # Byte by byte as the original framework has it: there are probes that compare the whole text.
        return HealthReport(is_healthy=not problems, content=json.dumps(content).encode())

    async def _wait(self, future: concurrent.futures.Future[Any]) -> bool:
        """Wait for something in the loop of the operator, unless that loop is blocked; tell if it is done."""
        waiter = asyncio.wrap_future(future)
        while not waiter.done() and self._watchdog.blockage is None:
            await asyncio.wait([waiter], timeout=_POLLING_INTERVAL)
        return waiter.done()


@contextlib.asynccontextmanager
async def serving_health(
    open_server: Callable[[Callable[[], Awaitable[HealthReport]]], HealthServer],
    *,
    liveness: Liveness,
    get_pause_reasons: Callable[[], Collection[str]],
    watchdog: Watchdog,
    probe: Callable[[], Awaitable[Mapping[HandlerId, Outcome]]] | None,
    settings: OperatorSettings,
) -> AsyncIterator[None]:
    """
    Serve the health by that server as long as the block lasts.

    Raises :class:`HealthServerError` if it cannot be served there.
    """
    prober = None if probe is None else Prober(probe, settings.health)
    health = Health(liveness, get_pause_reasons, watchdog, prober, settings)
    try:
        async with open_server(health.report):
            yield
    finally:
        if prober is not None:
            await prober.close()
