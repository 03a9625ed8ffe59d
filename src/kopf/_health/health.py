"""
Health: whether the operator really works; usually, Kubernetes asks.

The operator is healthy if all watch streams show signs of life, no supervised task fails again and again, the event
loop is not blocked, and the user's probe handlers succeed. A pause in favour of another operator is fine.

A request for the health calls the probe handlers, once for all simultaneous requests. Their results are kept for a few
seconds, so that many requests do not overload the handlers. The results of the handlers go to the response unchanged.
A failed handler makes the operator unhealthy.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kopf._handlers.attempts import Outcome
from kopf._handlers.handler_errors import describe
from kopf._health.liveness import Liveness
from kopf._health.watchdog import Watchdog
from kopf._settings.settings import HealthSettings, OperatorSettings
from kopf._values import codec
from kopf._values.ids import HandlerId
from kopf._values.patches import thaw

if TYPE_CHECKING:
    from kopf._values.replica_state import ReplicaState

_POLLING_INTERVAL = 0.2
"""The pause between checks for a blocked event loop while the probe handlers run, in seconds."""

_OWN_KEY = "kopf"
"""The key of the framework in the response; all other keys belong to the probe handlers."""

_HEADERS = {"Cache-Control": "no-store"}


@dataclasses.dataclass(frozen=True)
class ProbeResults:
    """The results of the probe handlers."""

    values: Mapping[str, Any]
    """Their results in the JSON form, by the ids of the handlers; handlers without results are absent."""
    problems: list[str]
    """Descriptions of the failures."""


class Prober:
    """Calls the probe handlers of one operator; it works only in the event loop of that operator."""

    def __init__(self, probe: Callable[[], Awaitable[Mapping[HandlerId, Outcome]]], settings: HealthSettings) -> None:
        self._probe = probe
        self._settings = settings
        self._context = contextvars.copy_context()  # that of the operator: requests come from the thread of the server
        self._task: asyncio.Task[ProbeResults] | None = None
        self._results: ProbeResults | None = None
        self._expires = 0.0

    async def get(self) -> ProbeResults:
        """Get recent results, or else the results of the running calls or of new calls."""
        loop = asyncio.get_running_loop()
        if self._results is not None and loop.time() < self._expires:
            return self._results
        if self._task is None:
            self._task = loop.create_task(self._run(), name="probe handlers", context=self._context.copy())
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
        """Stop the running handlers."""
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


class Health:
    """
    The health of one operator.

    It is created in the event loop of the operator, but reports in the event loop of the server, which is in another
    thread. So, it responds even if the operator is blocked.
    """

    def __init__(
        self,
        liveness: Liveness,
        get_pause_reasons: Callable[[], Collection[str]],
        watchdog: Watchdog,
        prober: Prober | None,
        settings: OperatorSettings,
        get_replica: Callable[[], ReplicaState | None],
    ) -> None:
        self._liveness = liveness
        self._get_pause_reasons = get_pause_reasons
        self._watchdog = watchdog
        self._prober = prober
        self._settings = settings
        self._get_replica = get_replica
        self._loop = asyncio.get_running_loop()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Examine the operator, and respond with 200 if it is healthy, else with 503."""
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
            **({"replica": replica.as_json()} if (replica := self._get_replica()) is not None else {}),
            **({"problems": problems} if problems else {}),
        }
        content = {**values, _OWN_KEY: own} if own else values
        # Byte by byte as in the original framework: some probes compare the whole text.
        return web.json_response(content, status=503 if problems else 200, headers=_HEADERS)

    async def _wait(self, future: concurrent.futures.Future[Any]) -> bool:
        """Wait for the loop of the operator, unless that loop is blocked. Return whether the future is done."""
        waiter = asyncio.wrap_future(future)
        while not waiter.done() and self._watchdog.blockage is None:
            await asyncio.wait([waiter], timeout=_POLLING_INTERVAL)
        return waiter.done()


async def answer_readiness(
    get_replica: Callable[[], ReplicaState | None], request: web.BaseRequest
) -> web.StreamResponse:
    """
    Respond with the readiness of the replica: 200 if it knows the others and renews its Lease, else 503.

    It is apart from the health: a restart does not help a replica that cannot reach the cluster.
    """
    replica = get_replica()
    is_ready = replica is not None and not replica.is_fenced
    content = {_OWN_KEY: {"replica": {"role": "joining"} if replica is None else replica.as_json()}}
    return web.json_response(content, status=200 if is_ready else 503, headers=_HEADERS)
