"""Kinds of peering objects: where the operators meet, if the cluster has such a place."""

from __future__ import annotations

from kopf._client.http.api import APIClient
from kopf._client.resources.discovery import discover
from kopf._values.resources import Resource
from kopf._values.selectors import Selector

PEERING_GROUPS = ("kopf.dev", "zalando.org")
"""The API groups of the peering kinds, the preferred one first; the second one is of the earliest versions of Kopf."""


async def find_peering_resource(api: APIClient, *, clusterwide: bool) -> Resource | None:
    """Find the kind of the peering objects for the scope, if it is defined in the cluster; of the preferred group."""
    plural = "clusterkopfpeerings" if clusterwide else "kopfpeerings"
    selectors = [Selector(group=group, plural=plural) for group in PEERING_GROUPS]
    found = [resource for resource in (await discover(api, selectors)).resources if resource.plural == plural]
    found = [resource for resource in found if resource.preferred and resource.namespaced is not clusterwide]
    return min(found, key=lambda resource: PEERING_GROUPS.index(resource.group), default=None)
