"""
The resource observer: which resources exist in the cluster, and which of them to watch in which namespaces.

It discovers the resources at the start, and again whenever definitions of custom resources change, or handlers are
declared. Aggregated APIs appear without a definition. So, while anything is missing, it discovers every minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection

from kopf._client.errors import APIError, APINetworkError
from kopf._client.resources.discovery import Discovery, discover
from kopf._controller.runtime import Runtime
from kopf._coordination.peering import Peering
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.discovery_warnings import DiscoveryWarnings, is_watchable
from kopf._operator.namespaces import Namespaces
from kopf._operator.resource_definitions import Definitions
from kopf._operator.watchers import Watchers
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

_SETTLING_TIME = 0.2
"""How long to wait after a change of a definition, in seconds: they come together, and are served a moment later."""

_RESCANNING_INTERVAL = 60.0
"""How often to look for unavailable API groups and for absent resources, in seconds."""


class ResourceObserver:
    """
    Keeps the watchers in line with the resources of the cluster.

    Large because all parts of the operator that depend on a discovery meet here.
    """

    def __init__(self, runtime: Runtime, registry: OperatorRegistry, namespaces: Namespaces, peering: Peering) -> None:
        self._runtime = runtime
        self._registry = registry
        self._namespaces = namespaces
        self._peering = peering
        self._warnings = DiscoveryWarnings(runtime.api, registry)
        self._definitions = Definitions(runtime, registry, peering, is_lacking=lambda: self._warnings.are_given)
        self.watchers = Watchers(runtime, namespaces, clearance=peering.clear)
        self.on_discovery: Callable[[Discovery, Collection[Resource]], None] | None = None
        """Called after every discovery, also with the resources that are watched."""
        self.found: asyncio.Future[tuple[Discovery, Collection[Resource]]] = asyncio.get_running_loop().create_future()
        """The first discovery, and the resources that are watched since then."""

    async def run(self) -> None:
        """Discover and watch, and discover again when something changes, forever."""
        async with asyncio.TaskGroup() as group:
            loop, changed = asyncio.get_running_loop(), self._definitions.changed

            def follow_declarations() -> None:
                loop.call_soon_threadsafe(changed.set)

            self._registry.listeners.append(follow_declarations)
            try:
                await self._run(group)
            finally:
                self._registry.listeners.remove(follow_declarations)
                self.watchers.is_over = True

    async def _run(self, group: asyncio.TaskGroup) -> None:
        await self._namespaces.start(group)
        self._namespaces.on_change = self._follow_namespaces
        self._peering.serve(self._namespaces.names, self._namespaces.terminating)
        self._runtime.pause.subscribe(self.watchers.follow_pause)
        is_complete = await self._update(group)
        changed = self._definitions.changed
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if is_complete else _RESCANNING_INTERVAL):
                    await changed.wait()
            await asyncio.sleep(_SETTLING_TIME)
            changed.clear()
            try:
                is_complete = await self._update(group)
            except (APIError, APINetworkError) as e:
                logger.warning("Cannot discover the resources, and will try again: %s", e)
                is_complete = False

    async def _update(self, group: asyncio.TaskGroup) -> bool:
        """Discover the resources, and update the watchers; return whether there is nothing to look for again."""
        discovery = await discover(self._runtime.api, self._registry.get_selectors())
        self._definitions.discovered = discovery.resources
        self._warnings.look_at(discovery, group)
        self._runtime.indexers.extend(self._registry.get_indexing())
        plan = self._registry.plan([resource for resource in discovery.resources if is_watchable(resource)])
        await self.watchers.update(plan, group, unavailable=discovery.unavailable)
        if self.on_discovery is not None:
            self.on_discovery(discovery, plan.keys())
        if not self.found.done():
            self.found.set_result((discovery, plan.keys()))
        self._definitions.start(group)
        return not discovery.unavailable and not self._is_awaiting(discovery.resources)

    def _is_awaiting(self, resources: Collection[Resource]) -> bool:
        """Tell if a resource that a handler names is absent, and can appear without notice, in an aggregated API."""
        absent = () if self._runtime.settings.scanning.disabled else self._registry.get_unmatched(resources)
        return any(item.is_specific and item.can_be_defined for item in absent)

    def _follow_namespaces(self) -> None:
        """Serve the namespaces that exist now."""
        if not self.watchers.is_over:
            self._peering.serve(self._namespaces.names, self._namespaces.terminating)
            self.watchers.follow_namespaces()
