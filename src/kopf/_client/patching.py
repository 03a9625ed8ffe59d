"""Patching: the desired changes of an object, sent by the fewest API requests."""

from __future__ import annotations

import logging

from kopf._client.api import AnyLogger, APIClient
from kopf._client.errors import APIConflictError, APINotFoundError, APIUnprocessableError
from kopf._values.objects import KubeObject
from kopf._values.patches import FinalizerChange, Patch, PatchRequest, compose
from kopf._values.resources import Resource

_IDENTITY_MISMATCH = "UID in precondition"
"""How the API says that the object is not the expected one; the status & reason are the same for all conflicts."""


class PatchConflict(Exception):
    """A guarded patch was refused: most probably, the object has changed meanwhile. The cause is the API's error."""


async def patch_object(
    api: APIClient,
    resource: Resource,
    obj: KubeObject,
    patch: Patch,
    *,
    finalizer: str = "",
    change: FinalizerChange | None = None,
    logger: AnyLogger,
) -> KubeObject | None:
    """
    Apply the patch to the object, and add or remove the finalizer if requested.

    Returns the new state of the object (the same one if there was nothing to change), or ``None`` if it is gone.
    Raises :class:`PatchConflict` if the patch was based on an outdated state, or :class:`APIError`.
    """
    has_status = "status" in resource.subresources
    requests = compose(patch, obj, finalizer=finalizer, change=change, status_subresource=has_status)
    for request in requests:
        _log(request, logger)
        path = resource.get_url(namespace=obj.head.namespace, name=obj.head.name, subresource=request.subresource)
        try:
            response = await api.patch(
                path,
                payload=request.payload(obj.head.resourceVersion, obj.head.uid),
                content_type=request.content_type,
                logger=logger,
            )
        except APINotFoundError:
            return None
        except (APIConflictError, APIUnprocessableError) as e:
            if request.guarded:
                raise PatchConflict(str(e)) from e
            if _IDENTITY_MISMATCH in e.message:
                return None  # the object is gone, and there is another one with the same name
            raise
        obj = KubeObject.from_json(response, api_version=obj.api_version, kind=obj.kind)
    return obj


def _log(request: PatchRequest, logger: AnyLogger) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        kind = "JSON-patching" if request.guarded else "Merge-patching"
        logger.debug("%s the %s with: %r", kind, request.subresource or "resource", request.changes)


