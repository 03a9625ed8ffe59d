"""
Observation: which resources exist in the cluster, and which of them to watch where.

The resources are discovered at the start, and again whenever the definitions of custom resources change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIError, APIForbiddenError, APINetworkError
from kopf._client.resources.discovery import Discovery, discover
from kopf._client.resources.watch_machine import LISTED, WatchEvent, WatchMachine
from kopf._client.resources.watching import watch_batches
from kopf._controller.denials import BACKOFF, Denials
from kopf._controller.runtime import Runtime
from kopf._controller.streams import ResourceWatcher, Scope
from kopf._controller.supervision import keep_running
from kopf._coordination.peering import PEERING_GROUPS, Peering
from kopf._handlers.declarations import describe_function
from kopf._handlers.registry import HandlersOfResource, OperatorRegistry
from kopf._operator.namespaces import Namespaces
from kopf._values.permissions import format_advice
from kopf._values.resources import CRDS, Resource
from kopf._values.selectors import EVERYTHING, Selector
from kopf._values.suggestions import suggest

logger = logging.getLogger(__name__)

_SETTLING_TIME = 0.2
"""How long to wait after a definition has changed: they come in bunches, and take a moment to be served."""

_RESCANNING_INTERVAL = 60.0
"""How often to look again at the API groups that were unavailable."""

_SUGGESTING_TIMEOUT = 10.0
"""How long the search of similar resources may hold the warning that some resources are absent, in seconds."""


class Observer:
    """Keeps the watchers in line with what the cluster has."""

    def __init__(
        self, runtime: Runtime, registry: OperatorRegistry, namespaces: Namespaces, peering: Peering
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._namespaces = namespaces
        self._peering = peering
        self._watchers: dict[Resource, ResourceWatcher] = {}
        self._warned: set[str] = set()
        self._unmatched: set[Selector] = set()
        self._discovered: set[str] = set()
        self._unavailable: frozenset[str] = frozenset()
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
        await self._namespaces.start(group, self._runtime.liveness)
        self._namespaces.subscribe(self._follow_namespaces)
        self._peering.serve(self._namespaces.names)
        self._runtime.pause.subscribe(self._follow_pause)
        is_complete = await self._update(group)
        changes = asyncio.Event()
        if not self._runtime.settings.scanning.disabled and self._can_change():
            watcher = keep_running(
                "watcher of the resource definitions",
                lambda: self._watch_definitions(changes),
                fatal=(LoginError,),
                liveness=self._runtime.liveness,
            )
            group.create_task(watcher, name="watcher of the resource definitions")
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changes.wait(), None if is_complete else _RESCANNING_INTERVAL)
            await asyncio.sleep(_SETTLING_TIME)
            changes.clear()
            try:
                is_complete = await self._update(group)
            except (APIError, APINetworkError) as e:
                logger.warning("The resources could not be discovered, another attempt will be made: %s", e)
                is_complete = False

    def _can_change(self) -> bool:
        """Built-in groups are never extended at runtime, so there is no need to watch for that."""
        groups = {selector.group for selector in self._registry.get_selectors()}
        return any(group is None or "." in group for group in groups)

    async def _watch_definitions(self, changes: asyncio.Event) -> None:
        machine = WatchMachine(CRDS)
        denials = Denials(machine)
        listed = False
        while True:
            try:
                with self._runtime.liveness.watching("resource definitions") as heartbeat:
                    batches = watch_batches(
                        self._runtime.api, self._runtime.settings, CRDS, machine=machine, on_activity=heartbeat.beat
                    )
                    async with contextlib.aclosing(batches):
                        async for events in batches:
                            denials.permit(events)
                            if listed or any(self._is_unknown(event) for event in events):
                                changes.set()
                            if listed or not self._peering.is_defined:
                                self._look_for_peering(events)
                            listed = listed or any(event is LISTED for event in events)
            except APIForbiddenError as e:
                if (verb := denials.deny()) is not None:
                    self._explain_denial(verb, e)
                await asyncio.sleep(BACKOFF)

    def _look_for_peering(self, events: Collection[WatchEvent]) -> None:
        if any(event.object.head.name.endswith(PEERING_GROUPS) for event in events):
            self._peering.rescan()

    def _explain_denial(self, verb: str, error: APIForbiddenError) -> None:
        """Say what will not work: nothing of importance if all that is needed is there already."""
        how = "until the restart" if verb == "list" else f"at once, but only every {BACKOFF:g} seconds"
        logger.log(
            logging.WARNING if self._warned or self._unmatched else logging.INFO,
            "New kinds of custom resources will not be noticed %s: not permitted to %s their definitions. "
            "The error: %s. Set settings.scanning.disabled = True if that is fine, or: %s",
            how, verb, error, format_advice(CRDS, ("list", "watch")),
        )

    def _is_unknown(self, event: WatchEvent) -> bool:
        """Tell if the definition is of a resource that has appeared after the discovery, and before the listing."""
        name = event.object.head.name
        groups = {selector.group for selector in self._registry.get_selectors()}
        is_relevant = None in groups or name.partition(".")[2] in groups
        return event is not LISTED and is_relevant and name not in self._discovered

    async def _update(self, group: asyncio.TaskGroup) -> bool:
        """Bring the watchers in line with what there is now; tell if all of the cluster could be looked at."""
        discovery = await discover(self._runtime.api, self._registry.get_selectors())
        self._discovered = {resource.name for resource in discovery.resources}
        self._warn(discovery, group)
        plan = self._registry.plan([resource for resource in discovery.resources if _is_watchable(resource)])
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
            _warn_of_clashes(resource, plan[resource])
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

    def _warn(self, discovery: Discovery, group: asyncio.TaskGroup) -> None:
        unavailable = frozenset(discovery.unavailable)
        if unavailable - self._unavailable:
            details = "; ".join(f"{name} ({error})" for name, error in discovery.unavailable.items())
            logger.warning("Some of the API groups are unavailable, their resources are not known now: %s", details)
        elif self._unavailable and not unavailable:
            logger.info("All API groups are available again.")
        self._unavailable = unavailable
        for selector, found in self._registry.get_ambiguities(discovery.resources).items():
            names = ", ".join(sorted(map(repr, found)))
            self._warn_once(f"{selector} is ambiguous, so it is not served: it can be any of {names}. Add a group.")
        unmatched = [item for item in self._registry.get_unmatched(discovery.resources) if item not in self._unmatched]
        if unmatched:
            self._unmatched.update(unmatched)
            group.create_task(self._warn_of_unmatched(unmatched), name="search of similar resources")
        unwatchable = [resource for resource in discovery.resources if not _is_watchable(resource)]
        for handler in self._registry.resources if unwatchable else ():
            if handler.selector is not None and handler.selector.is_specific:
                for resource in handler.selector.select(unwatchable):
                    verbs = ", ".join(sorted(resource.verbs))
                    self._warn_once(f"{resource!r} cannot be served: its API cannot list & watch, only {verbs}.")

    async def _warn_of_unmatched(self, selectors: Iterable[Selector]) -> None:
        """Say what is not there, and what is: in other groups, too, though they are not needed for anything else."""
        resources: Collection[Resource] = ()
        with contextlib.suppress(APIError, APINetworkError, TimeoutError):  # then, there is nothing to suggest
            async with asyncio.timeout(_SUGGESTING_TIMEOUT):
                resources = (await discover(self._runtime.api, [Selector(EVERYTHING)])).resources
        for selector in selectors:
            parts = [f"No resource is found for {selector}.", suggest(selector, resources)]
            logger.warning(" ".join([*filter(None, parts), "It will be served as soon as it appears."]))

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(message)

    async def stop(self) -> None:
        """Stop watching and let the current handlers finish."""
        await asyncio.gather(*(watcher.stop() for watcher in self._watchers.values()))
        self._watchers.clear()


def _is_watchable(resource: Resource) -> bool:
    """Tell if there is anything to watch: some resources are rather functions of the API, e.g. reviews of tokens."""
    return not resource.verbs or {"list", "watch"} <= resource.verbs


def _warn_of_clashes(resource: Resource, handlers: HandlersOfResource) -> None:
    for one, two in handlers.find_clashes():
        logger.warning(
            "Different handlers of %r have the same id %r: %s and %s. Only one of them is called for each change. "
            "Give them different ids: e.g. @kopf.on.create(…, id='…').",
            resource, two.id, describe_function(one.fn), describe_function(two.fn),
        )
