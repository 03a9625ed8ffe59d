"""
The resource observer: which resources exist in the cluster, and which of them to watch where.

The resources are discovered at the start, and again whenever the definitions of custom resources change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping

from kopf._client.errors import APIError, APINetworkError
from kopf._client.resources.discovery import Discovery, discover
from kopf._client.resources.targets import Scope
from kopf._controller.runtime import Runtime
from kopf._controller.streams import ResourceWatcher
from kopf._coordination.peering import Peering
from kopf._handlers.registry import HandlersOfResource, OperatorRegistry
from kopf._operator.discovery_warnings import DiscoveryWarnings, is_watchable, warn_of_clashes
from kopf._operator.namespaces import Namespaces
from kopf._operator.resource_definitions import Definitions
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

_SETTLING_TIME = 0.2
"""How long to wait after a definition has changed: they come in bunches, and take a moment to be served."""

_RESCANNING_INTERVAL = 60.0
"""How often to look again at the API groups that were unavailable."""


class ResourceObserver:
    """
    Keeps the watchers in line with what the cluster has.

    It has one attribute more than classes usually have here: it is where the namespaces, the peering, and the handlers
    meet.
    """

    def __init__(
        self, runtime: Runtime, registry: OperatorRegistry, namespaces: Namespaces, peering: Peering
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._namespaces = namespaces
        self._peering = peering
        self._warnings = DiscoveryWarnings(runtime.api, registry)
        self._definitions = Definitions(runtime, registry, peering, is_lacking=lambda: self._warnings.are_given)
        self._watchers: dict[Resource, ResourceWatcher] = {}
        self._listeners: list[Callable[[Discovery, Collection[Resource]], None]] = []
        self._is_over = False

    def subscribe(self, listener: Callable[[Discovery, Collection[Resource]], None]) -> None:
        """Call it every time when the resources are discovered, and with those of them that are watched."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Discover, watch, and discover again when something has changed, forever."""
        async with asyncio.TaskGroup() as group:
            try:
                await self._run(group)
            finally:
                self._is_over = True

    async def _run(self, group: asyncio.TaskGroup) -> None:
        await self._namespaces.start(group)
        self._namespaces.subscribe(self._follow_namespaces)
        self._peering.serve(self._namespaces.names)
        self._runtime.pause.subscribe(self._follow_pause)
        is_complete = await self._update(group)
        self._definitions.start(group)
        changed = self._definitions.changed
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), None if is_complete else _RESCANNING_INTERVAL)
            await asyncio.sleep(_SETTLING_TIME)
            changed.clear()
            try:
                is_complete = await self._update(group)
            except (APIError, APINetworkError) as e:
                logger.warning("The resources could not be discovered, another attempt will be made: %s", e)
                is_complete = False

    async def _update(self, group: asyncio.TaskGroup) -> bool:
        """Bring the watchers in line with what there is now; tell if all of the cluster could be looked at."""
        discovery = await discover(self._runtime.api, self._registry.get_selectors())
        self._definitions.discovered = {resource.name for resource in discovery.resources}
        self._warnings.look_at(discovery, group)
        plan = self._registry.plan([resource for resource in discovery.resources if is_watchable(resource)])
        outdated = {resource for resource, watcher in self._watchers.items() if watcher.handlers != plan.get(resource)}
        for resource in outdated:
            if resource.api_version not in discovery.unavailable:
                outgoing = self._watchers.pop(resource)
                await outgoing.stop()
                outgoing.release()
        for watcher in self._watchers.values():
            watcher.retry()
        if not self._watchers and not outdated:
            self._close_gate(plan)
        for resource in plan.keys() - self._watchers.keys():
            warn_of_clashes(resource, plan[resource])
            watcher = ResourceWatcher(
                self._runtime,
                resource,
                plan[resource],
                group,
                is_known=resource in outdated,
                clearance=self._peering.clear,
            )
            self._watchers[resource] = watcher
            if self._runtime.pause.is_on:
                watcher.pause()
            watcher.serve(self._get_scopes(resource))
        for listener in self._listeners:
            listener(discovery, plan.keys())
        return not discovery.unavailable

    def _close_gate(self, plan: Mapping[Resource, HandlersOfResource]) -> None:
        """Hold the handling back until everything that exists now is indexed, if there is anything to be indexed."""
        indexed = [resource for resource, handlers in plan.items() if handlers.indexing]
        self._runtime.gate.close_for(
            (resource, namespace) for resource in indexed for namespace in self._get_scopes(resource)
        )

    def _get_scopes(self, resource: Resource) -> Collection[Scope]:
        return self._namespaces.names if resource.namespaced else [None]

    def _follow_namespaces(self) -> None:
        """Serve those namespaces that exist now."""
        if not self._is_over:
            self._peering.serve(self._namespaces.names)
            for resource, watcher in self._watchers.items():
                watcher.serve(self._get_scopes(resource))

    def _follow_pause(self) -> None:
        """Stop and go on together with the operator."""
        if self._is_over:
            return
        if not self._runtime.pause.is_on:
            self._close_gate({resource: watcher.handlers for resource, watcher in self._watchers.items()})
        for watcher in self._watchers.values():
            watcher.pause() if self._runtime.pause.is_on else watcher.resume()

    async def stop(self) -> None:
        """Stop watching and let the current handlers finish."""
        await asyncio.gather(*(watcher.stop() for watcher in self._watchers.values()))
        self._watchers.clear()
