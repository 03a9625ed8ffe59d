"""The tunnel by ngrok: through the public Internet to a local server, for clusters that cannot reach this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING

from kopf._admission.servers.certificate_sources import MissingDependencyError
from kopf._admission.servers.tls_contexts import Path
from kopf._admission.servers.webhook_server import WebhookContextManager, WebhookServer
from kopf._values.reviews import WebhookClientConfig, WebhookFn

if TYPE_CHECKING:
    from pyngrok.conf import PyngrokConfig

logger = logging.getLogger(__name__)


class WebhookNgrokTunnel(WebhookContextManager):
    """
    A tunnel by `ngrok <https://ngrok.com/>`_ from a public URL to a local server.

    - ``addr``, ``port``, ``path`` are for the local server, as in :class:`kopf.WebhookServer`.
    - ``token`` is the token of an account; without it, the limits of the service are tight.
    - ``region`` is the region of the tunnel; the nearest one by default.
    - ``binary`` is the path of the ngrok program; by default, the library downloads it, which is not recommended.

    The service terminates HTTPS with a public certificate, and sees all reviews. The local part is in HTTP. The URL is
    random but public: everybody who knows it can send requests to the handlers.

    It needs the ``pyngrok`` library; without it, an error contains the instructions. If ngrok exits, the tunnel ends
    with :class:`RuntimeError`.
    """

    CHECK_INTERVAL = 1.0
    """The pause between checks that ngrok is still alive, in seconds."""

    def __init__(
        self,
        *,
        addr: str | None = None,
        port: int | None = None,
        path: str | None = None,
        token: str | None = None,
        region: str | None = None,
        binary: Path | None = None,
    ) -> None:
        super().__init__()
        self.addr = addr
        self.port = port
        self.path = path
        self.token = token
        self.region = region
        self.binary = binary

    async def _serve(self, fn: WebhookFn) -> AsyncGenerator[WebhookClientConfig, None]:
        config = self._make_ngrok_config()
        server = WebhookServer(addr=self.addr, port=self.port, path=self.path, insecure=True)
        async with server:
            local = urllib.parse.urlsplit((await anext(server(fn)))["url"] or "")
            async with _opening_tunnel(f"http://{local.netloc}", config) as url:
                logger.info("The tunnel to the webhook server is open at %s", url)
                yield {"url": f"{url.rstrip('/')}{local.path}"}
                await self._wait_for_exit(config)

    def _make_ngrok_config(self) -> PyngrokConfig:
        try:
            from pyngrok.conf import PyngrokConfig
        except ImportError as e:
            raise MissingDependencyError(
                "Tunnels by ngrok need the library 'pyngrok': "
                "run `pip install pyngrok` or `pip install 'kopf[dev]'`. "
                "Or use a server that the cluster can reach directly, such as kopf.WebhookServer."
            ) from e
        binary = str(self.binary) if self.binary is not None else None
        return PyngrokConfig(ngrok_path=binary, auth_token=self.token, region=self.region)

    async def _wait_for_exit(self, config: PyngrokConfig) -> None:
        from pyngrok import process

        while process.is_process_running(config.ngrok_path):  # noqa: ASYNC110  # the library tells nobody of the exit
            await asyncio.sleep(self.CHECK_INTERVAL)
        raise RuntimeError("The tunnel of ngrok is closed, as ngrok has exited. See its log for the reasons.")


@contextlib.asynccontextmanager
async def _opening_tunnel(address: str, config: PyngrokConfig) -> AsyncIterator[str]:
    """Start ngrok, open a tunnel to the address, and yield its public URL."""
    from pyngrok import ngrok

    try:
        tunnel = await asyncio.to_thread(ngrok.connect, address, "http", pyngrok_config=config)
        if tunnel.public_url is None:
            raise RuntimeError("Ngrok has opened a tunnel, but has not told where.")
        yield tunnel.public_url
    finally:
        await asyncio.to_thread(ngrok.kill, config)
