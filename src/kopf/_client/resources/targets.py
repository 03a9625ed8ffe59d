"""Targets of listings and watches: the objects of one resource in one scope."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kopf._settings.settings import OperatorSettings
from kopf._values.records import FrozenRecord
from kopf._values.resources import Resource

Scope = str | None
"""A namespace, or ``None`` for the whole cluster."""


def describe_scope(scope: Scope) -> str:
    """Describe the scope in short."""
    return "cluster-wide" if scope is None else f"in {scope!r}"


class Shard:
    """
    The part of the objects of one kind that a client asks for.

    ``select`` returns the current ``shardSelector``; it is empty for all objects.
    """

    def __init__(self, select: Callable[[], str]) -> None:
        self.select = select
        self.is_supported: bool | None = None
        """Whether the server selects the objects of this kind; ``None`` if it was not asked yet."""
        self.asking = asyncio.Lock()


class Target(FrozenRecord, frozen=True):
    """All or selected objects of one resource, in one namespace or in the whole cluster."""

    resource: Resource
    scope: Scope = None
    selectors: Mapping[str, str] | None = None
    """
    The server-side selectors, as parameters of requests: ``labelSelector``, ``fieldSelector``, ``shardSelector``. By
    default, ``settings.watching`` has them.
    """
    shard: Shard | None = None
    """The part of the objects to ask for, if the server selects them; the others are possibly received, too."""

    @property
    def path(self) -> str:
        """The path of the URL."""
        return self.resource.get_url(namespace=self.scope)

    @property
    def place(self) -> str:
        """The scope, for people."""
        return "in the whole cluster" if self.scope is None else f"in the namespace {self.scope!r}"

    def get_selectors(self, settings: OperatorSettings) -> dict[str, str]:
        """Get the current server-side selectors as parameters of requests."""
        selectors = self._get_lasting_selectors(settings)
        if self.shard is not None and self.shard.is_supported is not False and (text := self.shard.select()):
            selectors["shardSelector"] = text
        return selectors

    def _get_lasting_selectors(self, settings: OperatorSettings) -> dict[str, str]:
        if self.selectors is not None:
            return dict(self.selectors)
        watching = settings.watching
        selectors: list[tuple[str, Mapping[str, str]]] = [
            ("labelSelector", watching.label_selectors),
            ("fieldSelector", watching.field_selectors),
            ("shardSelector", watching.shard_selectors),
        ]
        return {param: values[self.resource.name] for param, values in selectors if self.resource.name in values}
