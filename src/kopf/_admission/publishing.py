"""
Publishing: the managed webhook configurations are kept in line with the handlers, the resources, and the endpoint.

Several replicas of an operator share the configurations, and the last one to write is the owner. Only the owner removes
the webhooks when it exits: e.g., while a deployment is being rolled out, the new pod takes over from the old one. When
the owner is gone, the remaining ones see that, and one of them takes over.

Paused operators publish, too: there can be nobody else who answers. But those that work know more, and their writes
have the priority: if a paused operator takes over from them, they take over back, once. Nobody reacts to the writes of
other owners apart from that, so there are no fights.

The operator only needs the verbs ``create`` & ``patch``; without ``list`` & ``watch``, it does not see when the
webhooks are removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kopf._admission.webhook_configurations import CONFIGURATIONS, Declaration, WebhookRecord
from kopf._client.auth.credentials import LoginError
from kopf._client.errors import (
    APIConflictError,
    APIError,
    APIForbiddenError,
    APINetworkError,
    APINotFoundError,
    APIUnprocessableError,
)
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._controller.informer import Informer
from kopf._controller.runtime import Runtime
from kopf._controller.supervision import keep_running
from kopf._handlers.registry import OperatorRegistry
from kopf._values.operator_error import OperatorError
from kopf._values.patches import JSON_PATCH
from kopf._values.reasons import WebhookType
from kopf._values.resources import Resource
from kopf._values.reviews import WebhookClientConfig

logger = logging.getLogger(__name__)

_FAREWELL_TIMEOUT = 5.0
"""How long a removal may hold the exit of the operator, in seconds."""


OWNER_ANNOTATION = "kopf.dev/webhooks-owner"
PAUSED_ANNOTATION = "kopf.dev/webhooks-owner-paused"
"""Whether the owner was paused when it was writing."""

_OWNER_POINTER, _PAUSED_POINTER = (
    f"/metadata/annotations/{name.replace('/', '~1')}" for name in (OWNER_ANNOTATION, PAUSED_ANNOTATION)
)


class ManagedConfiguration:
    """
    The configuration with the webhooks of one type: an object in the cluster that is shared by several replicas.

    The last one to write is the owner, which is noted in an annotation. All writes are single requests, which overwrite
    what was there (or are guarded by the annotation). All methods raise the errors of the API.
    """

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


class WebhookConfigurationError(OperatorError):
    """The webhook configurations cannot be managed: they are not permitted, or not accepted."""


class Publisher:
    """Publishes the webhooks of one type. If there are none, only removes what could be left by earlier versions."""

    def __init__(self, runtime: Runtime, type: WebhookType, managed: str, *, is_used: bool) -> None:
        self._runtime = runtime
        self._configuration = ManagedConfiguration(runtime, type, managed)
        self._is_used = is_used
        self._declaration: Declaration | None = None
        self._published: list[WebhookRecord] | None = None
        self._attempted: list[WebhookRecord] = []
        self._changed = asyncio.Event()
        self._exists = False

    def declare(self, declaration: Declaration) -> None:
        """Take what is to be published, instead of what was before."""
        self._declaration = declaration
        self._changed.set()

    async def run(self) -> None:
        """Publish whatever is declared, forever. Raises :class:`WebhookConfigurationError` if that is not possible."""
        name = f"publisher of the {self._configuration.type} webhook configuration"
        fatal = (LoginError, WebhookConfigurationError)
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_running(name, self._keep_published, fatal=fatal, liveness=self._runtime.liveness))
            if self._is_used:
                informer = Informer(self._runtime, self._configuration.target, explain=self._explain)
                group.create_task(informer.run(self._take))

    async def _keep_published(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._declaration is not None:
                try:
                    await self._publish(self._declaration.list_webhooks(self._configuration.type))
                except BaseException:
                    self._changed.set()  # to be done by the next attempt
                    raise

    async def _publish(self, webhooks: list[WebhookRecord]) -> None:
        if webhooks == self._published:
            return
        configuration = self._configuration
        try:
            if webhooks:
                logger.info("Reconfiguring the %s webhook %s.", configuration.type, configuration.name)
                self._attempted = webhooks
                await configuration.write(webhooks)
            else:
                await self._clear()
        except APIForbiddenError as e:
            raise WebhookConfigurationError(
                f"Not permitted to manage the {configuration.type} webhook configuration {configuration.name!r}: "
                f"permit the verbs 'create' & 'patch' on {configuration.resource.name!r}, or unset "
                f"settings.admission.managed. Error: {e}"
            ) from e
        except APIUnprocessableError as e:
            raise WebhookConfigurationError(
                f"The {configuration.type} webhook configuration {configuration.name!r} is not accepted; check the "
                f"name in settings.admission.managed, and what the server or tunnel has reported. Error: {e}"
            ) from e
        self._published = webhooks

    async def _clear(self) -> None:
        try:
            await self._configuration.clear()
        except APIForbiddenError as e:
            if self._published:
                raise
            logger.debug("It is unknown if there are any outdated %s webhooks: %s", self._configuration.type, e)

    def _explain(self, verb: str, error: APIForbiddenError) -> None:
        logger.info(
            "If somebody removes the %s webhooks of %s, it will not be noticed%s: %s",
            self._configuration.type,
            self._configuration.name,
            "" if verb == "list" else " at once",
            error,
        )

    async def _take(self, events: Collection[WatchEvent]) -> None:
        """Notice the others who remove the webhooks, on their exit or by hand, or take over while paused."""
        for event in events:
            if event is LISTED:
                is_fine = self._exists
            else:
                self._exists = event.type != "DELETED"
                annotations = event.object.head.annotations or {}
                is_fine = self._exists and self._configuration.is_in_good_hands(annotations)
            if not is_fine and self._published:
                self.reclaim()

    def reclaim(self) -> None:
        """Publish again after a pause: another operator could have worked meanwhile, and be gone without a trace."""
        self._published = None
        self._changed.set()

    async def retire(self) -> None:
        """Remove the webhooks that are not persistent, unless they are not ours anymore."""
        configuration = self._configuration
        if self._declaration is None:
            return
        remaining = self._declaration.list_webhooks(configuration.type, persistent_only=True)
        if len(remaining) >= len(self._attempted):
            return
        try:
            async with asyncio.timeout(_FAREWELL_TIMEOUT):
                await configuration.hand_over(remaining)
        except (APINotFoundError, APIUnprocessableError):
            logger.debug("The %s webhooks of %s are not ours anymore.", configuration.type, configuration.name)
        except (APIError, APINetworkError, LoginError, TimeoutError) as e:
            if isinstance(e, APIForbiddenError) and not self._published:
                return  # neither was the publishing permitted, so there is nothing to be removed
            logger.warning(
                "The %s webhooks are not removed, and will block the changes until the operator runs again; "
                "to remove them: kubectl delete %s %s. The reason: %s",
                configuration.type,
                configuration.resource.plural,
                configuration.name,
                str(e) or type(e).__name__,
            )


class Publication:
    """
    The configurations with the name ``managed``, of all types.

    There is one publisher for each type of webhooks, also if there are no handlers of that type now: earlier versions
    of the operator could have left their webhooks there.
    """

    def __init__(self, runtime: Runtime, registry: OperatorRegistry, managed: str) -> None:
        self._runtime = runtime
        self._registry = registry
        self._managed = managed
        types = {handler.type for handler in registry.webhooks}
        self._publishers = [Publisher(runtime, type, managed, is_used=type in types) for type in WebhookType]
        runtime.pause.subscribe(self._accept_pause)

    def declare(self, resources: Collection[Resource], client_config: WebhookClientConfig) -> None:
        """Take what is to be published: the webhooks of all handlers for these resources."""
        declaration = Declaration(
            managed=self._managed,
            handlers=self._registry.webhooks,
            plan=self._registry.plan_webhooks(resources),
            client_config=client_config,
        )
        for publisher in self._publishers:
            publisher.declare(declaration)

    async def run(self) -> None:
        """Keep the configurations as they are declared, forever."""
        async with asyncio.TaskGroup() as group:
            for publisher in self._publishers:
                group.create_task(publisher.run())

    def _accept_pause(self) -> None:
        if not self._runtime.pause.is_on:
            for publisher in self._publishers:
                publisher.reclaim()

    async def retire(self) -> None:
        """Remove the webhooks that are not persistent."""
        await asyncio.gather(*(publisher.retire() for publisher in self._publishers))
