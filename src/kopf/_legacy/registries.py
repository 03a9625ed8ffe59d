"""Sections of the registry: handlers by their kinds, for those who look which ones are declared."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from kopf._handlers.handlers import (
    ActivityHandler,
    ChangingHandler,
    Handler,
    IndexingHandler,
    SpawningHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._handlers.registry import OperatorRegistry

_KINDS: Mapping[str, type[Handler]] = {
    "_activities": ActivityHandler,
    "_changing": ChangingHandler,
    "_indexing": IndexingHandler,
    "_spawning": SpawningHandler,
    "_watching": WatchingHandler,
    "_webhooks": WebhookHandler,
}


class Section:
    """All handlers of one kind, as they are now."""

    def __init__(self, registry: OperatorRegistry, kind: type[Handler]) -> None:
        self._registry = registry
        self._kind = kind

    @property
    def _handlers(self) -> tuple[Handler, ...]:
        """It is a tuple: what is changed in the list would not be seen by the registry."""
        registry = self._registry
        handlers: tuple[Handler, ...] = (*registry.activities, *registry.resources, *registry.webhooks)
        return tuple(handler for handler in handlers if isinstance(handler, self._kind))

    def get_all_handlers(self) -> tuple[Handler, ...]:
        """All handlers of this kind, in the order of their declaration."""
        return self._handlers

    def append(self, handler: Handler) -> None:
        """Add a handler to the registry."""
        self._registry.append(handler)


def get_section(registry: OperatorRegistry, name: str) -> Section:
    """Get the former attribute of the registry. Raises :class:`AttributeError` if there was none."""
    if name not in _KINDS:
        raise AttributeError(f"{type(registry).__name__!r} object has no attribute {name!r}")
    text = f"OperatorRegistry.{name} is private. It has no public counterpart, and can disappear in any version."
    warnings.warn(text, DeprecationWarning, stacklevel=3)
    return Section(registry, _KINDS[name])
