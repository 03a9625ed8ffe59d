"""The console of an operator: served if the settings say so; otherwise, nothing of it is loaded."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from kopf._settings.settings import ConsoleSettings

logger = logging.getLogger(__name__)


def serve_console(settings: ConsoleSettings) -> AbstractAsyncContextManager[None]:
    """
    Serve the console as long as the block lasts.

    Raises :class:`ValueError` or :class:`ConsoleError` if it is configured wrongly, :class:`ConsoleServerError` if it
    cannot be served there.
    """
    return contextlib.nullcontext() if settings.endpoint is None else _serve(settings, settings.endpoint)


@contextlib.asynccontextmanager
async def _serve(settings: ConsoleSettings, url: str) -> AsyncIterator[None]:
    from kopf._insight.endpoint.console_server import ConsoleServer, Routes
    from kopf._insight.endpoint.protection import TOKEN_VARIABLE, protect

    token = settings.token
    endpoint, protection = protect(url, token if token is not None else os.environ.get(TOKEN_VARIABLE))
    routes = Routes()
    async with ConsoleServer(endpoint, protection, routes) as server:
        logger.info("The console is served at %s", server.endpoint)
        yield
