"""The console of an operator: served if the settings say so; otherwise, nothing of it is loaded."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from kopf._controller.clock import Clock
from kopf._controller.observer import Observers
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.scopes import NamespacePattern, matches_any
from kopf._settings.settings import ConsoleSettings, OperatorSettings

if TYPE_CHECKING:
    from kopf._insight.inspecting.inspector import Inspected

logger = logging.getLogger(__name__)


def serve_console(
    settings: OperatorSettings,
    *,
    registry: OperatorRegistry,
    namespaces: Collection[NamespacePattern],
    observers: Observers,
) -> AbstractAsyncContextManager[None]:
    """
    Serve the console as long as the block lasts.

    Raises :class:`ValueError` or :class:`ConsoleError` if it is configured wrongly, :class:`ServingError` if it
    cannot be served there.
    """
    url = settings.console.endpoint
    if url is None:
        return contextlib.nullcontext()
    from kopf._insight.inspecting.inspector import Inspected

    def serves(namespace: str | None) -> bool:
        return namespace is None or not namespaces or matches_any(namespace, namespaces)

    return _serve(settings.console, url, Inspected(registry=registry, observers=observers, serves=serves))


@contextlib.asynccontextmanager
async def _serve(settings: ConsoleSettings, url: str, operator: Inspected) -> AsyncIterator[None]:
    from kopf._insight.backlog import Backlog
    from kopf._insight.console.console import showing
    from kopf._insight.endpoint.console_server import ConsoleServer, Routes
    from kopf._insight.endpoint.protection import TOKEN_VARIABLE, protect
    from kopf._insight.inspecting.inspector import Inspector, add_inspection

    token = settings.token
    endpoint, protection = protect(url, token if token is not None else os.environ.get(TOKEN_VARIABLE))
    routes, backlog = Routes(), Backlog(operator.observers, Clock().get_timestamp)
    inspector = Inspector(operator, backlog)
    add_inspection(routes, inspector)
    with showing(operator.observers, backlog, routes, inspector.ask):
        async with ConsoleServer(endpoint, protection, routes) as server:
            logger.info("The console is served at %s", server.endpoint)
            yield
