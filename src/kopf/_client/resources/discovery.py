"""
Discovery: finds the resources that the cluster serves, limited to the needed API groups.

The whole cluster is scanned only if some selector names no group: by two requests if the server supports that (see the
aggregated discovery), otherwise by one request for each version of each group. Extensions serve some groups, e.g.
``metrics.k8s.io``. If an extension is down or hangs, its group is reported as unavailable, and the other groups are
found without delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kopf._client.errors import (
    APIError,
    APIForbiddenError,
    APINetworkError,
    APINotFoundError,
    APIServerError,
    APITooManyRequestsError,
)
from kopf._client.http.api import APIClient
from kopf._values import codec
from kopf._values.records import FrozenRecord
from kopf._values.resources import Resource, is_proper_name
from kopf._values.selectors import Selector

MAX_PARALLEL_REQUESTS = 10

EXTENSION_BACKOFFS = (1.0,)
"""The delays between attempts to read one API version, in seconds: a broken extension must not delay the others."""

EXTENSION_TIMEOUT = 5.0
"""The timeout of one attempt for groups that extensions can serve, in seconds. Their names contain dots."""

T = TypeVar("T")

_KIND = "APIGroupDiscoveryList"
"""
The aggregated discovery: all resources of all groups in two documents, one for the core group and one for the others.

