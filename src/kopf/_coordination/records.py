"""Records of the operators in the peering objects: how they are read and written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kopf._client.http.api import APIClient
from kopf._client.resources.targets import Scope
from kopf._controller.runtime import Runtime
from kopf._coordination.peers import Peer
from kopf._settings.settings import PeeringSettings
from kopf._values.codec import UnreadableError
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

_BACKOFFS = (1, 2)
"""Delays between the attempts of one keep-alive, in seconds: the next one comes soon anyway."""

_TIMEOUT = 5.0
"""How long one attempt may take, in seconds: it must not hang until others consider us dead."""


@dataclasses.dataclass(frozen=True)
class Site:
    """Where the operator meets the others, and who it is there."""

    runtime: Runtime
    identity: str
    scope: Scope

    @property
    def settings(self) -> PeeringSettings:
        """How to take part."""
        return self.runtime.settings.peering

    @property
    def place(self) -> str:
        """Where it is, for humans."""
        where = "cluster-wide" if self.scope is None else f"in {self.scope!r}"
        return f"{self.settings.name!r} {where}"

    @property
    def group(self) -> str:
        """Of which replicas the operator is one; empty if of none."""
        coordination = self.runtime.settings.coordination
        return "" if coordination.mode is None else f"{coordination.namespace}/{coordination.name}"

    def describe_us(self) -> Peer:
        """Describe the operator as the others are to see it now."""
        settings, now = self.settings, self.runtime.clock.now()
        return Peer(self.identity, settings.priority, settings.lifetime, now, group=self.group)


async def patch_records(
    api: APIClient,
    resource: Resource,
    scope: Scope,
    name: str,
    records: Mapping[str, Mapping[str, Any] | None],
) -> KubeObject:
    """
    Put the records into the peering object; remove those that are ``None``.

    Raises :class:`APIError`, :class:`APINetworkError`, :class:`LoginError`, rather soon.
    """
    path = resource.get_url(namespace=scope, name=name, subresource=get_subresource(resource))
    content = await api.patch(path, payload={"status": records}, timeout=_TIMEOUT, backoffs=_BACKOFFS)
    return KubeObject.from_json(content)


def get_subresource(resource: Resource) -> str | None:
    """Tell through which subresource the records are to be written; ``None`` for the object itself."""
    return "status" if "status" in resource.subresources else None


def get_records(obj: KubeObject) -> object:
    """Get the records as far as they can be decoded: what cannot be, is nothing that an operator has written."""
    try:
        return obj.get("status")
    except UnreadableError:
        return obj.get_readable("status")
