"""
Insight: the external access to a running operator: its health, its metrics, its traces, its console.

Only the requested parts are loaded.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING

from kopf._controller.observer import Observers
from kopf._controller.pausing import Pause
from kopf._handlers.attempts import Outcome
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.time_source import Clock
from kopf._health.liveness import Liveness
from kopf._health.watchdog import Watchdog
from kopf._operator.namespace_patterns import NamespacePattern, matches_any
from kopf._serving.endpoints import READINESS_PATH, Endpoint, parse_endpoint
from kopf._settings.settings import OperatorSettings
from kopf._values.ids import HandlerId
from kopf._values.operator_error import OperatorError
from kopf._values.records import FrozenRecord

if TYPE_CHECKING:
    from kopf._operator.replica_status import ReplicaStatus
    from kopf._serving.threaded_server import Answer


logger = logging.getLogger(__name__)

_EVERYWHERE = frozenset({None, "0.0.0.0", "::"})
"""The hosts of endpoints that occupy their ports on all interfaces."""


class EndpointClashError(OperatorError):
    """Two services have the same endpoint."""


class InsightSources(FrozenRecord, frozen=True, kw_only=True):
    """The parts of the operator that can be inspected."""

    registry: OperatorRegistry
    settings: OperatorSettings
    namespaces: Collection[NamespacePattern]
    observers: Observers
    health_endpoint: Endpoint | None
    watchdog: Watchdog
    liveness: Liveness
    pause: Pause
    replica: ReplicaStatus | None
    """The status of this replica, if it is one of several."""
    probe: Callable[[], Awaitable[Mapping[HandlerId, Outcome]]] | None
    """Calls the probe handlers, if there are any."""


@contextlib.asynccontextmanager
async def serving(sources: InsightSources) -> AsyncIterator[None]:
    """
    Serve everything that the settings and the options request, inside of the block.

    Raises :class:`OperatorError` if something cannot be served, and :class:`ValueError` for wrong settings.
    """
    async with contextlib.AsyncExitStack() as stack:
        neighbours: dict[str, Answer] = {}
        metrics, tracing = sources.settings.metrics, sources.settings.tracing
        if tracing.enabled or (tracing.enabled is None and (tracing.provider is not None or _has_opentelemetry())):
            _begin_tracing(sources, stack)
        if metrics.endpoint is not None or metrics.enabled:
            await _serve_metrics(sources, stack, neighbours)
        if sources.health_endpoint is not None:
            await _serve_health(sources, sources.health_endpoint, stack, neighbours)
        if sources.settings.console.endpoint is not None:
            await _serve_console(sources, sources.settings.console.endpoint, stack)
        yield


def _has_opentelemetry() -> bool:
    """Tell if the application can have configured OpenTelemetry."""
    return "opentelemetry.trace" in sys.modules or "OTEL_PYTHON_TRACER_PROVIDER" in os.environ


def _begin_tracing(sources: InsightSources, stack: contextlib.AsyncExitStack) -> None:
    from kopf._insight.tracing.activation import make_tracer

    tracer = make_tracer(sources.settings.tracing)
    if tracer is not None:
        from kopf._insight.tracing.tracing import marking_logs, start_tracing

        stack.enter_context(marking_logs())
        start_tracing(sources.observers, tracer)


async def _serve_metrics(
    sources: InsightSources, stack: contextlib.AsyncExitStack, neighbours: dict[str, Answer]
) -> None:
    from kopf._insight.metrics.exposition import check_library, collecting

    check_library()
    from kopf._insight.metrics.operator_metrics import Metrics

    settings = sources.settings
    metrics = Metrics(sources.observers, sources.registry, settings, get_lag=sources.watchdog.lag.get_worst)
    answer = stack.enter_context(collecting(metrics, settings.metrics))
    if settings.metrics.endpoint is None:
        return
    endpoint = parse_endpoint(settings.metrics.endpoint, title="metrics", path="metrics")
    health = sources.health_endpoint
    if health is not None and _is_one_server(health, endpoint):
        neighbours[endpoint.path] = answer
        return
    from kopf._serving.threaded_server import ReadOnlyServer

    await stack.enter_async_context(ReadOnlyServer(endpoint, {endpoint.path: answer}, subject="the metrics"))


def _is_one_server(health: Endpoint, metrics: Endpoint) -> bool:
    """Tell if both have the same port. Raises :class:`EndpointClashError` if they cannot share it."""
    if health.port == 0 or health.port != metrics.port:
        return False
    if health == metrics:
        raise EndpointClashError(f"The health and the metrics have the same address {health}; change one of the paths.")
    if health.host != metrics.host and not _EVERYWHERE.isdisjoint((health.host, metrics.host)):
        raise EndpointClashError(
            f"The health ({health}) and the metrics ({metrics}) share a port, so they also need the same host."
        )
    return health.host == metrics.host


async def _serve_health(
    sources: InsightSources, endpoint: Endpoint, stack: contextlib.AsyncExitStack, neighbours: Mapping[str, Answer]
) -> None:
    from kopf._health.health import Health, Prober, answer_readiness
    from kopf._serving.threaded_server import ReadOnlyServer

    prober = None
    if sources.probe is not None:
        prober = Prober(sources.probe, sources.settings.health)
        stack.push_async_callback(prober.close)
    replica = sources.replica
    if replica is not None:
        neighbours = {READINESS_PATH: functools.partial(answer_readiness, replica.get), **neighbours}
    health = Health(
        sources.liveness,
        lambda: sources.pause.reasons,
        sources.watchdog,
        prober,
        sources.settings,
        (lambda: None) if replica is None else replica.get,
    )
    answers = {endpoint.path: health.answer, **neighbours}
    await stack.enter_async_context(ReadOnlyServer(endpoint, answers, subject="the health"))


async def _serve_console(sources: InsightSources, url: str, stack: contextlib.AsyncExitStack) -> None:
    from kopf._insight.backlog import Backlog
    from kopf._insight.console.console import Console
    from kopf._insight.console.listeners import collecting_logs
    from kopf._insight.endpoint.console_server import ConsoleServer, Route, Routes
    from kopf._insight.endpoint.protection import TOKEN_VARIABLE, protect
    from kopf._insight.inspecting.inspector import Inspector

    def serves(namespace: str | None) -> bool:
        namespaces = sources.namespaces
        return namespace is None or not namespaces or matches_any(namespace, namespaces)

    console = sources.settings.console
    token = console.token if console.token is not None else os.environ.get(TOKEN_VARIABLE)
    endpoint, protection = protect(url, token)
    observers, routes = sources.observers, Routes()
    backlog = Backlog(observers, Clock().get_timestamp)
    inspector = Inspector(observers, backlog, registry=sources.registry, serves=serves)
    routes["/api/explain"] = Route(inspector.answer)
    stack.enter_context(collecting_logs(Console(observers, backlog, routes, inspector.answer).history))
    server = await stack.enter_async_context(ConsoleServer(endpoint, protection, routes))
    logger.info("The console is served at %s", server.endpoint)
