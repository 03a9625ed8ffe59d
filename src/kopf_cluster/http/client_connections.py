"""
Connections, with TLS or plain: they begin and end so that none is left behind; and their logs.

Plain HTTP is for simulations: TLS takes several times as long as all the rest of a request on a new connection. It is
only on the loopback, and an unguessable token at the beginning of the path identifies the user. `kubectl` and other
clients in Go would not send the token as a header without TLS.
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
    """The connections of a server, which accepts no more of them once it is over.

    Connections that do not come from its own listener could still begin then, and would see outdated data.
    """

    is_over = False

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if self.is_over:
            transport.abort()


class Listener:
    """Accepts the connections to one address.

    The servers of asyncio do not know of connections before the end of the TLS handshake. Such connections outlive
    them, and since Python 3.12, the end of a server waits for them without a limit.

    Parameters:
        make_protocol: Returns the protocol of a new connection; may raise `ConnectionRefusedError`.
        context: The context of TLS; plain by default.
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
        """Start to listen in the running event loop; return the port. Raise `OSError` if the port is busy."""
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
        """Stop listening, and break the connections that are just beginning."""
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


# The logs of connections contain only faults of the server, but no broken requests of clients.


class _ServerFaults(logging.Filter):
    """Passes only faults of the server."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (http_exceptions.HttpProcessingError, web.RequestPayloadError))


connection_logger = logging.getLogger("kopf.cluster.connections")
connection_logger.addFilter(_ServerFaults())

LOOPBACK: Final = "127.0.0.1"
_KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: local
clusters: [{{name: local, cluster: {{server: "http://{host}:{port}/{token}"}}}}]
users: [{{name: local, user: {{token: "{token}"}}}}]
contexts: [{{name: local, context: {{cluster: local, user: local, namespace: default}}}}]
"""


def make_plain_kubeconfig(port: int, token: str) -> str:
    """Make the kubeconfig for plain HTTP on a loopback port; the token is in the path and in the header."""
    return _KUBECONFIG.format(host=LOOPBACK, port=port, token=token)


def is_plain(transport: asyncio.BaseTransport | None) -> bool:
    """Whether it is a connection over the network without TLS."""
    return (
        transport is not None
        and transport.get_extra_info("socket") is not None
        and transport.get_extra_info("sslcontext") is None
    )


def take_token(message: RawRequestMessage) -> RawRequestMessage:
    """Move the token from the beginning of the path to its header."""
    token, slash, path = message.path.removeprefix("/").partition("/")
    path = f"{slash}{path}" if slash else "/"
    headers = CIMultiDict(message.headers)
    headers["Authorization"] = f"Bearer {token}"
    return message._replace(path=path, url=yarl.URL(path, encoded=True), headers=CIMultiDictProxy(headers))
