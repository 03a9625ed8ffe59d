"""
Namespaces: which ones are served now, if the operator is restricted to some namespaces.

A namespace is served as long as it exists, even while it terminates, so that the operator can finish with the objects
there. If the operator may not list namespaces, it serves the exact names as if they existed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection

from kopf._client.errors import APIForbiddenError
from kopf._client.http.api import APIClient
from kopf._client.resources.listing import list_pages
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._controller.informer import RETRYING_INTERVAL, Informer
from kopf._controller.runtime import Runtime
from kopf._operator.namespace_patterns import NamespacePattern, get_exact, matches_any
from kopf._settings.settings import OperatorSettings
from kopf._values.resources import NAMESPACES

logger = logging.getLogger(__name__)


async def list_matching(
    api: APIClient, settings: OperatorSettings, patterns: Collection[NamespacePattern]
) -> Collection[str]:
    """List the existing namespaces that match any of the patterns."""
    names: set[str] = set()
    async with contextlib.aclosing(list_pages(api, settings, Target(NAMESPACES))) as pages:
        async for page in pages:
            names.update(obj.head.name for obj in page.objects if matches_any(obj.head.name, patterns))
    return names


class Namespaces:
    """The served namespaces. Without patterns, the whole cluster is served, and namespaces are not watched."""

    def __init__(self, runtime: Runtime, patterns: Collection[NamespacePattern]) -> None:
        self._runtime = runtime
        self._patterns = patterns
        self._found: dict[str, bool] = {}
        """The existing namespaces, and whether they are being deleted."""
        self._is_listed = False
        self._known = asyncio.Event()
        self.on_change: Callable[[], None] | None = None
        """Called every time when the served namespaces change, or begin to terminate."""
        self.names: frozenset[str | None] = frozenset() if patterns else frozenset({None})
        """The names of the served namespaces; ``None`` is for the whole cluster."""
        self.terminating: frozenset[str] = frozenset()
        """The served namespaces that are being deleted."""

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Find the current namespaces; go on watching them in the background, unless this is disabled."""
        if not self._patterns:
            return
        if self._runtime.settings.scanning.disabled:
            await self._look_once()
            return
        informer = Informer(
            self._runtime, Target(NAMESPACES), explain=self._explain, on_obstacle=lambda is_absent: self._update()
        )
        group.create_task(informer.run(self._take), name="watcher of the namespaces")
        await self._known.wait()

    async def _look_once(self) -> None:
        self._found.update(dict.fromkeys(get_exact(self._patterns), False))
        if len(self._found) < len(self._patterns):
            try:
                found = await list_matching(self._runtime.api, self._runtime.settings, self._patterns)
                self._found.update(dict.fromkeys(found, False))
            except APIForbiddenError as e:
                self._explain("list", e)
        self._is_listed = True
        self._update()

    async def _take(self, events: Collection[WatchEvent]) -> None:
        for event in events:
            if event is LISTED:
                self._is_listed = True
            elif event.type == "DELETED":
                self._found.pop(event.object.head.name, None)
            else:
                self._found[event.object.head.name] = event.object.head.deletionTimestamp is not None
        if self._is_listed:
            self._update()

    def _update(self) -> None:
        """Update the served namespaces, and notify of changes."""
        candidates = self._found if self._is_listed else get_exact(self._patterns)
        names = frozenset(name for name in candidates if matches_any(name, self._patterns))
        if not self._known.is_set():
            self._explain_absence(names)
        terminating = frozenset(name for name in names if self._found.get(name))
        has_changed = (names, terminating) != (self.names, self.terminating)
        self.names, self.terminating = names, terminating
        self._known.set()
        if has_changed and self.on_change is not None:
            self.on_change()

    def _explain_absence(self, names: Collection[str]) -> None:
        """Warn about patterns without namespaces: they can be typos."""
        absent = [str(item) for item in self._patterns if not any(matches_any(name, [item]) for name in names)]
        if self._is_listed and absent:
            is_late = self._runtime.settings.scanning.disabled
            outlook = "will not be noticed until the restart" if is_late else "will be served if they appear"
            logger.warning("No namespaces match %s. They %s.", ", ".join(absent), outlook)

    def _explain(self, verb: str, error: APIForbiddenError) -> None:
        """Log the consequences of a denial. With only exact names, everything works, if the namespaces exist."""
        exact = sorted(get_exact(self._patterns))
        patterns = [str(item) for item in self._patterns if item not in exact]
        if self._is_listed:
            consequences = f"They are listed every {RETRYING_INTERVAL:g} seconds instead."
        elif patterns:
            consequences = f"The namespaces that match {', '.join(patterns)} are not served, only the exact names are."
        else:
            consequences = f"These are served as if they exist: {', '.join(exact)}."
        logger.log(
            logging.ERROR if patterns else logging.INFO,
            "Not permitted to %s the namespaces. %s The error: %s. %s",
            verb,
            consequences,
            error,
            self._runtime.advise(verb, NAMESPACES, ("list", "watch")),
        )
