"""
Listeners: how they end without losing what they have accepted.
"""
from __future__ import annotations

import asyncio

from aiohttp import web
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
