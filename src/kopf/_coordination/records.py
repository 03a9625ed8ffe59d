"""Records of operators in the peering objects: reading and writing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kopf._client.http.api import APIClient
from kopf._client.resources.targets import Scope, describe_scope
from kopf._controller.runtime import Runtime
from kopf._coordination.peers import Peer
from kopf._handlers.time_source import time_source
from kopf._settings.settings import PeeringSettings
from kopf._values.codec import UnreadableError
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

_BACKOFFS = (1, 2)
"""Delays between the attempts of one keep-alive, in seconds: the next one comes soon anyway."""

_TIMEOUT = 5.0
"""How long one attempt may take, in seconds: much less than the lifetime of the record."""


@dataclasses.dataclass(frozen=True)
class Site:
    """The place where the operator meets others, and its identity there."""

    runtime: Runtime
    identity: str
    scope: Scope

    @property
    def settings(self) -> PeeringSettings:
        """The settings of the peering."""
        return self.runtime.settings.peering

    @property
    def place(self) -> str:
        """The place, for humans."""
        return f"{self.settings.name!r} {describe_scope(self.scope)}"

    @property
    def group(self) -> str:
        """Of which replicas the operator is one; empty if of none."""
        coordination = self.runtime.settings.coordination
        return "" if coordination.mode is None else f"{coordination.namespace}/{coordination.name}"

    def describe_us(self) -> Peer:
        """Make the current record of this operator."""
        settings, now = self.settings, time_source.get().now()
        return Peer(self.identity, settings.priority, settings.lifetime, now, group=self.group)


async def patch_records(
    api: APIClient,
    resource: Resource,
    scope: Scope,
    name: str,
    records: Mapping[str, Mapping[str, Any] | None],
) -> KubeObject:
    """
    Put the records into the peering object; remove records that are ``None``.

    Raises :class:`APIError`, :class:`APINetworkError`, :class:`LoginError`, after few retries.
    """
    path = resource.get_url(namespace=scope, name=name, subresource=get_subresource(resource))
    content = await api.patch(path, payload={"status": records}, timeout=_TIMEOUT, backoffs=_BACKOFFS)
    return KubeObject.from_json(content)


def get_subresource(resource: Resource) -> str | None:
    """Return the subresource for writing the records; ``None`` for the object itself."""
    return "status" if "status" in resource.subresources else None


def get_records(obj: KubeObject) -> object:
    """Return the readable part of the records: no operator has written the rest."""
    try:
        return obj.get("status")
    except UnreadableError:
        return obj.get_readable("status")
