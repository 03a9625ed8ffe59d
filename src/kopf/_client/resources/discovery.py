"""
Discovery: which resources the cluster serves, limited to the API groups that are needed.

The whole cluster is scanned only if some selector names no group: by two requests if the server can do that (see the
aggregated discovery), by one for each version of each group if not. Some groups are served by extensions (e.g.
``metrics.k8s.io``); if an extension is down or hangs, its group is reported as unavailable, and the others are still
found, and soon.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kopf._client.errors import (
    APIForbiddenError,
    APINetworkError,
    APINotFoundError,
    APIServerError,
    APITooManyRequestsError,
)
from kopf._client.http.api import APIClient
from kopf._client.resources.aggregated_discovery import (
    Group,
    MalformedDocumentError,
    Version,
    check_types,
    read_document,
    reading,
)
from kopf._values import codec
from kopf._values.records import FrozenRecord
from kopf._values.resources import Resource, is_proper_name
from kopf._values.selectors import Selector

MAX_PARALLEL_REQUESTS = 10

EXTENSION_BACKOFFS = (1.0,)
"""Delays between attempts to read one API version: a broken extension must not hold the others for long."""

EXTENSION_TIMEOUT = 5.0
"""How long one attempt may take, in seconds, for the groups that extensions can serve. They have dots in the names."""

T = TypeVar("T")

Found = dict[Version, list[Resource] | Exception]


class Discovery(FrozenRecord, frozen=True):
    """What is found, and what could not be looked at."""

    resources: frozenset[Resource]
    """All resources of the requested groups, regardless of the names in the selectors."""
    unavailable: Mapping[str, Exception]
    """
    API versions (as in ``apiVersion``) that the cluster claims to have, but fails to serve at the moment.
    """
    improper: frozenset[str] = frozenset()
    """
    The names of resources and of API versions that are not as in Kubernetes: extensions can say anything, also what
    would change the meaning of the URLs. They are left out.
    """


async def discover(api: APIClient, selectors: Iterable[Selector]) -> Discovery:
    """
    Find the resources in the API groups of the selectors; in all groups if any selector has no group.

    Groups that do not exist (yet) are not an error. A resource is marked as preferred in the preferred
    version of its group, or, if it is absent there, in the first of the others that has it, as in kubectl.

    Raises :class:`APIError`, :class:`APINetworkError`, :class:`LoginError` if the API server itself does not
    respond.
    """
    selectors = list(selectors)
    semaphore = asyncio.Semaphore(MAX_PARALLEL_REQUESTS)
    found_groups, known = await _find_groups(api, {selector.group for selector in selectors}, semaphore)
    improper: set[str] = set()
    groups = [_leave_out_improper(group, improper) for group in found_groups]
    needed = [
        (group, version) for group in groups for version in group.versions if _is_needed(group, version, selectors)
    ]
    unknown = [key for key in needed if key not in known]
    outcomes = await _gather([_read_version(api, group, version, semaphore) for group, version in unknown])
    read = dict(zip(unknown, outcomes, strict=True))
    found: Found = {key: read[key] if key in read else known[key] for key in needed}
    unavailable = {
        _get_api_version(group, version): outcome
        for (group, version), outcome in found.items()
        if isinstance(outcome, Exception)
    }
    resources = frozenset(_mark_preferred(groups, found))
    proper = frozenset(resource for resource in resources if is_proper_name(resource.plural))
    improper.update(repr(resource) for resource in resources - proper)
    return Discovery(proper, unavailable, frozenset(improper))


def _leave_out_improper(group: Group, improper: set[str]) -> Group:
    """Give the group with those of its versions that can be asked for."""
    is_proper = not group.name or is_proper_name(group.name)
    versions = tuple(version for version in group.versions if is_proper and is_proper_name(version))
    improper.update(_get_api_version(group, version) for version in group.versions if version not in versions)
    return Group(group.name, versions)


def _mark_preferred(
    groups: list[Group], found: Mapping[tuple[Group, str], list[Resource] | Exception]
) -> Iterator[Resource]:
    """
    Choose the version for each resource; where a version is not known, the less preferred ones are not
    chosen.
    """
    for group in groups:
        taken: set[str] = set()
        is_known = True
        for version in group.versions:
            outcome = found.get((group, version))
            if outcome is None or isinstance(outcome, Exception):
                is_known = False
                continue
            for resource in outcome:
                is_preferred = is_known and resource.plural not in taken
                yield dataclasses.replace(resource, preferred=is_preferred)
            taken |= {resource.plural for resource in outcome}


async def _find_groups(
    api: APIClient, names: set[str | None], semaphore: asyncio.Semaphore
) -> tuple[list[Group], Found]:
    """Find the groups; some of their resources can be known at once."""
    known: Found = {}
    requests = []
    if None in names:
        requests = [_read_all_groups(api, path, known) for path in ("/api", "/apis")]
    else:
        ordered = sorted(name for name in names if name is not None)
        requests = [_read_group(api, name, semaphore) for name in ordered]
    return [group for groups in await _gather(requests) for group in groups], known


async def _gather(requests: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Make all requests at once; if one of them fails, the others are of no use."""
    tasks = [asyncio.create_task(request) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_all_groups(api: APIClient, path: str, known: Found) -> list[Group]:
    document = await read_document(api, path)
    if document.is_aggregated:
        with reading(path):
            resources = document.get_resources()
        known.update(resources)
        return list(dict.fromkeys(group for group, _ in resources))
    with reading(path):
        if path == "/api":
            return [_parse_core_group(document.content)]
        return [_parse_group(group) for group in document.content["groups"]]


async def _read_group(api: APIClient, name: str, semaphore: asyncio.Semaphore) -> list[Group]:
    try:
        async with semaphore:
            path = f"/apis/{name}" if name else "/api"
            content = await api.get(path, retry_forbidden=True)
        with reading(path):
            document = codec.decode_answer(content)
            return [_parse_group(document) if name else _parse_core_group(document)]
    except APINotFoundError:
        return []


def _parse_core_group(content: Mapping[str, Any]) -> Group:
    return Group("", tuple(content["versions"]))


def _parse_group(content: Mapping[str, Any]) -> Group:
    preferred = (content.get("preferredVersion") or {}).get("version")
    versions = [entry["version"] for entry in content["versions"]]
    return Group(content["name"], tuple(sorted(versions, key=lambda version: version != preferred)))


def _is_needed(group: Group, version: str, selectors: list[Selector]) -> bool:
    return any(
        (selector.group is None or selector.group == group.name)
        and (selector.version is None or selector.version == version)
        for selector in selectors
    )


async def _read_version(
    api: APIClient, group: Group, version: str, semaphore: asyncio.Semaphore
) -> list[Resource] | Exception:
    path = f"/apis/{group.name}/{version}" if group.name else f"/api/{version}"
    timeout = EXTENSION_TIMEOUT if "." in group.name else None
    try:
        async with semaphore:
            content = await api.get(path, timeout=timeout, backoffs=EXTENSION_BACKOFFS)
        with reading(path):
            entries = codec.decode_answer(content).get("resources") or []
            return check_types(_parse_resources(group.name, version, entries))
    except APINotFoundError:  # removed since the groups were read
        return []
    except (APIServerError, APITooManyRequestsError, APINetworkError, APIForbiddenError, MalformedDocumentError) as exc:
        return exc


def _get_api_version(group: Group, version: str) -> str:
    return f"{group.name}/{version}" if group.name else version


def _parse_resources(group: str, version: str, entries: list[Mapping[str, Any]]) -> list[Resource]:
    subresources: dict[str, set[str]] = {}
    for entry in entries:
        plural, _, subresource = entry["name"].partition("/")
        subresources.setdefault(plural, set()).update([subresource] if subresource else [])
    return [
        Resource(
            group=group,
            version=version,
            plural=entry["name"],
            kind=entry["kind"],
            singular=entry.get("singularName") or entry["kind"].lower(),
            shortcuts=frozenset(entry.get("shortNames") or ()),
            categories=frozenset(entry.get("categories") or ()),
            subresources=frozenset(subresources[entry["name"]]),
            namespaced=entry["namespaced"],
            verbs=frozenset(entry.get("verbs") or ()),
        )
        for entry in entries
        if "/" not in entry["name"]
    ]
