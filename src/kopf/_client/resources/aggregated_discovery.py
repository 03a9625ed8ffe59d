"""
Aggregated discovery: all resources of all groups in two documents, one for the core group and one for the others.

It is of KEP-3352, in every server since Kubernetes 1.27 (``v2beta1``) & 1.30 (``v2``). Servers that cannot do it answer
with the plain lists of versions and groups, as only the ``Accept`` header is different. The documents are made by the
API server in the background, so nobody waits for the extensions that are down: these are marked as stale.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from kopf._client.errors import APIError
from kopf._client.http.api import APIClient
from kopf._values import codec
from kopf._values.records import FrozenRecord
from kopf._values.resources import Resource

_KIND = "APIGroupDiscoveryList"
_MEDIA_TYPES = [f"application/json;g=apidiscovery.k8s.io;v={version};as={_KIND}" for version in ("v2", "v2beta1")]
_HEADERS = {"Accept": ",".join([*_MEDIA_TYPES, "application/json"]), "Accept-Encoding": "gzip"}


class StaleGroupError(Exception):
    """The extension that serves this version of the group does not respond to the API server."""


class MalformedDocumentError(APIError):
    """The response is not a discovery document: extensions and proxies can answer anything."""


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn whatever is wrong with the document from that path to :class:`MalformedDocumentError`."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        problem = f"The response is not a proper discovery document: {type(exc).__name__}: {exc}"
        raise MalformedDocumentError(problem, status=200, method="GET", path=path) from exc


def check_types(resources: list[Resource]) -> list[Resource]:
    """Give the resources back if their names are texts; raises :class:`TypeError` otherwise."""
    for item in resources:
        names = (item.plural, item.kind, item.singular, *item.shortcuts, *item.categories, *item.verbs)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"not all names of {item.plural!r} are strings")
    return resources


class Group(FrozenRecord, frozen=True):
    """An API group, and its versions, the most preferred ones first."""

    name: str
    versions: tuple[str, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.name, *self.versions)):
            raise TypeError("the names of groups & versions must be strings")


Version = tuple[Group, str]


class Document(FrozenRecord, frozen=True):
    """What the server has told about the groups, in either form."""

    content: Mapping[str, Any]

    @property
    def is_aggregated(self) -> bool:
        """Whether the resources are there too; the plain form has only the groups."""
        return self.content.get("kind") == _KIND

    def get_resources(self) -> dict[Version, list[Resource] | Exception]:
        """Get the resources of all versions of all groups, or why they are not known."""
        result: dict[Version, list[Resource] | Exception] = {}
        for item in self.content.get("items") or ():
            versions = item["versions"]
            group = Group(item["metadata"].get("name") or "", tuple(version["version"] for version in versions))
            result.update({(group, version["version"]): _read_version(group.name, version) for version in versions})
        return result


async def read_document(api: APIClient, path: str) -> Document:
    """Read ``/api`` or ``/apis``: aggregated if the server can do it."""
    content = await api.get(path, headers=_HEADERS, retry_forbidden=True)
    with reading(path):
        document = codec.decode_answer(content)
        if not isinstance(document, dict):
            raise TypeError(f"expected an object, got {type(document).__name__}")
        return Document(document)


def _read_version(group: str, content: Mapping[str, Any]) -> list[Resource] | Exception:
    """One malformed version of one extension does not hide the others."""
    try:
        with reading(f"/apis/{group}"):
            resources = _parse_version(group, content)
            return resources if isinstance(resources, Exception) else check_types(resources)
    except MalformedDocumentError as exc:
        return exc


def _parse_version(group: str, content: Mapping[str, Any]) -> list[Resource] | Exception:
    if content.get("freshness") == "Stale":
        return StaleGroupError("the extension does not respond to the API server")
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
        if (entry.get("responseKind") or {}).get("kind")  # otherwise, only its subresources can be used
    ]
