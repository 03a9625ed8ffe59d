"""
Publication: all managed configurations of one operator, which are declared, renewed, and removed together.

There is one publisher for each type of webhooks, also if there are no handlers of that type now: earlier versions of
the operator could have left their webhooks there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from kopf._admission.configurations import Declaration
from kopf._admission.publishing import Publisher
from kopf._controller.runtime import Runtime
from kopf._handlers.registry import OperatorRegistry
from kopf._values.reasons import WebhookType
from kopf._values.resources import Resource
from kopf._values.reviews import WebhookClientConfig


class Publication:
    """The configurations with the name ``managed``, of all types."""

    def __init__(self, runtime: Runtime, registry: OperatorRegistry, managed: str) -> None:
        self._runtime = runtime
        self._registry = registry
        self._managed = managed
        types = {handler.type for handler in registry.webhooks}
        self._publishers = [Publisher(runtime, type, managed, is_used=type in types) for type in WebhookType]
        runtime.pause.subscribe(self._accept_pause)

    def declare(self, resources: Collection[Resource], client_config: WebhookClientConfig) -> None:
        """Take what is to be published: the webhooks of all handlers for these resources."""
        declaration = Declaration(
            managed=self._managed,
            handlers=self._registry.webhooks,
            plan=self._registry.plan_webhooks(resources),
            client_config=client_config,
        )
        for publisher in self._publishers:
            publisher.declare(declaration)

    async def run(self) -> None:
        """Keep the configurations as they are declared, forever."""
        async with asyncio.TaskGroup() as group:
            for publisher in self._publishers:
                group.create_task(publisher.run())

    def _accept_pause(self) -> None:
        if not self._runtime.pause.is_on:
            for publisher in self._publishers:
                publisher.reclaim()

    async def retire(self) -> None:
        """Remove the webhooks that are not persistent."""
        await asyncio.gather(*(publisher.retire() for publisher in self._publishers))
