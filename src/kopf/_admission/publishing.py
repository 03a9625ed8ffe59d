"""
Publishing: the managed webhook configurations are kept in line with the handlers, the resources, and the endpoint.

Several replicas of an operator share the configurations, and the last one to write is the owner, which is noted in an
annotation. Only the owner removes the webhooks when it exits: e.g., while a deployment is being rolled out, the new
pod takes over from the old one. When the owner is gone, the remaining ones see that, and one of them takes over.

Paused operators publish, too: there can be nobody else who answers. But those that work know more, and their writes
have the priority: if a paused operator takes over from them, they take over back, once. Nobody reacts to the writes of
other owners apart from that, so there are no fights.

All writes are single requests, which overwrite what was there (or are guarded by the annotation). The operator only
needs the verbs ``create`` & ``patch``; without ``list`` & ``watch``, it does not see when the webhooks are removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import socket
from collections.abc import Mapping
from typing import Any

from kopf._admission.configurations import CONFIGURATIONS, Declaration, WebhookRecord
from kopf._client.auth.credentials import LoginError
from kopf._client.errors import (
    APIConflictError,
    APIError,
    APIForbiddenError,
    APINetworkError,
    APINotFoundError,
    APIUnprocessableError,
)
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._client.resources.watching import watch_batches
from kopf._controller.runtime import Runtime
from kopf._controller.supervision import keep_running
from kopf._values.errors import OperatorError
from kopf._values.patches import JSON_PATCH
from kopf._values.reasons import WebhookType

logger = logging.getLogger(__name__)

OWNER_ANNOTATION = "kopf.dev/webhooks-owner"
PAUSED_ANNOTATION = "kopf.dev/webhooks-owner-paused"
"""Whether the owner was paused when it was writing."""

_OWNER_POINTER, _PAUSED_POINTER = (
    f"/metadata/annotations/{name.replace('/', '~1')}" for name in (OWNER_ANNOTATION, PAUSED_ANNOTATION)
)

_FAREWELL_TIMEOUT = 5.0
"""How long a removal may hold the exit of the operator, in seconds."""


class WebhookConfigurationError(OperatorError):
    """The webhook configurations cannot be managed: they are not permitted, or not accepted."""


class Publisher:
    """Publishes the webhooks of one type. If there are none, only removes what could be left by earlier versions."""

    def __init__(self, runtime: Runtime, type: WebhookType, managed: str, *, is_used: bool) -> None:
        self._runtime = runtime
        self._api = runtime.api
        self._type = type
        self._managed = managed
        self._resource = CONFIGURATIONS[type]
        self._path = self._resource.get_url(name=managed)
        self._identity = f"{socket.gethostname()}/{os.urandom(6).hex()}"
        self._declaration: Declaration | None = None
        self._is_used = is_used
        self._published: list[WebhookRecord] | None = None
        self._attempted: list[WebhookRecord] = []
        self._changed = asyncio.Event()

    def declare(self, declaration: Declaration) -> None:
        """Take what is to be published, instead of what was before."""
        self._declaration = declaration
        self._changed.set()

    async def run(self) -> None:
        """Publish whatever is declared, forever. Raises :class:`WebhookConfigurationError` if that is not possible."""
        name = f"{self._type} webhook configuration"
        fatal = (LoginError, WebhookConfigurationError)
        keep = functools.partial(keep_running, fatal=fatal, liveness=self._runtime.liveness)
        async with asyncio.TaskGroup() as group:
            group.create_task(keep(f"publisher of the {name}", self._keep_published))
            if self._is_used:
                group.create_task(keep(f"watcher of the {name}", self._keep_watching))

    async def _keep_published(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._declaration is not None:
                try:
                    await self._publish(self._declaration.list_webhooks(self._type))
                except BaseException:
                    self._changed.set()  # to be done by the next attempt
                    raise

    async def _publish(self, webhooks: list[WebhookRecord]) -> None:
        if webhooks == self._published:
            return
        try:
            if webhooks:
                logger.info("Reconfiguring the %s webhook %s.", self._type, self._managed)
                await self._write(webhooks)
            else:
                await self._clear()
        except APIForbiddenError as e:
            raise WebhookConfigurationError(
                f"Not permitted to manage the {self._type} webhook configuration {self._managed!r}: permit the verbs "
                f"'create' & 'patch' on {self._resource.name!r}, or unset settings.admission.managed. Error: {e}"
            ) from e
        except APIUnprocessableError as e:
            raise WebhookConfigurationError(
                f"The {self._type} webhook configuration {self._managed!r} is not accepted; check the name in "
                f"settings.admission.managed, and what the server or tunnel has reported. Error: {e}"
            ) from e
        self._published = webhooks

    async def _write(self, webhooks: list[WebhookRecord]) -> None:
        changes: dict[str, Any] = {"metadata": {"annotations": self._make_annotations()}, "webhooks": webhooks}
        self._attempted = webhooks
        try:
            await self._api.patch(self._path, payload=changes)
        except APINotFoundError:
            annotations = {key: value for key, value in self._make_annotations().items() if value is not None}
            metadata = {"name": self._managed, "annotations": annotations}
            content = {
                "apiVersion": self._resource.api_version, "kind": self._resource.kind,
                "metadata": metadata, "webhooks": webhooks,
            }
            try:
                await self._api.post(self._resource.get_url(), payload=content)
            except APIConflictError:  # it was created by another replica right now
                await self._api.patch(self._path, payload=changes)

    def _make_annotations(self) -> Mapping[str, str | None]:
        return {OWNER_ANNOTATION: self._identity, PAUSED_ANNOTATION: "yes" if self._runtime.pause.is_on else None}

    async def _clear(self) -> None:
        """Remove what could be left by earlier versions of the operator; it is fine if there was nothing."""
        changes = {"metadata": {"annotations": self._make_annotations()}, "webhooks": []}
        try:
            await self._api.patch(self._path, payload=changes)
        except APINotFoundError:
            pass
        except APIForbiddenError as e:
            if self._published:
                raise
            logger.debug("It is unknown if there are any outdated %s webhooks: %s", self._type, e)

    async def _keep_watching(self) -> None:
        """Watch for the others who remove the webhooks, on their exit or by hand, or take over while paused."""
        selectors = {self._resource.name: f"metadata.name={self._managed}"}
        watching = dataclasses.replace(self._runtime.settings.watching, field_selectors=selectors)
        settings = dataclasses.replace(self._runtime.settings, watching=watching)
        exists = False
        try:
            with self._runtime.liveness.watching(f"{self._type} webhook configuration") as heartbeat:
                batches = watch_batches(self._api, settings, self._resource, on_activity=heartbeat.beat)
                async with contextlib.aclosing(batches):
                    async for events in batches:
                        for event in events:
                            exists = self._notice(event, exists=exists)
        except APIForbiddenError as e:
            logger.info(
                "If somebody removes the %s webhooks of %s, it will not be noticed: %s",
                self._type, self._managed, e,
            )
            await asyncio.Event().wait()  # until cancelled

    def _notice(self, event: WatchEvent, *, exists: bool) -> bool:
        """Publish the webhooks again if they are not in good hands; tell if the configuration exists now."""
        if event is LISTED:
            if not exists:
                self._restore()
            return exists
        if event.type == "DELETED":
            self._restore()
            return False
        annotations = event.object.head.annotations or {}
        owner = annotations.get(OWNER_ANNOTATION)
        is_inferior = PAUSED_ANNOTATION in annotations and owner != self._identity and not self._runtime.pause.is_on
        if owner is None or is_inferior:
            self._restore()
        return True

    def reclaim(self) -> None:
        """Publish again after a pause: another operator could have worked meanwhile, and be gone without a trace."""
        self._published = None
        self._changed.set()

    def _restore(self) -> None:
        if self._published:
            self._published = None
            self._changed.set()

    async def retire(self) -> None:
        """Remove the webhooks that are not persistent, unless they are not ours anymore."""
        if self._declaration is None:
            return
        remaining = self._declaration.list_webhooks(self._type, persistent_only=True)
        if len(remaining) >= len(self._attempted):
            return
        changes = [
            {"op": "test", "path": _OWNER_POINTER, "value": self._identity},
            {"op": "remove", "path": _OWNER_POINTER},
            {"op": "add", "path": _PAUSED_POINTER, "value": ""},  # what is not there cannot be removed
            {"op": "remove", "path": _PAUSED_POINTER},
            {"op": "add", "path": "/webhooks", "value": remaining},
        ]
        try:
            async with asyncio.timeout(_FAREWELL_TIMEOUT):
                await self._api.patch(self._path, payload=changes, content_type=JSON_PATCH)
        except (APINotFoundError, APIUnprocessableError):
            logger.debug("The %s webhooks of %s are not ours anymore.", self._type, self._managed)
        except (APIError, APINetworkError, LoginError, TimeoutError) as e:
            if isinstance(e, APIForbiddenError) and not self._published:
                return  # neither was the publishing permitted, so there is nothing to be removed
            logger.warning(
                "The %s webhooks are not removed, and will block the changes until the operator runs again; "
                "to remove them: kubectl delete %s %s. The reason: %s",
                self._type, self._resource.plural, self._managed, str(e) or type(e).__name__,
            )
