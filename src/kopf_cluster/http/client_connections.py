"""
Connections: how they end without losing what is accepted, and what is logged of them.
"""
from __future__ import annotations

import asyncio
import logging

from aiohttp import http_exceptions, web
from aiohttp.web_protocol import RequestHandler


class Connections(web.Server):
    """The connections of a server, which takes no more of them once it is over.

    Those that are accepted before, and are not through with TLS, would come later, and be served with outdated data.
    """

    is_over = False

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if self.is_over:
            transport.abort()


async def stop_accepting(listener: asyncio.Server) -> None:
    """Stop listening, but only when whatever is accepted already has become a connection.

    Until Python 3.13, the sockets accepted right before the end of the listener are lost, and never closed.
    """
    loop = asyncio.get_running_loop()
    for sock in listener.sockets:
        loop.remove_reader(sock)
    for _ in range(2):  # a task is created for every accepted socket; it makes a connection when it begins
        await asyncio.sleep(0)
    listener.close()


# What is logged of connections: what the server is to blame for. Broken requests are no news, with no traceback.

class _ServerFaults(logging.Filter):
    """Lets pass only what the server is to blame for."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (http_exceptions.HttpProcessingError, web.RequestPayloadError))


connection_logger = logging.getLogger("kopf.cluster.connections")
connection_logger.addFilter(_ServerFaults())
