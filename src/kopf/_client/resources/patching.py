"""
Patching: sends the desired changes of an object by the fewest API requests.

The status is patched apart from the rest, if it is a subresource. The effects of transformation functions and the lists
of finalizers go as a JSON patch (RFC 6902). The ``resourceVersion`` guards it, so that no changes of others are lost.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kopf._client.errors import (
    APIClientError,
    APIConflictError,
    APIError,
    APINetworkError,
    APINotFoundError,
)
from kopf._client.http.api import AnyLogger, APIClient
from kopf._client.resources.discovery import read_subresources
from kopf._values.foreign_values import WARNING, find_in_patch, name_foreign_values
from kopf._values.objects import KubeObject
from kopf._values.patch_deliveries import EVERYTHING, REST, STATUS, is_done
from kopf._values.patches import JSON_PATCH, MERGE_PATCH, FinalizerChange, JSONPatchItem, Patch, list_changes, thaw
from kopf._values.records import FrozenRecord, replace
from kopf._values.resources import Resource

_MAX_CONFLICTS = 5
"""The number of immediate attempts of an exclusive patch while the object keeps changing."""


class PatchRequest(FrozenRecord, frozen=True):
    """One PATCH request: to the object itself or to one of its subresources."""

    subresource: str | None
    content_type: str
    changes: dict[str, Any] | list[JSONPatchItem]
    exclusive: bool = False
    """Whether it is for the last known version of the object only, although it could be merged into any version."""

    @property
    def guarded(self) -> bool:
        """Whether it fails (409/422) if the object has changed meanwhile."""
        return self.exclusive or isinstance(self.changes, list)

    @property
    def is_for_another_uid(self) -> bool:
        """Whether the changes themselves contain a UID: handlers can patch everything."""
        if isinstance(self.changes, list):
            return any(item["path"] == "/metadata/uid" for item in self.changes)
        return "uid" in (self.changes.get("metadata") or {})

    def guard(self) -> PatchRequest:
        """Make a copy of the request that fails if the object has changed meanwhile."""
        return replace(self, exclusive=True)

    def payload(self, version: str, uid: str) -> dict[str, Any] | list[JSONPatchItem]:
        """
        Make the payload, given the last known ``resourceVersion`` and the UID of the object.

        The UID is a precondition: the server refuses the patch (422) if another object has the same name now. Some
        objects of aggregated APIs have neither of these, so they have no preconditions.
        """
        if isinstance(self.changes, list):
            path = "/metadata/resourceVersion"
            return [{"op": "test", "path": path, "value": version}, *self.changes] if version else self.changes
        payload = self.changes.copy()
        metadata = payload["metadata"] = {**payload.get("metadata", {})}
        if uid:
            metadata["uid"] = uid
        if version and self.exclusive:
            metadata["resourceVersion"] = version
        return payload


class PatchConflict(Exception):
    """A guarded patch was refused: most probably, the object has changed. The cause is the error of the API."""


class PatchSuperseded(Exception):
    """An exclusive patch no longer makes sense; ``obj`` is the fresh state of the object, which shows that."""

    def __init__(self, obj: KubeObject) -> None:
        super().__init__()
        self.obj = obj


class PatchOptions(NamedTuple):
    """Additional tasks of a patch, and the way to apply it."""

    finalizer: str = ""
    """The name of our finalizer."""
    change: FinalizerChange | None = None
    """The change of the finalizer, if any."""
    is_superseded: Callable[[KubeObject], bool] | None = None
    """
    With this function, a patch with a separate status is exclusive: it applies only to the state for which it was made,
    and nobody can change the object between its requests. If the object has changed, this function gets the fresh state
    and decides: either the patch is applied to that state, or :class:`PatchSuperseded` is raised.
    """
    on_saved: Callable[[PatchRequest, KubeObject], None] | None = None
    """A function to call after each successful request, with the new state of the object."""


_NO_OPTIONS = PatchOptions()


def patch_object(
    api: APIClient,
    resource: Resource,
    obj: KubeObject,
    patch: Patch,
    options: PatchOptions | None = None,
    *,
    logger: AnyLogger,
) -> Coroutine[Any, Any, KubeObject | None]:
    """
    Apply the patch to the object, and add or remove the finalizer if requested.

    Returns the new state of the object (the same one if nothing had to change), or ``None`` if it is gone. Raises
    :class:`PatchConflict` if the patch was based on an outdated state, and :class:`APIError`.
    """
    finalizer, change, is_superseded, on_saved = options or _NO_OPTIONS
    has_status = "status" in resource.subresources
    if patch.fns:
        patch.deliveries.settle(obj, obj.head.resourceVersion)
    requests = compose(patch, obj, finalizer=finalizer, change=change, status_subresource=has_status)
    _warn_of_foreign_values(api, obj, requests, patch, logger=logger)
    if not obj.head.uid and obj.head.resourceVersion:
        requests = [request.guard() for request in requests]  # another object could have that name by now
    sending = _Sending(api, resource, patch, on_saved, logger)
    if is_superseded is not None and has_status:
        is_split = any(item.subresource for item in requests) and not any(item.guarded for item in requests)
        if is_split:
            return _send_exclusively(sending.send, obj, requests, is_superseded, logger)
    return sending.send(obj, requests)


def compose(
    patch: Patch,
    body: Mapping[str, Any],
    *,
    finalizer: str = "",
    change: FinalizerChange | None = None,
    status_subresource: bool,
) -> list[PatchRequest]:
    """
    Turn the desired changes into the fewest correct requests; none if there are no changes.

    ``change`` is the change of the finalizer, if any. The status goes first: the second request can release the
    object, or mark its handlers as done, and the status could never be written after that.
    """
    if change is None and not patch.fns:
        return _compose_merge(patch, status_subresource)
    if change is not None and not patch:
        finalizers = change.apply(finalizer, body["metadata"].get("finalizers"))
        return [PatchRequest(None, JSON_PATCH, [{"op": "add", "path": "/metadata/finalizers", "value": finalizers}])]
    original = thaw(body)
    changed = patch.apply_to(original)
    if change is not None:
        metadata = changed.setdefault("metadata", {})
        metadata["finalizers"] = change.apply(finalizer, metadata.get("finalizers"))
    return _compare(original, changed, status_subresource)


def _compose_merge(patch: Patch, status_subresource: bool) -> list[PatchRequest]:
    main: dict[str, Any] = {**patch}
    metadata = main.get("metadata")
    if type(metadata) is dict or isinstance(metadata, Mapping):
        # Labels & annotations that were added to the patch and then removed leave empty stanzas.
        main["metadata"] = _drop_empty(metadata if type(metadata) is dict else {**metadata})
    main = _drop_empty(main)
    requests: list[PatchRequest] = []
    if status_subresource and "status" in main:
        requests.append(PatchRequest("status", MERGE_PATCH, {"status": main.pop("status")}))
    if main:
        requests.append(PatchRequest(None, MERGE_PATCH, main))
    return requests


def join(requests: Sequence[PatchRequest]) -> PatchRequest:
    """Join the requests of :func:`compose` into one, for an object without the status subresource."""
    first, changes = requests[0], [request.changes for request in requests]
    merged = {key: value for part in changes if isinstance(part, dict) for key, value in part.items()}
    items = [item for part in changes if isinstance(part, list) for item in part]
    return PatchRequest(None, first.content_type, items or merged, first.exclusive)


def _find_ignored(request: PatchRequest, before: KubeObject, obj: KubeObject) -> PatchRequest | None:
    """Find the changes of the status if none was made: with a status subresource, servers ignore all of them."""
    changes = request.changes
    part: dict[str, Any] | list[JSONPatchItem]
    if isinstance(changes, list):
        part = items = [item for item in changes if f"{item['path']}/".startswith("/status/")]
    elif "status" in changes:
        part, items = {"status": changes["status"]}, [{"path": "/status", "value": changes["status"]}]
    else:
        return None
    are_ignored = items and before.get("status") == obj.get("status") and not is_done(items, obj)
    return PatchRequest("status", request.content_type, part) if are_ignored else None


def _drop_empty(stanza: dict[str, Any]) -> dict[str, Any]:
    if {} not in stanza.values():
        return stanza
    return {key: value for key, value in stanza.items() if value != {}}


def _compare(original: dict[str, Any], changed: dict[str, Any], status_subresource: bool) -> list[PatchRequest]:
    if not status_subresource:
        items = list_changes(original, changed)
        return [PatchRequest(None, JSON_PATCH, items)] if items else []
    # They are compared separately, because a request cannot move values from one endpoint to another.
    for_status = list_changes(_pick_status(original), _pick_status(changed))
    for_object = list_changes(_drop_status(original), _drop_status(changed))
    return [
        PatchRequest(subresource, JSON_PATCH, items)
        for subresource, items in (("status", for_status), (None, for_object))
        if items
    ]


def _pick_status(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key == "status"}


def _drop_status(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "status"}


def _warn_of_foreign_values(
    api: APIClient, obj: KubeObject, requests: Iterable[PatchRequest], patch: Patch, *, logger: AnyLogger
) -> None:
    authorship = patch.authorship
    if authorship is None:  # all changes are our own
        return
    if patch.fns:  # their changes have no authors
        found = [value for request in requests for value in find_in_patch(request.changes)]
    else:
        found = authorship.find_foreign_values() if authorship.suspects else []
    if found:
        authors = ", ".join(authorship.find_authors(patch, [value.path for value in found]))
        if api.warnings.is_new((obj.head.key, authors)):
            logger.warning(WARNING, authors, name_foreign_values(found))


async def _send_exclusively(
    send: Callable[[KubeObject, Sequence[PatchRequest]], Awaitable[KubeObject | None]],
    obj: KubeObject,
    requests: Sequence[PatchRequest],
    is_superseded: Callable[[KubeObject], bool],
    logger: AnyLogger,
) -> KubeObject | None:
    requests = [request.guard() for request in requests]
    # An empty patch is a way to read with the permissions to write.
    reading = PatchRequest(requests[0].subresource, requests[0].content_type, {})
    for _ in range(_MAX_CONFLICTS - 1):
        try:
            return await send(obj, requests)
        except PatchConflict as e:
            logger.debug("The object has changed meanwhile; looking at its fresh state: %s", e)
        fresh = await send(obj, [reading])
        if fresh is None:
            return None
        if is_superseded(fresh):
            raise PatchSuperseded(fresh)
        obj = fresh
    return await send(obj, requests)


class _Sending(FrozenRecord, frozen=True):
    """The requests of one patch of one object."""

    api: APIClient
    resource: Resource
    patch: Patch
    on_saved: Callable[[PatchRequest, KubeObject], None] | None
    logger: AnyLogger

    async def send(self, obj: KubeObject, requests: Sequence[PatchRequest]) -> KubeObject | None:
        for request in requests:
            if self.logger.isEnabledFor(logging.DEBUG):
                _log(request, self.logger)
            sending = self.api.patch(
                self.resource.get_url(
                    namespace=obj.head.namespace, name=obj.head.name, subresource=request.subresource
                ),
                payload=request.payload(obj.head.resourceVersion, obj.head.uid),
                content_type=request.content_type,
                lane=self.resource,
                logger=self.logger,
            )
            try:
                response = await (self._track(sending, obj, request) if self.patch.fns else sending)
            except APINotFoundError:
                if request.subresource != "status" or await _has_status(self.api, self.resource) is not False:
                    return None
                return await self._switch_status(has_status=False).send(obj, [join(requests)])
            except APIClientError as e:
                if e.is_identity_mismatch and not request.is_for_another_uid:
                    return None  # the object is gone, and there is another one with the same name
                self._blame(e)
                # If the tests of a JSON-patch fail, the error names no fields; for an invalid object, it does.
                is_test = e.status == 422 and isinstance(request.changes, list) and not e.fields
                if request.guarded and (is_test or isinstance(e, APIConflictError)):
                    raise PatchConflict(str(e)) from e
                raise
            before, obj = obj, KubeObject.salvage(response, api_version=obj.api_version, kind=obj.kind)
            if request.changes:
                self.api.observer.object_patched(self.resource, before, obj, request.subresource, request.changes)
                if self.on_saved is not None:
                    self.on_saved(request, obj)
                # If the status is not a subresource, each change of the status makes a new generation.
                is_same = before.head.generation == obj.head.generation
                if (is_same or "spec" in request.changes) and "status" not in self.resource.subresources:
                    ignored = _find_ignored(request, before, obj)
                    if ignored is not None and await _has_status(self.api, self.resource):
                        self.patch.deliveries.done &= {REST}
                        return await self._switch_status(has_status=True).send(obj, [ignored])
        return obj

    def _switch_status(self, *, has_status: bool) -> _Sending:
        subresources = self.resource.subresources - {"status"} | ({"status"} if has_status else set())
        return replace(self, resource=dataclasses.replace(self.resource, subresources=subresources))

    async def _track(self, sending: Awaitable[bytes], obj: KubeObject, request: PatchRequest) -> bytes:
        """Make the request, and note whether it delivers the changes by the functions of the patch."""
        changes = request.changes
        if not isinstance(changes, list):
            return await sending
        has_status = "status" in self.resource.subresources
        parts = frozenset({STATUS if request.subresource == "status" else REST}) if has_status else EVERYTHING
        try:
            response = await sending
        except (APIError, APINetworkError) as e:
            if isinstance(e, APINetworkError) or e.is_in_doubt:
                self.patch.deliveries.note_lost(obj.head.resourceVersion, parts, changes)
            raise
        self.patch.deliveries.note_done(parts)
        return response

    def _blame(self, error: APIError) -> None:
        """Name the authors of refused changes, if the changes themselves are the reason."""
        if error.is_unacceptable and self.patch.authorship is not None:
            error.authors = self.patch.authorship.find_authors(self.patch, error.fields)


async def _has_status(api: APIClient, resource: Resource) -> bool | None:
    """
    Ask the server if the resource has the status subresource now; ``None`` if the resource cannot be found.

    The operator learns of new definitions a moment later, or never if it may not watch them. Without the subresource,
    its patches get 404, as for deleted objects; with a new one, the status in patches of whole objects is ignored, as
    if the schema had no status. Both happen all the time, so the server is asked rarely.
    """
    question = functools.partial(read_subresources, api, resource)
    subresources = await api.recent_answers["subresources", resource].get(question)
    return None if subresources is None else "status" in subresources


def _log(request: PatchRequest, logger: AnyLogger) -> None:
    kind = "JSON-patching" if isinstance(request.changes, list) else "Merge-patching"
    logger.debug("%s the %s with: %r", kind, request.subresource or "resource", request.changes)
