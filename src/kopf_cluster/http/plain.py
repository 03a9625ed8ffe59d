"""
Plain HTTP, for simulations: TLS takes several times as long as all the rest of a request on a new connection.

It is only on the loopback, and whoever comes is known by a token in the beginning of the path, which nobody can guess.
As a header, the token would not be sent by `kubectl`, nor by other clients in Go, where there is no TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import yarl
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy

from kopf_cluster.http.client_connections import Listener

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
        self._accept = accept
        self._listener = Listener(self._greet)
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

    def _greet(self) -> asyncio.Protocol:
        try:
            return self._accept()
        except ConnectionRefusedError:
            return _Refusal()


class _Refusal(asyncio.Protocol):
    """Breaks the connection: the system accepts it, even if there is no server."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


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
