"""What the tests of servers share: a server in the background, clients of it, and a function that answers reviews."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

import kopf
from kopf._values.reviews import Response, WebhookClientConfig, WebhookFn, WebhookServerProtocol
from tests.patience import PATIENCE


class ImpatientServer(kopf.WebhookServer):
    """The same server, but those who test it have no time."""

    PROPAGATION_DELAY = 0.1

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"file_check_interval": 0.05, **options})


class Reviewer:
    """Answers reviews, and remembers what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []
        self.started = asyncio.Event()
        self.allowed_to_finish = asyncio.Event()
        self.allowed_to_finish.set()
        self.cancelled = asyncio.Event()

    async def __call__(
        self,
        request: Mapping[str, Any],
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
        sslpeer: Mapping[str, Any] | None = None,
    ) -> Response:
        self.calls.append({"request": request, "webhook": webhook, "headers": headers, "sslpeer": sslpeer})
        self.started.set()
        try:
            await self.allowed_to_finish.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        uid = request.get("request", {}).get("uid", "")
        return {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": uid, "allowed": True},
        }


class Serving:
    """A server in the background, and the configs that it has given."""

    def __init__(self, server: WebhookServerProtocol, fn: WebhookFn) -> None:
        super().__init__()
        self.configs: list[WebhookClientConfig] = []
        self._server = server
        self._fn = fn
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                server = self._server
                if isinstance(server, contextlib.AbstractAsyncContextManager):
                    server = await stack.enter_async_context(server)
                async for config in server(self._fn):
                    self.configs.append(config)
                    self._changed.set()
        finally:
            self._changed.set()

    async def wait_for_configs(self, count: int = 1) -> WebhookClientConfig:
        """Wait until there are so many; give the last one. Raise the error of the server if it has failed."""
        async with asyncio.timeout(PATIENCE):
            while len(self.configs) < count:
                if self._task.done():
                    self._task.result()
                    raise RuntimeError("the server has exited")
                self._changed.clear()
                await self._changed.wait()
        return self.configs[-1]

    async def wait_for_exit(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([self._task])
        self._task.result()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@contextlib.asynccontextmanager
async def serving(server: WebhookServerProtocol, fn: WebhookFn | None = None) -> AsyncIterator[Serving]:
    """Run the server, wait until it is ready; stop it in the end."""
    running = Serving(server, fn if fn is not None else Reviewer())
    try:
        await running.wait_for_configs()
        yield running
    finally:
        await running.stop()


def get_bundle(config: WebhookClientConfig) -> str:
    return base64.b64decode(config["caBundle"] or "", validate=True).decode()


def get_port(config: WebhookClientConfig) -> int:
    port = urllib.parse.urlsplit(config["url"] or "").port
    assert port is not None
    return port


def trust(config: WebhookClientConfig, **client: Any) -> ssl.SSLContext:
    """Trust what the config says, strictly; and, optionally, present a client certificate."""
    context = ssl.create_default_context(cadata=get_bundle(config))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if client:
        context.load_cert_chain(**client)
    return context


@contextlib.asynccontextmanager
async def connect(**kwargs: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """Make a session of which nothing is left behind."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0, **kwargs)) as session:
        yield session
        connections = [
            protocol.transport
            for protocols in session.connector._conns.values()  # type: ignore[union-attr]
            for protocol, *_ in protocols
        ]
    for _ in range(100):  # aiohttp does not wait for the transports
        if all(transport is None or transport.is_closing() for transport in connections):
            break
        await asyncio.sleep(0.01)


async def send(
    config: WebhookClientConfig,
    payload: Any = None,
    *,
    path: str = "",
    context: ssl.SSLContext | None = None,
    method: str = "POST",
    session: aiohttp.ClientSession | None = None,
    **kwargs: Any,
) -> tuple[int, Any]:
    """
    Send a request as API servers do: to the host of the config, which is always this machine here.

    Gives the status, and the response: parsed if it is a JSON document.
    """
    async with contextlib.AsyncExitStack() as stack:
        if session is None:
            session = await stack.enter_async_context(connect())
        url = urllib.parse.urlsplit(config["url"] or "")
        ssl_options: dict[str, Any] = {}
        if url.scheme == "https":
            ssl_options = {"ssl": context if context is not None else trust(config), "server_hostname": url.hostname}
        if "data" not in kwargs:
            kwargs["json"] = payload if payload is not None else make_review()
        else:
            kwargs["headers"] = {"Content-Type": "application/json", **kwargs.get("headers", {})}
        target = f"{url.scheme}://127.0.0.1:{url.port}{url.path}{path}"
        async with session.request(method, target, **ssl_options, **kwargs) as response:
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())


async def wait_until_served(port: int) -> None:
    """Wait until somebody listens."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("localhost", port)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            writer.close()
            return


def make_review(uid: str = "1ca13837-ad60-4c9e-abb8-86f29d6c0e84", **fields: Any) -> dict[str, Any]:
    gvk, gvr = {"group": "kopf.dev", "version": "v1"}, {"group": "kopf.dev", "version": "v1"}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uid,
            "kind": {**gvk, "kind": "KopfExample"},
            "resource": {**gvr, "resource": "kopfexamples"},
            "requestKind": {**gvk, "kind": "KopfExample"},
            "requestResource": {**gvr, "resource": "kopfexamples"},
            "name": "kopf-example-1",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": {
                "apiVersion": "kopf.dev/v1",
                "kind": "KopfExample",
                "metadata": {"name": "kopf-example-1", "namespace": "default"},
            },
            "oldObject": None,
            "dryRun": True,
            **fields,
        },
    }
