"""
The objects in the cluster that tell the API servers of the operator's webhooks; several replicas share them.

They are the webhook configurations, and the definitions of custom resources with conversions.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._admission.webhook_declarations import Declaration, WebhookRecord, extend_path
from kopf._client.errors import APIConflictError, APINotFoundError
from kopf._client.resources.targets import Target
from kopf._controller.runtime import Runtime
from kopf._handlers.converting import ConversionError, ConversionRoutes
from kopf._values import codec
from kopf._values.objects import KubeObject
from kopf._values.patches import JSON_PATCH
from kopf._values.resources import CRDS, Resource

logger = logging.getLogger(__name__)

OWNER_ANNOTATION = "kopf.dev/webhooks-owner"
PAUSED_ANNOTATION = "kopf.dev/webhooks-owner-paused"
"""Whether the owner was paused when it wrote the object."""

_OWNER_POINTER, _PAUSED_POINTER = (
    f"/metadata/annotations/{name.replace('/', '~1')}" for name in (OWNER_ANNOTATION, PAUSED_ANNOTATION)
)


class ManagedConfiguration:
    """
    The webhook configuration of one type: an object in the cluster that several replicas share.

    The last replica that writes it is its owner, named in an annotation. All writes are single requests, which
    overwrite the content or are guarded by the annotation. All methods raise the errors of the API.
    """

    needs = "permit the verbs 'create' & 'patch'"
    leftover = (
        "The {type} webhooks are not removed, and will block the changes until the operator runs again; "
        "to remove them: kubectl delete {resource} {name}."
    )

    def __init__(self, runtime: Runtime, resource: Resource, type: str, name: str) -> None:
        self._runtime = runtime
        self._path = resource.get_url(name=name)
        self._identity = f"{socket.gethostname()}/{secrets.token_hex(6)}"
        self.type = type
        self.name = name
        self.resource = resource

    @property
    def target(self) -> Target:
        """The target of a watch for this object only."""
        return Target(self.resource, selectors={"fieldSelector": f"metadata.name={self.name}"})

    def list_webhooks(self, declaration: Declaration, *, persistent_only: bool = False) -> Sequence[WebhookRecord]:
        """Make the webhooks of this type."""
        return declaration.list_webhooks(self.type, persistent_only=persistent_only)

    async def write(self, webhooks: Sequence[WebhookRecord]) -> None:
        """Replace all webhooks of the configuration, regardless of its owner. Create it if it is absent."""
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
            except APIConflictError:  # another replica has created it right now
                await self._runtime.api.patch(self._path, payload=changes)

    def _make_annotations(self) -> Mapping[str, str | None]:
        return {OWNER_ANNOTATION: self._identity, PAUSED_ANNOTATION: "yes" if self._runtime.pause.is_on else None}

    async def clear(self) -> None:
        """
        Remove the webhooks of earlier versions of the operator, if there are any, and their owner.

        If a replica with webhooks is running, e.g. during a rolling update, it notices, and publishes them again.
        """
        changes = {"metadata": {"annotations": {OWNER_ANNOTATION: None, PAUSED_ANNOTATION: None}}, "webhooks": []}
        with contextlib.suppress(APINotFoundError):
            await self._runtime.api.patch(self._path, payload=changes)

    async def hand_over(self, remaining: Sequence[WebhookRecord]) -> None:
        """
        Leave only these webhooks, without an owner.

        Raises :class:`APINotFoundError` or :class:`APIUnprocessableError` if this replica is no longer the owner.
        """
        changes = [
            {"op": "test", "path": _OWNER_POINTER, "value": self._identity},
            {"op": "remove", "path": _OWNER_POINTER},
            {"op": "add", "path": _PAUSED_POINTER, "value": ""},  # an absent one cannot be removed
            {"op": "remove", "path": _PAUSED_POINTER},
            {"op": "add", "path": "/webhooks", "value": remaining},
        ]
        await self._runtime.api.patch(self._path, payload=changes, content_type=JSON_PATCH)

    def is_in_good_hands(self, obj: KubeObject) -> bool:
        """Tell if the owner in the annotations exists and knows at least as much as this replica."""
        annotations = obj.head.annotations or {}
        owner = annotations.get(OWNER_ANNOTATION)
        is_inferior = PAUSED_ANNOTATION in annotations and owner != self._identity and not self._runtime.pause.is_on
        return owner is not None and not is_inferior


def _get_address(conversion: Mapping[str, Any]) -> tuple[object, object]:
    """Get where the webhook is; the rest can be changed by others, e.g. injectors of certificate authorities."""
    client = conversion.get("webhook", {}).get("clientConfig", {})
    return client.get("url"), client.get("service")


class ManagedDefinition(ManagedConfiguration):
    """The conversion in the definition of a custom resource. All other fields belong to others."""

    needs = "permit the verb 'patch'"
    leftover = "If another replica runs, it does not know that it must convert {name} from now on."

    def __init__(self, runtime: Runtime, routes: ConversionRoutes) -> None:
        super().__init__(runtime, CRDS, "conversion", routes.definition)
        self._routes = routes
        self._published: object = None  # the address of the webhook as the server has stored it

    def list_webhooks(self, declaration: Declaration, *, persistent_only: bool = False) -> Sequence[WebhookRecord]:
        """Make the only webhook, or none at the exit of the operator."""
        client_config = extend_path(declaration.client_config, self.name, self.name)
        return (
            [] if persistent_only else [{"clientConfig": client_config, "conversionReviewVersions": ["v1", "v1beta1"]}]
        )

    async def write(self, webhooks: Sequence[WebhookRecord]) -> None:
        """Replace the conversion. If the definition is absent, the watch notices when it comes."""
        conversion = {"strategy": "Webhook", "webhook": webhooks[0]}
        changes = {"metadata": {"annotations": self._make_annotations()}, "spec": {"conversion": conversion}}
        with contextlib.suppress(APINotFoundError):
            definition = codec.decode_answer(await self._runtime.api.patch(self._path, payload=changes))
            self._published = _get_address(definition["spec"]["conversion"])
            self._check_versions(definition["spec"]["versions"])

    def _make_annotations(self) -> Mapping[str, str | None]:
        """Leave pauses out: they do not matter here."""
        return {OWNER_ANNOTATION: self._identity}

    async def hand_over(self, remaining: Sequence[WebhookRecord]) -> None:
        """Remove the owner. The conversion remains: objects must not be read unconverted."""
        changes = [
            {"op": "test", "path": _OWNER_POINTER, "value": self._identity},
            {"op": "remove", "path": _OWNER_POINTER},
        ]
        await self._runtime.api.patch(self._path, payload=changes, content_type=JSON_PATCH)

    def is_in_good_hands(self, obj: KubeObject) -> bool:
        """Check the conversion, too: the definition can have been applied with another one."""
        conversion = obj["spec"].get("conversion", {})
        is_own = (obj.head.annotations or {}).get(OWNER_ANNOTATION) == self._identity
        is_intact = _get_address(conversion) == self._published if is_own else conversion.get("strategy") == "Webhook"
        return super().is_in_good_hands(obj) and is_intact

    def _check_versions(self, versions: Sequence[Mapping[str, Any]]) -> None:
        """Warn of missing conversions at once: objects are read in all served versions, and stored in one."""
        [stored] = [version["name"] for version in versions if version["storage"]]
        for served in [version["name"] for version in versions if version["served"]]:
            for source, target in ((stored, served), (served, stored)):
                try:
                    self._routes.find(source, target)
                except ConversionError as e:
                    if self._runtime.warnings.is_new(str(e)):
                        logger.warning("%s", e)
