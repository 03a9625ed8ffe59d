"""
Watchers: the watchers of all resources, in line with the handlers, the served namespaces, and the pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from kopf._client.resources.targets import Scope
from kopf._controller.runtime import Runtime
from kopf._controller.streams import Clearance, ResourceWatcher
from kopf._handlers.registry import HandlersOfResource
from kopf._operator.discovery_warnings import warn_of_clashes
from kopf._operator.namespaces import Namespaces
from kopf._values.resources import Resource
from kopf._values.slots import Slots

_PATIENCE = 60.0
"""How long running handlers may delay newly declared ones, until they are cancelled, in seconds."""


class Watchers:
    """The watchers of all served resources."""

    def __init__(self, runtime: Runtime, namespaces: Namespaces, clearance: Clearance) -> None:
        self._runtime = runtime
        self._namespaces = namespaces
        self._clearance = clearance
        self._watchers: dict[Resource, ResourceWatcher] = {}
        self._outgoing: list[ResourceWatcher] = []
        self._indices: set[str] = set()
        self.is_over = False
        """Whether nothing may start anymore."""

    async def update(
        self,
        plan: Mapping[Resource, HandlersOfResource],
        group: asyncio.TaskGroup,
        *,
        unavailable: Collection[str],
    ) -> None:
        """
        Watch the planned resources with their planned handlers, in tasks of the group.

        Resources of unavailable API groups are watched as before.
        """
        known: dict[Resource, Slots] = {}
        traits = {resource: _get_traits(resource) for resource in plan}
        outdated = {
            resource
            for resource, watcher in self._watchers.items()
            if watcher.handlers != plan.get(resource) or _get_traits(resource) != traits[resource]
        }
        for resource in sorted(outdated, key=str):
            if resource.api_version not in unavailable:
                outgoing = self._watchers[resource]
                if resource in plan:
                    await outgoing.settle(_PATIENCE)
                self._outgoing.append(self._watchers.pop(resource))
                await outgoing.stop()
                outgoing.release()
                known[resource] = self._runtime.share.slots - outgoing.unlisted
                self._outgoing.remove(outgoing)
        for watcher in self._watchers.values():
            watcher.retry()
        added = plan.keys() - self._watchers.keys()
        self._close_gate_for_new(
            {resource: plan[resource] for resource in added}, is_first=not self._watchers and not outdated
        )
        for resource in sorted(added, key=str):  # the same way every time
            self._add(resource, plan[resource], group, known=known.get(resource, frozenset()))

    def _add(self, resource: Resource, handlers: HandlersOfResource, group: asyncio.TaskGroup, *, known: Slots) -> None:
        warn_of_clashes(resource, handlers)
        watcher = ResourceWatcher(self._runtime, resource, handlers, group, known=known, clearance=self._clearance)
        self._watchers[resource] = watcher
        if self._runtime.pause.is_on:
            watcher.pause()
        watcher.serve(self._get_scopes(resource))
        if not known:  # handlers of other resources can wait for this one since before it existed
            for dependent, ids in (*handlers.owners.items(), *handlers.users.items()):
                if dependent in self._watchers:
                    self._watchers[dependent].controller.wake_all(ids)

    def _close_gate_for_new(self, added: Mapping[Resource, HandlersOfResource], *, is_first: bool) -> None:
        """Wait for the indices declared since the last time: the earlier ones are filled already."""
        known = set() if is_first else self._indices
        self._indices = {*self._runtime.indices}
        new = self._indices - known
        self._close_gate(
            {
                resource: handlers
                for resource, handlers in added.items()
                if handlers.owners or handlers.is_used or any(handler.id in new for handler in handlers.indexing)
            }
        )

    def _close_gate(self, plan: Mapping[Resource, HandlersOfResource]) -> None:
        """Delay the handling until all existing objects are indexed or known, where this is needed."""
        indexed = [item for item, handlers in plan.items() if handlers.is_seen_whole]
        self._runtime.index_readiness.close_for(
            (resource, namespace) for resource in indexed for namespace in self._get_scopes(resource)
        )

    def _get_scopes(self, resource: Resource) -> Collection[Scope]:
        return self._namespaces.names if resource.namespaced else [None]

    def follow_namespaces(self) -> None:
        """Serve the namespaces that exist now."""
        for resource, watcher in self._watchers.items():
            watcher.serve(self._get_scopes(resource))

    def follow_pause(self) -> None:
        """Stop and go on together with the operator."""
        if self.is_over:
            return
        if not self._runtime.pause.is_on:
            self._close_gate_for_all()
        for watcher in self._watchers.values():
            watcher.pause() if self._runtime.pause.is_on else watcher.resume()

    def _close_gate_for_all(self) -> None:
        self._close_gate({resource: watcher.handlers for resource, watcher in self._watchers.items()})

    def list_all(self) -> list[ResourceWatcher]:
        """List the watchers, including stopping ones."""
        return [*self._watchers.values(), *self._outgoing]

    def take_over(self, slots: Slots) -> None:
        """Handle the objects of these slots, too: list everything anew."""
        if self.is_over:
            return
        if not self._runtime.pause.is_on:
            self._close_gate_for_all()
        for watcher in self._watchers.values():
            watcher.take_over(slots)

    async def stop(self) -> None:
        """Stop watching, and let running handlers finish."""
        await asyncio.gather(*(watcher.stop() for watcher in self._watchers.values()))
        self._watchers.clear()


def _get_traits(resource: Resource) -> tuple[object, ...]:
    """Return what affects the handling, and changes if the resource is defined anew."""
    return resource.namespaced, resource.kind, resource.subresources
