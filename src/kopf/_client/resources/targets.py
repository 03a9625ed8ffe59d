"""Targets of listings and watches: the objects of one resource in one scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kopf._settings.settings import OperatorSettings
from kopf._values.records import FrozenRecord
from kopf._values.resources import Resource

Scope = str | None
"""A namespace, or ``None`` for the whole cluster."""


class Target(FrozenRecord, frozen=True):
    """The objects of one resource in one namespace or in the whole cluster, or a selection of them."""

    resource: Resource
    scope: Scope = None
    selectors: Mapping[str, str] | None = None
    """
    The server-side selectors, as parameters of requests: ``labelSelector``, ``fieldSelector``, ``shardSelector``. By
    default, those of ``settings.watching``.
    """
    shard: Callable[[], str] | None = None
    """A function that returns the current ``shardSelector``; empty for all objects."""

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
        if self.shard is not None and (text := self.shard()):
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