See KEP-3352: all servers have it since Kubernetes 1.27 (``v2beta1``) and 1.30 (``v2``). Older servers respond with the
plain lists of versions and groups, as only the ``Accept`` header differs. The API server makes the documents in the
background and marks broken extensions as stale, so nobody waits for them.
"""
_MEDIA_TYPES = [f"application/json;g=apidiscovery.k8s.io;v={version};as={_KIND}" for version in ("v2", "v2beta1")]
_HEADERS = {"Accept": ",".join([*_MEDIA_TYPES, "application/json"]), "Accept-Encoding": "gzip"}


class StaleGroupError(Exception):
    """The extension that serves this version of the group does not respond to the API server."""


class MalformedDocumentError(APIError):
    """The response is not a discovery document: extensions and proxies can send anything."""


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn any problem with the document from that path into :class:`MalformedDocumentError`."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        problem = f"The response is not a proper discovery document: {type(exc).__name__}: {exc}"
        raise MalformedDocumentError(problem, status=200, method="GET", path=path) from exc


def _check_types(resources: list[Resource]) -> list[Resource]:
    """Return the resources. Raises :class:`TypeError` if any of their names is not a string."""
    for item in resources:
        names = (item.plural, item.kind, item.singular, *item.shortcuts, *item.categories, *item.verbs)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"not all names of {item.plural!r} are strings")
    return resources


class Group(FrozenRecord, frozen=True):
    """An API group with its versions, the most preferred ones first."""

    name: str
    versions: tuple[str, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.name, *self.versions)):
            raise TypeError("the names of groups & versions must be strings")


Version = tuple[Group, str]
Found = dict[Version, list[Resource] | Exception]


class Discovery(FrozenRecord, frozen=True):
    """The result of a discovery."""

    resources: frozenset[Resource]
    """All resources of the requested groups, regardless of the names in the selectors."""
    unavailable: Mapping[str, Exception]
    """API versions (as in ``apiVersion``) that the cluster lists, but fails to serve at the moment."""
    improper: frozenset[str] = frozenset()
    """
    The names of resources and API versions that break the rules of Kubernetes. They are left out, as extensions can
    send anything, even names that change the meaning of URLs.
    """


async def discover(api: APIClient, selectors: Iterable[Selector]) -> Discovery:
    """
    Find the resources in the API groups of the selectors; in all groups if any selector has no group.

    Groups that do not exist (yet) are not an error. A resource is preferred in the preferred version of its group, or,
    if it is absent there, in the first other version that has it, as in kubectl.

    Raises :class:`APIError`, :class:`APINetworkError`, :class:`LoginError` if the API server itself does not respond.
    """
    selectors = list(selectors)
    semaphore = asyncio.Semaphore(MAX_PARALLEL_REQUESTS)
    found_groups, known = await _find_groups(api, {selector.group for selector in selectors}, semaphore)
    improper: set[str] = set()
    groups = [_leave_out_improper(group, improper) for group in found_groups]
    needed = [
        (group, version)
        for group in groups
        for version in group.versions
        if any(item.group in (None, group.name) and item.version in (None, version) for item in selectors)
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
    """Return the group with the versions that can be requested."""
    is_proper = not group.name or is_proper_name(group.name)
    versions = tuple(version for version in group.versions if is_proper and is_proper_name(version))
    improper.update(_get_api_version(group, version) for version in group.versions if version not in versions)
    return Group(group.name, versions)


def _mark_preferred(
    groups: list[Group], found: Mapping[tuple[Group, str], list[Resource] | Exception]
) -> Iterator[Resource]:
    """Select the version of each resource. If a version is unknown, less preferred ones are not selected."""
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
    """Find the groups, and the resources that are known at once."""
    known: Found = {}
    requests = []
    if None in names:
        requests = [_read_all_groups(api, path, known) for path in ("/api", "/apis")]
    else:
        ordered = sorted(name for name in names if name is not None)
        requests = [_read_group(api, name, semaphore) for name in ordered]
    return [group for groups in await _gather(requests) for group in groups], known


async def _gather(requests: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Make all requests at once. If one fails, cancel the others."""
    tasks = [asyncio.create_task(request) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_all_groups(api: APIClient, path: str, known: Found) -> list[Group]:
    content = await api.get(path, headers=_HEADERS, retry_forbidden=True)
    with _reading(path):
        document = codec.decode_answer(content)
        if document.get("kind") == _KIND:
            resources = _parse_aggregated(document)
            known.update(resources)
            return list(dict.fromkeys(group for group, _ in resources))
        if path == "/api":
            return [_parse_core_group(document)]
        return [_parse_group(group) for group in document["groups"]]


def _parse_aggregated(document: Mapping[str, Any]) -> Found:
    """Get the resources of all versions of all groups, or the errors instead."""
    result: Found = {}
    for item in document.get("items") or ():
        versions = item["versions"]
        group = Group(item["metadata"].get("name") or "", tuple(version["version"] for version in versions))
        result.update({(group, version["version"]): _parse_version(group.name, version) for version in versions})
    return result


def _parse_version(group: str, content: Mapping[str, Any]) -> list[Resource] | Exception:
    """Parse one version. If it is malformed, return an error, so that it does not hide the others."""
    if content.get("freshness") == "Stale":
        return StaleGroupError("the extension does not respond to the API server")
    try:
        with _reading(f"/apis/{group}"):
            return _check_types(_parse_aggregated_resources(group, content))
    except MalformedDocumentError as exc:
        return exc


def _parse_aggregated_resources(group: str, content: Mapping[str, Any]) -> list[Resource]:
    return [
        Resource(
            group=group,
            version=content["version"],
            plural=entry["resource"],
            kind=entry["responseKind"]["kind"],
            singular=entry.get("singularResource") or entry["responseKind"]["kind"].lower(),
            shortcuts=frozenset(entry.get("shortNames") or ()),
            categories=frozenset(entry.get("categories") or ()),
            subresources=frozenset(item["subresource"] for item in entry.get("subresources") or ()),
            namespaced=entry["scope"] == "Namespaced",
            verbs=frozenset(entry.get("verbs") or ()),
        )
        for entry in content.get("resources") or ()
        if (entry.get("responseKind") or {}).get("kind")  # otherwise, only its subresources are usable
    ]


async def _read_group(api: APIClient, name: str, semaphore: asyncio.Semaphore) -> list[Group]:
    try:
        async with semaphore:
            path = f"/apis/{name}" if name else "/api"
            content = await api.get(path, retry_forbidden=True)
        with _reading(path):
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


async def _read_version(
    api: APIClient, group: Group, version: str, semaphore: asyncio.Semaphore
) -> list[Resource] | Exception:
    path = f"/apis/{group.name}/{version}" if group.name else f"/api/{version}"
    timeout = EXTENSION_TIMEOUT if "." in group.name else None
    try:
        async with semaphore:
            content = await api.get(path, timeout=timeout, backoffs=EXTENSION_BACKOFFS)
        with _reading(path):
            entries = codec.decode_answer(content).get("resources") or []
            return _check_types(_parse_resources(group.name, version, entries))
    except APINotFoundError:  # removed since the groups were read
        return []
    except (APIServerError, APITooManyRequestsError, APINetworkError, APIForbiddenError, MalformedDocumentError) as exc:
        return exc


async def read_subresources(api: APIClient, resource: Resource) -> frozenset[str] | None:
    """Read the current subresources of the resource; ``None`` if they, or the resource, cannot be found."""
    group = Group(resource.group, (resource.version,))
    found = await _read_version(api, group, resource.version, asyncio.Semaphore())
    known = found if isinstance(found, list) else ()
    return next((item.subresources for item in known if item == resource), None)


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
