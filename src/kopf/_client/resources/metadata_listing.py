"""
Listings of metadata only (Kubernetes API concepts, "Metadata-only fetches"), to scan all objects.

They are several times cheaper than full listings, and even cheaper if only objects that mention some text are needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import ClassVar

import msgspec

from kopf._client.http.api import APIClient
from kopf._client.resources.listing import ListMeta, parse_list
from kopf._client.resources.targets import Target
from kopf._settings.settings import OperatorSettings
from kopf._values.objects import KubeObject, ObjectMeta

_PAGE = 500
"""The number of objects on a page: pages are small, as nothing needs to hurry."""

_HEADERS = {
    "Accept-Encoding": "gzip",
    # Servers that cannot do it send full objects.
    "Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
}


class _Item(msgspec.Struct, gc=False):
    metadata: ObjectMeta


class _List(msgspec.Struct, gc=False):
    metadata: ListMeta
    items: list[_Item] | None = None


class _Head(msgspec.Struct, gc=False):
    """The listing without its items."""

    metadata: ListMeta
    items: ClassVar[tuple[_Item, ...]] = ()


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_list = msgspec.json.Decoder(_List).decode


async def list_metadata(
    api: APIClient, settings: OperatorSettings, target: Target, *, mentioning: str = ""
) -> AsyncGenerator[list[ObjectMeta], None]:
    """
    List the metadata of all objects of the target, page by page.

    Pages without the text ``mentioning`` are skipped. The text must be serialised unchanged in JSON, except for
    slashes.

    Objects with malformed metadata are skipped if they have no name. Raises the errors of requests, and
    :class:`ValueError` if the response is not a listing.
    """
    params = {**target.get_selectors(settings), "limit": str(_PAGE)}
    # Slashes can be escaped.
    words = [word.encode() for word in mentioning.split("/")]
    while True:
        content = await api.get(target.path, params=params, headers=_HEADERS)
        metas, token = _parse(content, is_needed=all(word in content for word in words))
        if metas:
            yield metas
        if not token:
            return
        params["continue"] = token


def _parse(content: bytes, *, is_needed: bool) -> tuple[list[ObjectMeta], str | None]:
    try:
        listing = (_decode_list if is_needed else _decode_head)(content)
        return [item.metadata for item in listing.items or ()], listing.metadata.continue_
    except (ValueError, RecursionError):  # some items are malformed: parse them one by one
        head, items = parse_list(content)
        metas: list[ObjectMeta] = []
        for raw in items:
            with contextlib.suppress(ValueError):
                metas.append(KubeObject.salvage(raw).head)
        return metas, head.metadata.continue_
