"""
Definitions of custom resources: whether they have changed since the discovery of the resources.

They are watched because discovery has no notifications. Any change in them causes a new discovery of everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kopf._client.errors import APIForbiddenError
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._controller.informer import RETRYING_INTERVAL, Informer
from kopf._controller.runtime import Runtime
from kopf._coordination.peering import PEERING_GROUPS, Peering
from kopf._handlers.registry import OperatorRegistry
from kopf._values.codec import UnreadableError
from kopf._values.resources import CRDS, Resource

logger = logging.getLogger(__name__)


class Definitions:
    """
    The definitions of custom resources in the cluster.

    ``is_lacking`` tells if resources are missing that could appear: then it matters if watching is not permitted.
    """

    def __init__(
        self, runtime: Runtime, registry: OperatorRegistry, peering: Peering, *, is_lacking: Callable[[], bool]
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._peering = peering
        self._is_lacking = is_lacking
        self._is_started = False
        self._is_listed = False
        self.changed = asyncio.Event()
        """Set when a new discovery is needed."""
        self.discovered: Collection[Resource] = ()
        """The known resources: their definitions are no news in the first listing."""

    def start(self, group: asyncio.TaskGroup) -> None:
        """Watch for changes in the background, unless it does already, it is disabled, or changes cannot matter."""
        can_change = any(selector.can_be_defined for selector in self._registry.get_selectors())
        if can_change and not self._is_started and not self._runtime.settings.scanning.disabled:
            self._is_started = True
            informer = Informer(self._runtime, Target(CRDS), explain=self._explain)
            group.create_task(informer.run(self._take), name="watcher of the resource definitions")

    async def _take(self, events: Collection[WatchEvent]) -> None:
        if self._is_listed or any(self._is_unknown(event) for event in events):
            self.changed.set()
        is_about_peering = any(event.object.head.name.endswith(PEERING_GROUPS) for event in events)
        if is_about_peering and (self._is_listed or not self._peering.is_defined):
            self._peering.rescan()
        self._is_listed = self._is_listed or any(event is LISTED for event in events)

    def _is_unknown(self, event: WatchEvent) -> bool:
        """Tell if the definition has appeared or changed between the discovery and the listing."""
        name = event.object.head.name
        groups = {selector.group for selector in self._registry.get_selectors()}
        is_relevant = None in groups or name.partition(".")[2] in groups
        if event is LISTED or not is_relevant:
            return False
        known = {
            (item.version, item.kind, item.namespaced, item.subresources)
            for item in self.discovered
            if item.name == name
        }
        try:
            return known != _list_versions(event.object["spec"])
        except (KeyError, TypeError, UnreadableError):  # a malformed definition
            return not known

    def _explain(self, verb: str, error: APIForbiddenError) -> None:
        """Log the consequences of a denial: nothing important, if all needed resources exist."""
        how = f"every {RETRYING_INTERVAL:g} seconds" + (" if a handler names them" if verb == "list" else "")
        logger.log(
            logging.WARNING if self._is_lacking() else logging.INFO,
            "New kinds of custom resources will not be noticed at once, but only %s: not permitted to %s their "
            "definitions. The error: %s. Set settings.scanning.disabled = True if that is fine, or: %s",
            how,
            verb,
            error,
            self._runtime.advise(verb, CRDS, ("list", "watch")),
        )


def _list_versions(spec: Mapping[str, Any]) -> set[tuple[object, ...]]:
    """List the served versions of the definition, as the discovery has them."""
    kind, is_namespaced = spec["names"]["kind"], spec["scope"] == "Namespaced"
    served = [version for version in spec["versions"] if version["served"]]
    return {(item["name"], kind, is_namespaced, frozenset(item.get("subresources") or ())) for item in served}
