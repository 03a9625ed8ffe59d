"""
The managed webhook configuration: an object in the cluster that is shared by several replicas of an operator.

The last one to write is the owner, which is noted in an annotation. All writes are single requests, which overwrite
what was there (or are guarded by the annotation).
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._admission.configurations import CONFIGURATIONS, WebhookRecord
from kopf._client.errors import APIConflictError, APINotFoundError
from kopf._client.resources.targets import Target
from kopf._controller.runtime import Runtime
from kopf._values.patches import JSON_PATCH
from kopf._values.reasons import WebhookType

OWNER_ANNOTATION = "kopf.dev/webhooks-owner"
PAUSED_ANNOTATION = "kopf.dev/webhooks-owner-paused"
"""Whether the owner was paused when it was writing."""

_OWNER_POINTER, _PAUSED_POINTER = (
    f"/metadata/annotations/{name.replace('/', '~1')}" for name in (OWNER_ANNOTATION, PAUSED_ANNOTATION)
)


class ManagedConfiguration:
    """The configuration with the webhooks of one type. All methods raise the errors of the API."""

    def __init__(self, runtime: Runtime, type: WebhookType, name: str) -> None:
        self._runtime = runtime
        self._path = CONFIGURATIONS[type].get_url(name=name)
        self._identity = f"{socket.gethostname()}/{secrets.token_hex(6)}"
        self.type = type
        self.name = name
        self.resource = CONFIGURATIONS[type]

    @property
    def target(self) -> Target:
        """How to watch it."""
        return Target(self.resource, selectors={"fieldSelector": f"metadata.name={self.name}"})

    async def write(self, webhooks: Sequence[WebhookRecord]) -> None:
        """Put the webhooks instead of those that are there, whoever has written them; create it if it is absent."""
        changes: dict[str, Any] = {"metadata": {"annotations": self._make_annotations()}, "webhooks": webhooks}
        try:
            await self._runtime.api.patch(self._path, payload=changes)
        except APINotFoundError:
            annotations = {key: value for key, value in self._make_annotations().items() if value is not None}
            metadata = {"name": self.name, "annotations": annotations}
            content = {
                "apiVersion": self.resource.api_version,
                "kind": self.resource.kind,
                "metadata": metadata,
                "webhooks": webhooks,
            }
            try:
                await self._runtime.api.post(self.resource.get_url(), payload=content)
            except APIConflictError:  # it was created by another replica right now
                await self._runtime.api.patch(self._path, payload=changes)

    def _make_annotations(self) -> Mapping[str, str | None]:
        return {OWNER_ANNOTATION: self._identity, PAUSED_ANNOTATION: "yes" if self._runtime.pause.is_on else None}

    async def clear(self) -> None:
        """Remove what could be left by earlier versions of the operator; it is fine if there was nothing."""
        changes = {"metadata": {"annotations": self._make_annotations()}, "webhooks": []}
        with contextlib.suppress(APINotFoundError):
            await self._runtime.api.patch(self._path, payload=changes)

    async def hand_over(self, remaining: Sequence[WebhookRecord]) -> None:
        """
        Leave only these webhooks, and have no owner.

        Raises :class:`APINotFoundError` or :class:`APIUnprocessableError` if we are not the owner anymore.
        """
        changes = [
            {"op": "test", "path": _OWNER_POINTER, "value": self._identity},
            {"op": "remove", "path": _OWNER_POINTER},
            {"op": "add", "path": _PAUSED_POINTER, "value": ""},  # what is not there cannot be removed
            {"op": "remove", "path": _PAUSED_POINTER},
            {"op": "add", "path": "/webhooks", "value": remaining},
        ]
        await self._runtime.api.patch(self._path, payload=changes, content_type=JSON_PATCH)

    def is_in_good_hands(self, annotations: Mapping[str, str]) -> bool:
        """Tell if the owner, as noted in the annotations, exists and knows at least as much as we do."""
        owner = annotations.get(OWNER_ANNOTATION)
        is_inferior = PAUSED_ANNOTATION in annotations and owner != self._identity and not self._runtime.pause.is_on
        return owner is not None and not is_inferior
