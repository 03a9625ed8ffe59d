"""
Publishing: keeps the managed webhook configurations in line with the handlers, the resources, and the endpoint.

The same goes for the conversions in the definitions of custom resources. But conversions remain when the operator
exits: without them, the API servers would take the fields unchanged, and lose renamed ones.

Several replicas of an operator share the configurations, and the last writer is the owner. Only the owner removes the
webhooks when it exits: e.g., during the rollout of a deployment, the new pod takes over from the old one. When the
owner is gone, the other replicas notice, and one of them takes over.

Paused operators publish, too, as nobody else may be there to respond. But working operators know more, and so take
precedence: if a paused operator takes over from a working one, the latter takes over again, once. Apart from that,
nobody reacts to the writes of other owners, so there are no fights.

A replica without webhooks of a type never is the owner: when it removes those of an earlier version, a running replica
of that version publishes them again.

The operator needs only the verbs ``create`` and ``patch``. Without ``list`` and ``watch``, it does not notice that
somebody has removed the webhooks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from kopf._admission.managed_configurations import ManagedConfiguration, ManagedDefinition
from kopf._admission.webhook_declarations import CONFIGURATIONS, Declaration, WebhookRecord
from kopf._client.auth.credentials import LoginError
from kopf._client.errors import (
    APIError,
    APIForbiddenError,
    APINetworkError,
    APINotFoundError,
    APIUnprocessableError,
)
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._controller.informer import Informer
from kopf._controller.runtime import Runtime
from kopf._controller.supervision import keep_running
from kopf._handlers.converting import ConversionRoutes
from kopf._handlers.registry import OperatorRegistry
from kopf._values.operator_error import OperatorError
from kopf._values.reasons import WebhookType
from kopf._values.resources import Resource
from kopf._values.reviews import WebhookClientConfig

logger = logging.getLogger(__name__)

_FAREWELL_TIMEOUT = 5.0
"""The longest time of a removal at the exit of the operator, in seconds."""


class WebhookConfigurationError(OperatorError):
    """The operator cannot manage the webhook configurations: the server forbids or rejects them."""


class Publisher:
    """Publishes the webhooks of one type. If there are none, it removes the operator's earlier webhooks."""

    def __init__(self, runtime: Runtime, configuration: ManagedConfiguration, *, is_used: bool) -> None:
        self._runtime = runtime
        self._configuration = configuration
        self._is_used = is_used
        self._declaration: Declaration | None = None
        self._published: Sequence[WebhookRecord] | None = None
        self._attempted: Sequence[WebhookRecord] = []
        self._changed = asyncio.Event()
        self._exists = False

    def declare(self, declaration: Declaration) -> None:
        """Replace the webhooks to publish."""
        self._declaration = declaration
        self._changed.set()

    async def run(self) -> None:
        """Publish all declared webhooks, forever. Raises :class:`WebhookConfigurationError` if that is impossible."""
        name = f"publisher of the {self._configuration.type} webhook configuration"
        fatal = (LoginError, WebhookConfigurationError)
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_running(name, self._keep_published, fatal=fatal, liveness=self._runtime.liveness))
            if self._is_used:
                informer = Informer(self._runtime, self._configuration.target, explain=self._explain)
                group.create_task(informer.run(self._take))

    async def _keep_published(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._declaration is not None:
                try:
                    await self._publish(self._configuration.list_webhooks(self._declaration))
                except BaseException:
                    self._changed.set()  # for the next attempt
                    raise

    async def _publish(self, webhooks: Sequence[WebhookRecord]) -> None:
        if webhooks == self._published:
            return
        configuration = self._configuration
        try:
            if webhooks:
                logger.info("Reconfiguring the %s webhook %s.", configuration.type, configuration.name)
                self._attempted = webhooks
                await configuration.write(webhooks)
            else:
                await self._clear()
        except APIForbiddenError as e:
            raise WebhookConfigurationError(
                f"Not permitted to manage the {configuration.type} webhook configuration {configuration.name!r}: "
                f"{configuration.needs} on {configuration.resource.name!r}, or unset "
                f"settings.admission.managed. Error: {e}"
            ) from e
        except APIUnprocessableError as e:
            raise WebhookConfigurationError(
                f"The {configuration.type} webhook configuration {configuration.name!r} is not accepted; check the "
                f"name in settings.admission.managed, and what the server or tunnel has reported. Error: {e}"
            ) from e
        self._published = webhooks

    async def _clear(self) -> None:
        try:
            await self._configuration.clear()
        except APIForbiddenError as e:
            if self._published:
                raise
            logger.debug("Outdated %s webhooks, if there are any, cannot be removed: %s", self._configuration.type, e)

    def _explain(self, verb: str, error: APIForbiddenError) -> None:
        logger.info(
            "If something removes the %s webhooks of %s, the operator will not notice it%s: %s",
            self._configuration.type,
            self._configuration.name,
            "" if verb == "list" else " at once",
            error,
        )

    async def _take(self, events: Collection[WatchEvent]) -> None:
        """Notice that somebody has removed the webhooks, or that a paused operator has taken over."""
        for event in events:
            if event is LISTED:
                is_fine = self._exists
            else:
                self._exists = event.type != "DELETED"
                is_fine = self._exists and self._configuration.is_in_good_hands(event.object)
            if not is_fine and self._published:
                self.reclaim()

    def reclaim(self) -> None:
        """Publish again, e.g. after a pause: meanwhile, another operator can have come and gone without a trace."""
        self._published = None
        self._changed.set()

    async def retire(self) -> None:
        """Remove the webhooks that are not persistent, and leave the others, if this replica still owns them."""
        configuration = self._configuration
        if self._declaration is None or not self._attempted:
            return
        remaining = configuration.list_webhooks(self._declaration, persistent_only=True)
        try:
            async with asyncio.timeout(_FAREWELL_TIMEOUT):
                await configuration.hand_over(remaining)
        except (APINotFoundError, APIUnprocessableError):
            logger.debug("The %s webhooks of %s are no longer ours.", configuration.type, configuration.name)
        except (APIError, APINetworkError, LoginError, TimeoutError) as e:
            if isinstance(e, APIForbiddenError) and not self._published:
                return  # publishing was not permitted either, so nothing is left to remove
            text = configuration.leftover.format(
                type=configuration.type, resource=configuration.resource.plural, name=configuration.name
            )
            logger.warning("%s The reason: %s", text, str(e) or type(e).__name__)


class Publication:
    """
    The configurations of all types with the name ``managed``, and the conversions of all definitions that have any.

    Each type of webhooks has a publisher, even without handlers of that type: earlier versions of the operator can have
    left webhooks there.
    """

    def __init__(
        self, runtime: Runtime, registry: OperatorRegistry, managed: str, routes: Iterable[ConversionRoutes]
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._managed = managed
        types = {handler.type for handler in registry.webhooks}
        self._admission = [
            Publisher(
                runtime, ManagedConfiguration(runtime, CONFIGURATIONS[type], type, managed), is_used=type in types
            )
            for type in WebhookType
        ]
        self._conversions = [Publisher(runtime, ManagedDefinition(runtime, item), is_used=True) for item in routes]
        self._publishers = [*self._admission, *self._conversions]
        runtime.pause.subscribe(self._accept_pause)

    def declare(self, resources: Collection[Resource], client_config: WebhookClientConfig) -> None:
        """From now on, publish the webhooks of all handlers for these resources."""
        declaration = Declaration(
            managed=self._managed,
            handlers=self._registry.webhooks,
            plan=self._registry.plan_webhooks(resources),
            client_config=client_config,
        )
        for publisher in self._publishers:
            publisher.declare(declaration)

    async def run(self, wait_until_ready: Callable[[], Awaitable[None]]) -> None:
        """Keep the configurations as declared, forever; for the admission, as soon as it is ready."""
        async with asyncio.TaskGroup() as group:
            for publisher in self._conversions:
                group.create_task(publisher.run())
            await wait_until_ready()
            for publisher in self._admission:
                group.create_task(publisher.run())

    def _accept_pause(self) -> None:
        if not self._runtime.pause.is_on:
            for publisher in self._admission:
                publisher.reclaim()

    async def retire(self) -> None:
        """Remove the webhooks that are not persistent."""
        await asyncio.gather(*(publisher.retire() for publisher in self._publishers))
