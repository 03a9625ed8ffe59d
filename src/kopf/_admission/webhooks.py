"""
Webhooks: the server or tunnel that receives the reviews, and the configurations that tell the API servers about it.

The order matters. At the start, the server listens, the resources become known, the indices are filled, and only then
the webhooks are published. At the exit, the webhooks are removed first. Then the handlers finish, as their own changes
are reviewed, too. The last reviews get responses, as the API servers need a moment to notice. Finally, the server
stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from typing import Any

from kopf._admission.conversions import Conversions
from kopf._admission.reviewing import Admission
from kopf._admission.webhook_publishing import Publication
from kopf._client.resources.discovery import Discovery
from kopf._controller.runtime import Runtime
from kopf._handlers.registry import OperatorRegistry
from kopf._settings.settings import AdmissionSettings
from kopf._values.operator_error import OperatorError
from kopf._values.resources import Resource
from kopf._values.reviews import CONVERSION_KIND, Headers, SSLPeer, WebhookClientConfig, WebhookServerProtocol

logger = logging.getLogger(__name__)

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_MANAGED_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})+")

_LINGERING_TIME = 1.0
"""
The time for which API servers can still call the webhooks after these were removed or taken over by another replica, or
after the pod has left its service, in seconds: API servers need a moment to notice.
"""


class MissingWebhookServerError(OperatorError):
    """There are admission handlers, but no server or tunnel that would receive reviews for them."""


class WebhookServerExitedError(Exception):
    """The webhook server or tunnel has exited, though it must run until it is cancelled."""


def check_admission(registry: OperatorRegistry, settings: AdmissionSettings) -> None:
    """
    Check that the API servers can call the admission handlers.

    Raises :class:`MissingWebhookServerError` if there is no server or tunnel, and :class:`ValueError` if the name of
    the managed configurations is too short: the names of webhooks must have at least three parts.
    """
    if settings.managed is not None and _MANAGED_NAME.fullmatch(settings.managed) is None:
        raise ValueError(
            "settings.admission.managed must be a lowercase domain name of two parts at least, such as "
            f"'auto.kopf.dev', got {settings.managed!r}."
        )
    if (called := [*registry.webhooks, *registry.conversions]) and settings.server is None:
        ids = ", ".join(sorted({handler.id for handler in called}))
        what = "admission handlers" if registry.webhooks else "conversions"
        raise MissingWebhookServerError(
            f"There are {what} ({ids}), but no webhook server or tunnel to call them. Set "
            "settings.admission.server in a startup handler, e.g. to kopf.WebhookServer(…), or remove the handlers."
        )


class Webhooks:
    """
    The whole admission of one operator. Without admission handlers, nothing listens.

    The pauses and the namespaces of the operator do not matter: they restrict handling, not admission.

    Large because conversions are requested at the same address.
    """

    def __init__(
        self, runtime: Runtime, registry: OperatorRegistry, settle_peering: Callable[[], Awaitable[None]]
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._settle_peering = settle_peering
        self._admission = Admission(runtime, registry, settle_peering)
        self._conversions = Conversions(runtime, registry)
        self._is_called = bool(registry.webhooks or registry.conversions)
        self._resources: frozenset[Resource] = frozenset()
        self._client_config: WebhookClientConfig | None = None if self._is_called else {}
        managed = runtime.settings.admission.managed
        self._publication = None
        if managed is not None:
            self._publication = Publication(runtime, registry, managed, self._conversions.routes.values())
        self._retired = 0.0

    def accept_resources(self, discovery: Discovery, handled: Collection[Resource]) -> None:
        """Take the resources of the cluster, and the ones that also have other handlers."""
        kept = {resource for resource in self._resources if resource.api_version in discovery.unavailable}
        self._resources = discovery.resources | kept
        self._admission.accept_resources(self._resources, handled)
        self._declare()

    async def serve(self) -> None:
        """Run the server or tunnel, forever. Raises its errors, or :class:`WebhookServerExitedError` if it ends."""
        server = self._runtime.settings.admission.server
        if not self._is_called or server is None:
            await asyncio.Event().wait()  # until cancelled
            return
        async with contextlib.AsyncExitStack() as stack:
            entered: WebhookServerProtocol = server
            if isinstance(server, contextlib.AbstractAsyncContextManager):
                entered = await stack.enter_async_context(server)
            client_configs = entered(self._review if self._registry.conversions else self._admission.review)
            if isinstance(client_configs, AsyncGenerator):
                stack.push_async_callback(client_configs.aclose)
            async for client_config in client_configs:
                logger.debug("The webhook server is ready: %s", _describe(client_config))
                self._client_config = client_config
                self._declare()
        raise WebhookServerExitedError(
            f"The webhook server or tunnel {server!r} has exited, while it must run as long as the operator runs. "
            "To run forever, it can end with: await asyncio.Event().wait()"
        )

    async def _review(
        self,
        request: Mapping[str, Any],
        *,
        webhook: str | None = None,
        headers: Headers | None = None,
        sslpeer: SSLPeer | None = None,
    ) -> Any:
        if request.get("kind") == CONVERSION_KIND:
            return await self._conversions.review(request, webhook)
        return await self._admission.review(request, webhook=webhook, headers=headers, sslpeer=sslpeer)

    async def publish(self) -> None:
        """Keep the managed configurations, if there are any, up to date, forever."""
        if self._publication is None:
            await asyncio.Event().wait()  # until cancelled
        else:
            await self._publication.run(self._wait_until_ready)

    async def _wait_until_ready(self) -> None:
        await self._admission.readiness.wait()
        await self._settle_peering()  # paused operators say so in the configurations
        self._declare()

    def _declare(self) -> None:
        if self._publication is not None and self._client_config is not None:
            self._publication.declare(self._resources, self._client_config)

    async def retire(self) -> None:
        """Remove the webhooks that are not persistent. The server continues: reviews can still come for a moment."""
        if self._publication is not None:
            await self._publication.retire()
        self._retired = asyncio.get_running_loop().time()

    async def finish(self) -> None:
        """Wait until the last reviews have come and have responses, unless the server was never ready for them."""
        if self._is_called and self._client_config is not None:
            await asyncio.sleep(self._retired + _LINGERING_TIME - asyncio.get_running_loop().time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._runtime.settings.queueing.exit_timeout):
                await self._admission.wait_until_idle()


def _describe(client_config: WebhookClientConfig) -> str:
    service = client_config.get("service") or {}
    return client_config.get("url") or f"service {service.get('namespace')}/{service.get('name')}"
