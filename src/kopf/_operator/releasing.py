"""
Releasing: the removal of our finalizers from objects, when there is no operator anymore to remove them.

Nothing else changes, and no handlers are called: everything remains that deletion handlers would clean up.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection
from typing import NamedTuple

from kopf._client.http.api import APIClient
from kopf._client.resources.discovery import discover
from kopf._client.resources.listing import list_pages
from kopf._client.resources.patching import PatchConflict, PatchOptions, patch_object
from kopf._client.resources.targets import Target
from kopf._operator.access import Access, naming_rule
from kopf._settings.settings import OperatorSettings
from kopf._values.objects import KubeObject
from kopf._values.operator_error import OperatorError
from kopf._values.patches import FinalizerChange, Patch
from kopf._values.resources import Resource
from kopf._values.selectors import Selector

logger = logging.getLogger(__name__)

_ATTEMPTS = 10
"""The maximum of attempts if others change an object at the same time."""


class UnknownResourceError(OperatorError):
    """There is no such resource in the cluster, or there are several."""


class Released(NamedTuple):
    """An object without our finalizer now."""

    resource: Resource
    namespace: str | None
    name: str


async def release(
    access: Access,
    names: Collection[str],
    *,
    namespaces: Collection[str],
    finalizer: str,
    dry_run: bool,
    only_deleted: bool,
) -> AsyncIterator[Released]:
    """
    Remove the finalizer from all objects of the named resources, in the namespaces or (if none) in the whole cluster.

    With ``dry_run``, nothing is removed. With ``only_deleted``, only objects that are being deleted are released.
    Raises :class:`UnknownResourceError`; :class:`OperatorError` if the permissions are missing; :class:`LoginError`,
    :class:`APIError`, and :class:`APINetworkError` if the cluster cannot be talked to; :class:`PatchConflict` if an
    object changes too often.
    """
    async with access.connected() as api:
        for resource in await _find_resources(api, names):
            for namespace in namespaces if namespaces and resource.namespaced else [None]:
                async for obj in _list(api, access.settings, Target(resource, namespace)):
                    is_relevant = not only_deleted or obj.head.deletionTimestamp is not None
                    if is_relevant and finalizer in (obj.head.finalizers or ()):
                        if not dry_run:
                            await _remove(api, resource, obj, finalizer)
                        yield Released(resource, obj.head.namespace, obj.head.name)


async def _list(api: APIClient, settings: OperatorSettings, target: Target) -> AsyncIterator[KubeObject]:
    with naming_rule(target.resource, "list"):
        async for page in list_pages(api, settings, target):
            for obj in page.objects:
                yield obj


async def _find_resources(api: APIClient, names: Collection[str]) -> Collection[Resource]:
    selectors = [Selector(name) for name in names]
    discovery = await discover(api, selectors)
    resources: list[Resource] = []
    for name, selector in zip(names, selectors, strict=True):
        found = selector.select(discovery.resources)
        if len(found) != 1:
            options = f"it can be any of {', '.join(sorted(map(repr, found)))}" if found else "there is none"
            raise UnknownResourceError(f"Cannot choose the resource {name!r} in the cluster: {options}.")
        resources.extend(found)
    return resources


async def _remove(api: APIClient, resource: Resource, obj: KubeObject, finalizer: str) -> None:
    for _ in range(_ATTEMPTS):
        try:
            options = PatchOptions(finalizer, FinalizerChange.REMOVE)
            with naming_rule(resource, "patch"):
                await patch_object(api, resource, obj, Patch(), options, logger=logger)
        except PatchConflict:
            path = resource.get_url(namespace=obj.head.namespace, name=obj.head.name)
            with naming_rule(resource, "get"):
                obj = KubeObject.from_json(await api.get(path), api_version=obj.api_version, kind=obj.kind)
            if finalizer not in (obj.head.finalizers or ()):
                return
        else:
            return
    raise PatchConflict(f"{resource!r} {obj.head.name!r} keeps changing, so its finalizer is not removed. Try again.")
