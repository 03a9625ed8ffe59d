"""The automatic choice of a server or a tunnel for the current cluster."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from kopf._admission.servers.local import ClusterDetector
from kopf._admission.servers.ngrok import WebhookNgrokTunnel
from kopf._admission.servers.webhook_server import WebhookContextManager, WebhookServer
from kopf._values.reviews import WebhookClientConfig, WebhookFn


class WebhookAutoServer(ClusterDetector, WebhookServer):
    """
    A local server that guesses the host name by which the cluster can reach it: in K3d/K3s, Minikube, Docker Desktop.

    For all other clusters, it is the same as :class:`kopf.WebhookServer`; see there for the options. It guesses nothing
    if ``host`` is specified. It never opens tunnels, unlike :class:`kopf.WebhookAutoTunnel`.
    """

    async def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]:
        if not self.host:
            self.DEFAULT_HOST = await self.guess_host()
        async with contextlib.aclosing(super()._serve(fn)) as configs:
            async for config in configs:
                yield config


class WebhookAutoTunnel(ClusterDetector, WebhookContextManager):
    """
    The same as :class:`kopf.WebhookAutoServer` for the known local clusters, and a tunnel (ngrok) for all others.

    ``addr``, ``port``, ``path`` are for the local server, as in :class:`kopf.WebhookServer`. There are no other
    options, as they would depend on the choice.
    """

    def __init__(self, *, addr: str | None = None, port: int | None = None, path: str | None = None) -> None:
        super().__init__()
        self.addr = addr
        self.port = port
        self.path = path

    async def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]:
        host = await self.guess_host()
        chosen: WebhookServer | WebhookNgrokTunnel
        if host is not None:
            chosen = WebhookServer(addr=self.addr, port=self.port, path=self.path, host=host)
        else:
            chosen = WebhookNgrokTunnel(addr=self.addr, port=self.port, path=self.path)
        async with chosen:
            async for config in chosen(fn):
                yield config
