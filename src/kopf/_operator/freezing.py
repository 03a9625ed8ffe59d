"""Freezing: a record in peering objects that belongs to no operator, and pauses the real ones for some time."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from typing import Any

from kopf._client.errors import APINotFoundError
from kopf._client.http.api import APIClient
from kopf._client.resources.targets import Scope, describe_scope
from kopf._coordination.peering import find_peering_resource
from kopf._coordination.peers import Peers
from kopf._coordination.records import get_records, get_subresource, patch_records
from kopf._operator.access import Access, naming_rule
from kopf._operator.namespace_patterns import NamespacePattern, check_patterns, get_exact
from kopf._operator.namespaces import list_matching
from kopf._settings.settings import OperatorSettings
from kopf._values.objects import KubeObject
from kopf._values.operator_error import OperatorError
from kopf._values.resources import NAMESPACES


class MissingPeeringError(OperatorError):
    """There is no such peering object, or even no such kind."""


async def put_record(
    access: Access,
    identity: str,
    record: Mapping[str, Any] | None,
    *,
    name: str,
    patterns: Collection[NamespacePattern],
) -> Mapping[str, bool]:
    """
    Put the record into the peering objects of that name in the matching namespaces, or into the one of the cluster.

    With no record, the existing one is removed. Returns the places, for humans, and whether operators have live
    records there. Raises :class:`MissingPeeringError` if there are no such objects; :class:`OperatorError` if the
    permissions are missing; :class:`LoginError`, :class:`APIError`, and :class:`APINetworkError` if the cluster cannot
    be talked to.
    """
    async with access.connected() as api:
        resource = await find_peering_resource(api, clusterwide=not patterns)
        if resource is None:
            kind = "KopfPeering" if patterns else "ClusterKopfPeering"
            raise MissingPeeringError(f"The kind {kind} is not defined in the cluster: no operator can be paused.")
        checked = check_patterns(patterns)
        places: dict[str, bool] = {}
        missing: list[str] = []
        for scope in await _find_scopes(api, access.settings, checked):
            place = f"{name!r} {describe_scope(scope)}"
            try:
                with naming_rule(resource, "patch", subresource=get_subresource(resource)):
                    peering = await patch_records(api, resource, scope, name, {identity: record})
            except APINotFoundError:
                missing.append(place)
            else:
                places[place] = _has_operators(peering, identity)
        if missing and (not places or len(get_exact(checked)) == len(checked)):
            raise MissingPeeringError(f"The peering object {', '.join(missing)} does not exist ({resource!r}).")
        return places


async def _find_scopes(
    api: APIClient, settings: OperatorSettings, patterns: Collection[NamespacePattern]
) -> Collection[Scope]:
    if not patterns:
        return [None]
    exact = get_exact(patterns)
    with naming_rule(NAMESPACES, "list"):
        names = exact if len(exact) == len(patterns) else await list_matching(api, settings, patterns)
    if not names:
        raise MissingPeeringError(f"There are no namespaces that match {', '.join(map(str, patterns))}.")
    return sorted(names)


def _has_operators(peering: KubeObject, identity: str) -> bool:
    """Tell if anybody else has a live record there. The clocks are trusted, as it is only for a hint."""
    peers = Peers(identity)
    peers.take(get_records(peering), now=datetime.datetime.now(datetime.UTC), time=0)
    return peers.get_next_death(time=0) is not None
