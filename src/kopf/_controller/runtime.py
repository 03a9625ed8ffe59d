"""The runtime: the parts of the operator that the handling of objects needs; made at the start, passed explicitly."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._client.http.api import APIClient
from kopf._controller.controller_registry import Controllers
from kopf._controller.indexing.indexers import Indexers
from kopf._controller.indexing.readiness import IndexReadiness
from kopf._controller.memos import Memos
from kopf._controller.observer import Observer
from kopf._controller.pausing import Pause
from kopf._controller.sharing import Share
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.lifecycles import LifeCycleFn
from kopf._handlers.time_source import Clock
from kopf._health.liveness import Liveness
from kopf._logging.once import Once
from kopf._settings.settings import OperatorSettings
from kopf._values.permissions import format_advice
from kopf._values.records import FrozenRecord, field
from kopf._values.resources import Resource


class Runtime(FrozenRecord, frozen=True, kw_only=True):
    """One running operator, for the handling of objects."""

    settings: OperatorSettings
    api: APIClient
    task: asyncio.Task[Any] | None = None
    """The task of the operator. If it is cancelled, all others are to end, too."""
    clock: Clock
    lifecycle: LifeCycleFn
    executor: HandlerExecutor
    memos: Memos
    indices: Mapping[str, Any]
    indexers: Indexers
    index_readiness: IndexReadiness
    """Closed until the indices have the objects that existed before the start."""
    controllers: Controllers = field(default_factory=Controllers)
    """The running controllers, for each other."""
    pause: Pause = field(default_factory=Pause)
    """On while other operators have the priority."""
    share: Share = field(default_factory=Share)
    """The objects of this replica."""
    liveness: Liveness = field(default_factory=Liveness)
    """Signs of life of all parts."""
    warnings: Once = field(default_factory=Once)
    """The warnings that were already logged, so that they are not repeated for every object."""
    told_permissions: set[tuple[str, str, str]] = field(default_factory=set)
    """The missing permissions that were named at the start: the group, the resource, and the verb."""
    observer: Observer = field(default_factory=Observer)
    """The observer of everything that happens."""
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    """The context variables as of the start; tasks begin with a copy, so that they do not see each other's changes."""
    comparable_versions: bool
    """Whether the server guarantees that resource versions can be compared (Kubernetes 1.35 and up)."""

    def advise(
        self,
        denied: str,
        resource: Resource,
        verbs: Iterable[str],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> str:
        """Name the rule to add to the roles for the ``denied`` verb, unless it was named at the start."""
        name = f"{resource.plural}/{subresource}" if subresource else resource.plural
        if (resource.group, name, denied) in self.told_permissions:
            return "The rule is among those that were named at the start."
        return format_advice(resource, verbs, namespace=namespace, subresource=subresource)
