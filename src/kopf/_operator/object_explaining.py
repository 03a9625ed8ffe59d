"""
Explaining an object without an operator: by the data in the cluster, and by the handlers of its files, if given.

It writes nothing. Data that it may not read is left out, with a note.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import datetime
from collections.abc import AsyncIterator, Mapping
from typing import Any

from kopf._client.errors import APIError, APIForbiddenError, APINetworkError, APINotFoundError
from kopf._client.http.api import APIClient
from kopf._client.resources.discovery import discover
from kopf._client.resources.listing import list_pages
from kopf._client.resources.targets import Target, describe_scope
from kopf._coordination.peering import find_peering_resource
from kopf._coordination.peers import Peer, Peers, name_peers
from kopf._coordination.replica_survey import list_groups
from kopf._handlers.handlers import ResourceHandler
from kopf._handlers.registry import HandlersOfResource, OperatorRegistry
from kopf._insight.explaining.assembly import explain, find_resources
from kopf._insight.explaining.dry_run import Facts
from kopf._insight.explaining.explanation import EventInfo, Explanation, Query
from kopf._insight.explaining.guessed_storage import adapt_persistence
from kopf._insight.explaining.redacted_texts import MAX_ERROR, RedactedTexts, shorten
from kopf._operator.access import Access
from kopf._settings.settings import MAX_PRIORITY, OperatorSettings
from kopf._storage.snapshots import Snapshots
from kopf._values import codec
from kopf._values.objects import KubeObject
from kopf._values.operator_error import OperatorError
from kopf._values.permissions import format_rule
from kopf._values.resources import EVENTS, LEASES, Resource
from kopf._values.selectors import Selector
from kopf._values.similar_names import find_similar_names, suggest

MAX_EVENTS = 10
_MAX_NAMES = 1000
"""The maximum of names that are searched for a similar one."""

_API_ERRORS = (APIError, APINetworkError, ValueError)


class ExplainingError(OperatorError):
    """The object cannot be explained; the text says why, and suggests corrections."""


class ClusterReader:
    """Reads the facts for explanations from one cluster."""

    def __init__(self, api: APIClient, settings: OperatorSettings, namespace: str | None) -> None:
        self._api = api
        self._settings = settings
        self._namespace = namespace or "default"
        self.notes: list[str] = []
        """Notes about data that could not be read."""

    async def explain(self, query: Query, registry: OperatorRegistry | None) -> Explanation:
        """
        Explain the object; without the registry, the handlers are unknown.

        Raises :class:`ExplainingError`, :class:`LoginError`, :class:`APIError`, :class:`APINetworkError`.
        """
        selectors = [] if registry is None else registry.get_selectors()
        resources = await self._discover(query.resource, [*selectors])
        resource = self._find_resource(query.resource, resources)
        namespace = (query.namespace or self._namespace) if resource.namespaced else None
        obj = await self._get(resource, namespace, query.name)
        settings = copy.copy(self._settings)
        settings.persistence = copy.copy(settings.persistence)
        self.notes += adapt_persistence(settings.persistence, obj)
        facts = self._combine(resource, obj, settings, registry, resources)
        answer = explain(facts)
        events = await self._list_events(obj, namespace)
        answer["events"] = RedactedTexts(resource).make_scrubber(obj).scrub(events)
        answer["notes"] = [*self.notes, *[note async for note in self._describe_peers(namespace)]]
        answer["notes"] += await self._describe_replicas(obj)
        return answer

    async def _discover(self, name: str, selectors: list[Selector]) -> frozenset[Resource]:
        try:
            selectors.append(Selector(name))
        except TypeError as e:
            raise ExplainingError(f"{name!r} is not a name of a resource: {e}") from e
        discovery = await discover(self._api, selectors)
        for version, error in discovery.unavailable.items():
            self.notes.append(f"The resources of {version} are not known: {error}")
        return discovery.resources

    def _find_resource(self, name: str, resources: frozenset[Resource]) -> Resource:
        found = find_resources(name, resources)
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(item.name for item in found)
            raise ExplainingError(f"{name!r} is ambiguous: {names}. Give the full name.")
        hint = suggest(Selector(name), resources)
        raise ExplainingError(f"There is no resource {name!r} in the cluster.{f' {hint}' if hint else ''}")

    async def _get(self, resource: Resource, namespace: str | None, name: str) -> KubeObject:
        try:
            content = await self._api.get(resource.get_url(namespace=namespace, name=name))
            return KubeObject.salvage(content, api_version=resource.api_version, kind=resource.kind)
        except APIForbiddenError as e:
            rule = format_rule(resource, ["get"])
            raise ExplainingError(f"You are not permitted to read the object: {e}. You need this rule: {rule}") from e
        except APINotFoundError as e:
            where = "" if namespace is None else f" in the namespace {namespace!r}"
            hint = await self._suggest(resource, namespace, name)
            raise ExplainingError(f"There is no {name!r} of {resource.name}{where}.{hint}") from e

    async def _suggest(self, resource: Resource, namespace: str | None, name: str) -> str:
        """Suggest another namespace with the object, or similar names."""
        with contextlib.suppress(*_API_ERRORS):
            if namespace is not None:
                target = Target(resource, None, {"fieldSelector": f"metadata.name={name}"})
                if places := [obj.head.namespace async for obj in self._list(target)]:
                    return f" There is one in: {', '.join(map(str, places[:10]))}; choose it with --namespace."
            names = [obj.head.name async for obj in self._list(Target(resource, namespace, {}))]
            if similar := find_similar_names(name, names):
                return f" Did you mean {' or '.join(map(repr, similar))}?"
        return ""

    async def _list(self, target: Target) -> AsyncIterator[KubeObject]:
        count = 0
        async with contextlib.aclosing(list_pages(self._api, self._settings, target)) as pages:
            async for page in pages:
                for obj in page.objects:
                    yield obj
                count += len(page.objects)
                if count >= _MAX_NAMES:
                    return

    def _combine(
        self,
        resource: Resource,
        obj: KubeObject,
        settings: OperatorSettings,
        registry: OperatorRegistry | None,
        resources: frozenset[Resource],
    ) -> Facts:
        plan = None if registry is None else registry.plan(resources).get(resource)
        reviewing = () if registry is None else registry.plan_webhooks(resources).get(resource, ())
        own: set[ResourceHandler] = {*reviewing}
        if plan is not None:
            own.update((*plan.indexing, *plan.watching, *plan.spawning, *plan.changing))
        if registry is not None and not own:
            self.notes.append("None of the handlers in the files is for this resource.")
        declared = [] if registry is None else [*registry.resources, *registry.webhooks]
        ambiguous = {} if registry is None else registry.get_ambiguities(resources)
        for selector, found in ambiguous.items():
            names = ", ".join(sorted(map(repr, found)))
            self.notes.append(f"The handlers for {selector} are not called, because the name is ambiguous: {names}.")
        persistence = settings.persistence
        fields = HandlersOfResource.build(() if plan is None else plan.changing).extra_fields
        return Facts(
            now=datetime.datetime.now(datetime.UTC),
            resource=resource,
            obj=obj,
            handlers=None if registry is None else [item for item in declared if item in own],
            elsewhere=[item for item in declared if item not in own],
            settings=settings,
            snapshots=Snapshots(persistence.diffbase_storage, persistence.progress_storage, fields),
        )

    async def _list_events(self, obj: KubeObject, namespace: str | None) -> list[EventInfo]:
        selector = f"involvedObject.uid={obj.head.uid}" if obj.head.uid else f"involvedObject.name={obj.head.name}"
        path = EVENTS.get_url(namespace=namespace or "default", params={"fieldSelector": selector, "limit": "500"})
        try:
            items = codec.decode_answer(await self._api.get(path)).get("items") or []
            events = [_parse_event(item) for item in items if isinstance(item, dict)]
        except APIForbiddenError as e:
            rule = format_rule(EVENTS, ["list"])
            self.notes.append(f"You are not permitted to read the events: {e}. You need this rule: {rule}")
            return []
        except (*_API_ERRORS, AttributeError, TypeError) as e:
            self.notes.append(f"Cannot read the events: {e}")
            return []
        return sorted(events, key=lambda event: event["at"] or "", reverse=True)[:MAX_EVENTS]

    async def _describe_replicas(self, obj: KubeObject) -> list[str]:
        """Describe which replica has the object, for each operator with several replicas."""
        try:
            groups = await list_groups(self._api, self._settings, None)
        except APIForbiddenError as e:
            return [
                f"You are not permitted to list the replicas: {e}. You need this rule: {format_rule(LEASES, ['list'])}"
            ]
        except _API_ERRORS as e:
            return [f"Cannot list the replicas of operators: {e}"]
        uid = obj.head.uid or ""
        return [
            f"The replicas of {group.name!r} in {group.namespace!r}: {group.describe_owner(uid)}." for group in groups
        ]

    async def _describe_peers(self, namespace: str | None) -> AsyncIterator[str]:
        """Describe the operators in the usual peering objects."""
        for is_clusterwide in (True, False):
            scope = None if is_clusterwide else namespace
            if not is_clusterwide and namespace is None:
                continue
            try:
                resource = await find_peering_resource(self._api, clusterwide=is_clusterwide)
                if resource is None:
                    continue
                path = resource.get_url(namespace=scope, name=self._settings.peering.name)
                status = codec.decode_answer(await self._api.get(path)).get("status")
            except APINotFoundError:
                continue
            except (*_API_ERRORS, AttributeError) as e:
                yield f"Cannot read the peering of the operators: {e}"
                continue
            if text := _describe_alive(status):
                place = f"{self._settings.peering.name!r} {describe_scope(scope)}"
                yield f"The operators in the peering {place}: {text}"


def _describe_alive(status: object) -> str:
    peers, time = Peers(""), asyncio.get_running_loop().time()
    peers.take(status, now=datetime.datetime.now(datetime.UTC), time=time)
    firsts: dict[str, Peer] = {}  # replicas are one peer
    for peer in sorted(peers.get_standing(-MAX_PRIORITY - 1, time=time).seniors, key=lambda peer: -peer.priority):
        firsts.setdefault(peer.group or peer.identity, peer)
    alive = [*firsts.values()]
    if len(alive) < 2:
        return name_peers(alive) if alive else ""
    is_tie = alive[0].priority == alive[1].priority
    who = "all are paused, as the highest priorities are equal" if is_tie else "all but the first one are paused"
    return f"{name_peers(alive)}; {who}."


def _parse_event(item: Mapping[str, Any]) -> EventInfo:
    times = (item.get("lastTimestamp"), item.get("eventTime"), (item.get("metadata") or {}).get("creationTimestamp"))
    count = item.get("count")
    return EventInfo(
        at=next((time for time in times if isinstance(time, str)), None),
        type=str(item.get("type") or ""),
        reason=str(item.get("reason") or ""),
        message=shorten(str(item.get("message") or ""), MAX_ERROR),
        count=count if isinstance(count, int) else 1,
    )


async def explain_object(access: Access, query: Query, registry: OperatorRegistry | None) -> Explanation:
    """Log in, and explain the object; see :class:`ClusterReader`."""
    async with access.connected() as api:
        connection = await access.vault.acquire()
        access.vault.release(connection)
        reader = ClusterReader(api, access.settings, connection.credentials.default_namespace)
        return await reader.explain(query, registry)
