"""
Paged listings (Kubernetes API concepts, "Retrieving large results sets in chunks").

All pages of one listing are from the same snapshot. Each page is passed on as it arrives, and freed when its objects
are processed: this takes memory for one page, not for all objects twice.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from kopf._client.errors import APIError
from kopf._client.http.api import APIClient
from kopf._client.resources.targets import Shard, Target
from kopf._settings.settings import OperatorSettings
from kopf._values import malformed_json
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource

logger = logging.getLogger(__name__)

FIRST_PAGE = 500
"""The number of objects on the first page, when their size is unknown."""

PAGE_SIZE = 2 * 1024 * 1024
"""
The size of the next pages, in bytes: small objects come by thousands, large ones do not fill the memory.

The peak of memory of a start is that of a few pages. With pages of 16 MiB, 50,000 objects took 128 MiB instead of 64.
"""

_HEADERS = {"Accept-Encoding": "gzip"}


class EndlessListError(Exception):
    """A page has come again: servers without pages can ignore the tokens, but still send them."""


class ShardingError(Exception):
    """The server has ignored the shard selector: every shard would handle all objects."""


class ListPage(msgspec.Struct, gc=False):
    """A page of a listing: some objects, and the version of the snapshot, which all pages of the listing share."""

    objects: list[KubeObject]
    version: str
    remaining: int | None = None
    """The number of objects on the next pages, if the server tells: it does not with selectors."""


class ListMeta(msgspec.Struct, gc=False):
    resourceVersion: str = ""
    continue_: str | None = msgspec.field(name="continue", default=None)
    shardInfo: Any = None
    remainingItemCount: int | None = None


class _List(msgspec.Struct, gc=False):
    metadata: ListMeta
    apiVersion: str | None = None
    kind: str | None = None
    items: list[msgspec.Raw] | None = None


_decode_list = msgspec.json.Decoder(_List).decode


def parse_list(content: bytes) -> tuple[_List, list[bytes]]:
    """Split the listing into items; one by one if the decoder cannot skip them, as they are malformed or too deep."""
    try:
        listing = _decode_list(content)
        # Without copies, each raw object would keep the whole page in memory.
        return listing, [bytes(raw) for raw in listing.items or ()]
    except (RecursionError, ValueError):
        shallow, inner = malformed_json.split(content, 2)
        listing = _decode_list(shallow)
        return listing, [malformed_json.restore(bytes(raw), inner) for raw in listing.items or ()]


_MAX_NAME = 1024
"""
The longest name, in characters. With much longer names, the URL of the object would be too long for the server.

It is four times the limit of most kinds. Kinds whose names are only segments of paths, such as RBAC, have no limit.
Source: Kubernetes documentation, "Object Names and IDs".
"""

_DOTS = frozenset({".", ".."})
"""Names with another meaning in URLs, quoted or not."""


def take_item(
    resource: Resource, raw: bytes | msgspec.Raw, *, api_version: str | None = None, kind: str | None = None
) -> KubeObject:
    """Wrap an object. Raises the errors of :meth:`KubeObject.salvage`, also for objects without a usable URL."""
    obj = KubeObject.salvage(raw, api_version=api_version, kind=kind)
    if resource.namespaced and not obj.head.namespace:
        raise msgspec.ValidationError("there is no namespace")
    if len(obj.head.name) > _MAX_NAME:
        raise msgspec.ValidationError("the name is too long")
    if not _DOTS.isdisjoint((obj.head.name, obj.head.namespace)):
        raise msgspec.ValidationError("the name or the namespace consists of dots")
    return obj


def warn_of_garbage(api: APIClient, resource: Resource, problem: str) -> None:
    """Warn once that an item is skipped: it is not an object, or it is unknown which one."""
    if api.warnings.is_new((resource, "garbage")):
        text = "An item in the list of %r is skipped, because it has no proper metadata: %s"
        logger.warning(text, resource, problem)


async def _selects_shards(api: APIClient, target: Target) -> bool:
    """
    Find out if the server reads shard selectors: it refuses wrong ones then.

    Listings of custom resources do not tell, they have no ``shardInfo``. The refusal is 400 or 500 (Kubernetes 1.36).
    """
    try:
        await api.get(target.path, params={"limit": "1", "shardSelector": "none"}, backoffs=())
    except APIError as e:
        if "shard selector" in e.message:
            return True
        raise
    return False


async def _probe(api: APIClient, target: Target, shard: Shard) -> None:
    """Ask the server once if it selects the objects of this kind, before the first listing that depends on it."""
    async with shard.asking:
        if shard.is_supported is None and shard.select():
            shard.is_supported = await _selects_shards(api, target)
            if not shard.is_supported:
                logger.info("The server does not select %r by shards: it sends all objects.", target.resource)


async def list_pages(
    api: APIClient, settings: OperatorSettings, target: Target, *, paged: bool = True
) -> AsyncGenerator[ListPage, None]:
    """
    List all objects of the target, page by page.

    A page has ``settings.watching.chunk_size`` objects; by default, as many as take reasonable memory. With
    ``paged=False``, there is one page. With server-side selectors, only matching objects are listed.

    Items without proper metadata are left out, with a warning.

    Raises :class:`APIGoneError` if the listing takes so long (minutes) that its snapshot is no longer available: then,
    it must begin anew. Raises the errors of requests, :class:`ValueError` if the response is not a listing, and
    :class:`EndlessListError` if the pages do not end.
    """
    resource = target.resource
    if target.shard is not None:
        await _probe(api, target, target.shard)
    params = target.get_selectors(settings)
    if paged:
        params["limit"] = str(settings.watching.chunk_size or FIRST_PAGE)
    tokens: set[str] = set()
    while True:
        content = await api.get(target.path, params=params, headers=_HEADERS)
        listing, items = parse_list(content)
        if (
            "shardSelector" in params
            and target.shard is None
            and not (tokens or listing.metadata.shardInfo or await _selects_shards(api, target))
        ):
            raise ShardingError(
                f"The server ignores settings.watching.shard_selectors for {target.resource.name!r}: it needs "
                "Kubernetes 1.36 or newer, with the feature ShardedListAndWatch enabled."
            )
        kind = listing.kind.removesuffix("List") if listing.kind else resource.kind
        objects: list[KubeObject] = []
        for raw in items:
            try:
                objects.append(take_item(resource, raw, api_version=listing.apiVersion, kind=kind))
            except ValueError as e:
                warn_of_garbage(api, resource, str(e))
        token, version = listing.metadata.continue_, listing.metadata.resourceVersion
        remaining = listing.metadata.remainingItemCount if token else 0
        if paged and objects and settings.watching.chunk_size is None:
            params["limit"] = str(max(FIRST_PAGE, PAGE_SIZE * len(objects) // len(content)))
        del listing, items, content
        yield ListPage(objects, version, remaining)
        if not token:
            return
        if token in tokens:
            raise EndlessListError(f"the page of {resource.name!r} after {token[:100]!r} has come again")
        tokens.add(token)
        params["continue"] = token
