"""
Connections: how they begin and end so that none is left behind, and what is logged of them. With TLS, or plain.

Plain HTTP is for simulations: TLS takes several times as long as all the rest of a request on a new connection. It is
only on the loopback, and whoever comes is known by a token in the beginning of the path, which nobody can guess.
As a header, the token would not be sent by `kubectl`, nor by other clients in Go, where there is no TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

import yarl
from aiohttp import http_exceptions, web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler
from multidict import CIMultiDict, CIMultiDictProxy

# All times are of the loop's clock, which may run much faster than the real one. So, nothing that takes
# real time may be limited in it: neither handshakes nor idle connections.
UNLIMITED: Final = 10 * 365 * 24 * 3600.0


class Connections(web.Server):
    """The connections of a server, which takes no more of them once it is over.

    Those that begin before, but not by its own listener, would come later, and be served with outdated data.
    """

    is_over = False

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if self.is_over:
            transport.abort()


class Listener:
    """Accepts the connections to one address.

    The servers of asyncio do not know of connections before their TLS is through. Such connections outlive them, and
    since Python 3.12, the end of a server waits for them, however long it takes.

    Args:
        make_protocol: Gives the protocol of a new connection.
        context: How TLS is done; there is none by default.
    """

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._make_protocol = make_protocol
        self._tls: dict[str, Any] = (
            {} if context is None else {"ssl": context, "ssl_handshake_timeout": UNLIMITED, "ssl_shutdown_timeout": 1.0}
        )
        self._socket: socket.socket | None = None
        self._beginning: set[asyncio.Task[None]] = set()

    def open(self, host: str, port: int) -> int:
        """Begin to listen in the running event loop; give the port. Raise `OSError` if the port is busy."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = listening = socket.create_server((host, port), family=family, backlog=1024)
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)
        return int(listening.getsockname()[1])

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client has gone, or there are too many files: it is tried again soon
            connection, _ = listening.accept()
            task = asyncio.create_task(self._begin(connection))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make_protocol, connection, **self._tls)
        except OSError:  # the client has gone, or does not like our TLS; or the server has gone
            connection.close()

    async def close(self) -> None:
        """Stop listening, and break those connections that are only beginning."""
        listening, self._socket = self._socket, None
        if listening is None:
            return
        asyncio.get_running_loop().remove_reader(listening)
        listening.close()
        for _ in range(2):  # a task begins, then its transport does; before that, they cannot be ended properly
            await asyncio.sleep(0)
        for task in self._beginning:
            task.cancel()
        await asyncio.gather(*self._beginning, return_exceptions=True)


# What is logged of connections: what the server is to blame for. Broken requests are no news, with no traceback.


class _ServerFaults(logging.Filter):
    """Lets pass only what the server is to blame for."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (http_exceptions.HttpProcessingError, web.RequestPayloadError))


connection_logger = logging.getLogger("kopf.cluster.connections")
connection_logger.addFilter(_ServerFaults())

_HOST: Final = "127.0.0.1"
_KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: local
clusters: [{{name: local, cluster: {{server: "http://{host}:{port}/{token}"}}}}]
users: [{{name: local, user: {{token: "{token}"}}}}]
contexts: [{{name: local, context: {{cluster: local, user: local, namespace: default}}}}]
"""


class PlainPort:
    """A port for plain HTTP, which remains when the server behind it is restarted.

    * ``accept``: gives the server's side of a new connection, or raises `ConnectionRefusedError` if there is no server.
    """

    def __init__(self, accept: Callable[[], asyncio.Protocol]) -> None:
        self._listener = Listener(accept)
        self._port: int | None = None

    def open(self) -> None:
        self._port = self._listener.open(_HOST, 0)

    async def close(self) -> None:
        await self._listener.close()

    def make_kubeconfig(self, token: str) -> str:
        """Make the kubeconfig of the one to whom the token belongs."""
        if self._port is None:
            raise RuntimeError("the port is not open")
        return _KUBECONFIG.format(host=_HOST, port=self._port, token=token)


def is_plain(transport: asyncio.BaseTransport | None) -> bool:
    """Tell whether it is a connection by the network without TLS."""
    return (
        transport is not None
        and transport.get_extra_info("socket") is not None
        and transport.get_extra_info("sslcontext") is None
    )


def take_token(message: RawRequestMessage) -> RawRequestMessage:
    """Take the token from the beginning of the path, as if it had come in its header."""
    token, slash, path = message.path.removeprefix("/").partition("/")
    path = f"{slash}{path}" if slash else "/"
    headers = CIMultiDict(message.headers)
    headers["Authorization"] = f"Bearer {token}"
    return message._replace(path=path, url=yarl.URL(path, encoded=True), headers=CIMultiDictProxy(headers))
