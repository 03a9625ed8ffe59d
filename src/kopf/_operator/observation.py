"""
Observation: which resources exist in the cluster, and which of them to watch where.

The resources are discovered at the start, and again whenever the definitions of custom resources change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping

from kopf._client.credentials import LoginError
from kopf._client.discovery import discover
from kopf._client.errors import APIClientError, APIForbiddenError, APINotFoundError
from kopf._client.watch_machine import LISTED, WatchEvent
from kopf._client.watching import watch_batches
from kopf._handlers.registry import HandlersOfResource, OperatorRegistry
from kopf._operator.supervision import keep_running
from kopf._reactor.dispatching import Dispatcher
from kopf._reactor.environment import Environment
from kopf._values.resources import CRDS, Resource

logger = logging.getLogger(__name__)

_SETTLING_TIME = 0.2
"""How long to wait after a definition has changed: they come in bunches, and take a moment to be served."""

_RESCANNING_INTERVAL = 60.0
"""How often to look again at the API groups that were unavailable."""

_DENIAL_BACKOFF = 60.0
"""How often to check if a denied resource is permitted now, or if an absent one has appeared."""


class Observer:
    """Keeps the watchers in line with what the cluster has."""

    def __init__(self, env: Environment, registry: OperatorRegistry, namespaces: Collection[str] | None) -> None:
        self._env = env
        self._registry = registry
        self._namespaces = namespaces
        self._watchers: dict[Resource, ResourceWatcher] = {}
        self._warned: set[str] = set()
        self._discovered: set[str] = set()

    async def run(self) -> None:
        """Discover, watch, and discover again when something has changed, forever."""
        async with asyncio.TaskGroup() as group:
            is_complete = await self._update(group)
            changes = asyncio.Event()
            if not self._env.settings.scanning.disabled and self._can_change():
                watcher = keep_running(
                    "watcher of the resource definitions", lambda: self._watch_definitions(changes), fatal=(LoginError,)
                )
                group.create_task(watcher, name="watcher of the resource definitions")
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changes.wait(), None if is_complete else _RESCANNING_INTERVAL)
                await asyncio.sleep(_SETTLING_TIME)
                changes.clear()
                is_complete = await self._update(group)

    def _can_change(self) -> bool:
        """Built-in groups are never extended at runtime, so there is no need to watch for that."""
        groups = {selector.group for selector in self._registry.get_selectors()}
        return any(group is None or "." in group for group in groups)

    async def _watch_definitions(self, changes: asyncio.Event) -> None:
        listed = False
        try:
            async for events in watch_batches(self._env.api, self._env.settings, CRDS):
                if listed or any(self._is_unknown(event) for event in events):
                    changes.set()
                listed = listed or any(event is LISTED for event in events)
        except APIForbiddenError as e:
            logger.warning(
                "New kinds of custom resources will not be noticed until the restart: %s Permit the verbs 'list' & "
                "'watch' on %r, or set settings.scanning.disabled = True.", e, CRDS.name,
            )
            await asyncio.Event().wait()  # until cancelled

    def _is_unknown(self, event: WatchEvent) -> bool:
        """Tell if the definition is of a resource that has appeared after the discovery, and before the listing."""
        name = event.object.head.name
        groups = {selector.group for selector in self._registry.get_selectors()}
        is_relevant = None in groups or name.partition(".")[2] in groups
        return event is not LISTED and is_relevant and name not in self._discovered

    async def _update(self, group: asyncio.TaskGroup) -> bool:
        """Bring the watchers in line with what there is now; tell if all of the cluster could be looked at."""
        discovery = await discover(self._env.api, self._registry.get_selectors())
        self._discovered = {resource.name for resource in discovery.resources}
        self._warn(discovery.resources)
        plan = self._registry.plan(discovery.resources)
        outdated = {resource for resource, watcher in self._watchers.items() if watcher.handlers != plan.get(resource)}
        for resource in outdated:
            if resource.api_version not in discovery.unavailable:
                await self._watchers.pop(resource).stop()
        for watcher in self._watchers.values():
            watcher.retry()
        if not self._watchers and not outdated:
            self._close_gate(plan)
        for resource in plan.keys() - self._watchers.keys():
            watcher = ResourceWatcher(self._env, resource, plan[resource], is_known=resource in outdated)
            self._watchers[resource] = watcher
            watcher.start(group, self._get_scopes(resource))
        return not discovery.unavailable

    def _close_gate(self, plan: Mapping[Resource, HandlersOfResource]) -> None:
        """Hold the handling back until everything that exists now is indexed, if there is anything to be indexed."""
        indexed = [resource for resource, handlers in plan.items() if handlers.indexing]
        self._env.gate.close_for(
            (resource, namespace) for resource in indexed for namespace in self._get_scopes(resource)
        )

    def _get_scopes(self, resource: Resource) -> Collection[str | None]:
        return [None] if self._namespaces is None or not resource.namespaced else self._namespaces

    def _warn(self, resources: Collection[Resource]) -> None:
        for selector, found in self._registry.get_ambiguities(resources).items():
            names = ", ".join(sorted(map(repr, found)))
            self._warn_once(f"{selector!r} is ambiguous, so it is not served: it can be any of {names}. Add a group.")
        for selector in self._registry.get_unmatched(resources):
            self._warn_once(f"No resource is found for {selector!r}. It will be served as soon as it appears.")

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(message)

    async def stop(self) -> None:
        """Stop watching and let the current handlers finish."""
        await asyncio.gather(*(watcher.stop() for watcher in self._watchers.values()))
        self._watchers.clear()


class ResourceWatcher:
    """Watches one resource in one or several namespaces, or in the whole cluster."""

    def __init__(
        self, env: Environment, resource: Resource, handlers: HandlersOfResource, *, is_known: bool
    ) -> None:
        self.handlers = handlers
        self._env = env
        self._is_known = is_known
        self._resource = resource
        self._indexing = handlers.indexing
        self._dispatcher = Dispatcher(env, resource, handlers)
        self._tasks: list[asyncio.Task[None]] = []
        self._restarted: set[str | None] = set()
        self._retrying = asyncio.Event()

    def retry(self) -> None:
        """If the streams wait because the resource was denied or absent, do not wait: something has changed."""
        self._retrying.set()

    def start(self, group: asyncio.TaskGroup, scopes: Collection[str | None]) -> None:
        """Start the streams in the supervising group."""
        for namespace in scopes:
            self._tasks.append(group.create_task(self._supervise(namespace)))

    async def _supervise(self, namespace: str | None) -> None:
        await keep_running(f"watcher of {self._resource!r}", lambda: self._watch(namespace), fatal=(LoginError,))

    async def _watch(self, namespace: str | None) -> None:
        while True:
            try:
                await self._consume(namespace)
            except (APIForbiddenError, APINotFoundError) as e:
                self._explain(e, namespace)
                self._env.gate.done((self._resource, namespace))
                self._retrying.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._retrying.wait(), _DENIAL_BACKOFF)

    async def _consume(self, namespace: str | None) -> None:
        is_restarted = self._is_known or namespace in self._restarted
        self._restarted.add(namespace)
        async for events in watch_batches(self._env.api, self._env.settings, self._resource, namespace):
            if self._indexing:
                await self._env.indexers.process(self._env, self._resource, self._indexing, events)
            if any(event is LISTED for event in events):
                self._env.gate.done((self._resource, namespace))
            self._dispatcher.accept(_as_known(events) if is_restarted else events)

    def _explain(self, error: APIClientError, namespace: str | None) -> None:
        place = "in the whole cluster" if namespace is None else f"in the namespace {namespace!r}"
        if isinstance(error, APIForbiddenError):
            hint = f"Permit the verbs 'list', 'watch' & 'patch' on {self._resource.name!r} to the operator."
            logger.error("Cannot watch %r %s: %s %s", self._resource, place, error, hint)
        else:
            logger.info("The resource %r is not served %s anymore: %s", self._resource, place, error)

    async def stop(self) -> None:
        """Stop the streams, then the handling."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._dispatcher.stop()


def _as_known(events: list[WatchEvent]) -> list[WatchEvent]:
    """A restarted watcher lists all objects anew, but they are not new to the operator: do not resume them again."""
    return [event if event is LISTED or event.type else WatchEvent("ADDED", event.object) for event in events]
