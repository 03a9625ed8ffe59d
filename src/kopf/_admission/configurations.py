"""
The content of the managed webhook configurations: what the API servers are told about the admission handlers.

There is one webhook for each handler, with a path of its own. The handlers whose resources do not exist (yet)
are left out.
"""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kopf._admission.match_conditions import list_conditions, select_objects
from kopf._admission.webhook_paths import WebhookPaths
from kopf._handlers.handlers import WebhookHandler
from kopf._values.reasons import WebhookType
from kopf._values.resources import Resource
from kopf._values.reviews import WebhookClientConfig

WebhookRecord = dict[str, Any]
"""One item of ``.webhooks`` of a configuration."""

_TIMEOUT = 30
"""The longest one that Kubernetes permits, in seconds."""

_REVIEW_VERSIONS = ["v1", "v1beta1"]

CONFIGURATIONS: Mapping[WebhookType, Resource] = {
    type: Resource(
        "admissionregistration.k8s.io",
        "v1",
        f"{type}webhookconfigurations",
        f"{type.title()}WebhookConfiguration",
        namespaced=False,
    )
    for type in WebhookType
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """Everything that the content of the configurations depends on."""

    managed: str
    """The name of the configurations; the names of the webhooks end with it."""
    handlers: Sequence[WebhookHandler]
    plan: Mapping[Resource, Collection[WebhookHandler]]
    """Which handlers are for which resources."""
    client_config: WebhookClientConfig

    def list_webhooks(self, type: WebhookType, *, persistent_only: bool = False) -> list[WebhookRecord]:
        """Make the webhooks for one of the configurations, in the order of declaration."""
        paths = WebhookPaths(self.handlers)
        handlers = [handler for handler in self.handlers if handler.type == type]
        names = dict(zip(handlers, _make_names(handlers, self.managed), strict=True))
        return [
            self._make_webhook(handler, names[handler], paths, resources)
            for handler in handlers
            if (resources := self._list_resources(handler)) and (handler.persistent or not persistent_only)
        ]

    def _list_resources(self, handler: WebhookHandler) -> list[Resource]:
        return sorted((resource for resource, handlers in self.plan.items() if handler in handlers), key=repr)

    def _make_webhook(
        self, handler: WebhookHandler, name: str, paths: WebhookPaths, resources: Sequence[Resource]
    ) -> WebhookRecord:
        webhook: WebhookRecord = {
            "name": name,
            "clientConfig": _extend_path(self.client_config, handler, paths),
            "rules": _make_rules(handler, resources),
            "objectSelector": select_objects(handler),
            "namespaceSelector": {},
            "failurePolicy": "Ignore" if handler.ignore_failures else "Fail",
            "sideEffects": "NoneOnDryRun" if handler.side_effects else "None",
            "matchPolicy": "Equivalent",
            "timeoutSeconds": _TIMEOUT,
            "admissionReviewVersions": _REVIEW_VERSIONS,
        }
        if conditions := list_conditions(handler):
            webhook["matchConditions"] = conditions
        return webhook


def _make_names(handlers: Iterable[WebhookHandler], managed: str) -> Iterator[str]:
    """Make unique names of domains from the ids: the same id can occur several times, or differ in punctuation."""
    used: set[str] = set()
    for handler in handlers:
        name = base = re.sub(r"[^a-z0-9.]+", "-", handler.id.lower().replace("/", ".")).strip("-.") or "handler"
        name = base = re.sub(r"[-.]*\.[-.]*", ".", base)
        number = 1
        while name in used:
            number += 1
            name = f"{base}-{number}"
        used.add(name)
        yield f"{name}.{managed}"


def _extend_path(config: WebhookClientConfig, handler: WebhookHandler, paths: WebhookPaths) -> dict[str, Any]:
    """Append the path of the webhook to the path of the URL or of the service."""
    result: dict[str, Any] = {key: value for key, value in config.items() if value is not None}
    if url := config.get("url"):
        result["url"] = f"{url.rstrip('/')}/{urllib.parse.quote(paths.get(handler), safe='/:')}"
    if service := config.get("service"):
        fields = {key: value for key, value in service.items() if value is not None}
        base = (service.get("path") or "").rstrip("/")
        result["service"] = {**fields, "path": f"{base}/{paths.get_of_service(handler)}"}
    return result


def _make_rules(handler: WebhookHandler, resources: Iterable[Resource]) -> list[dict[str, Any]]:
    suffix = "" if handler.subresource is None else f"/{handler.subresource}"  # "/*" includes the object itself
    grouped: dict[tuple[str, str], list[str]] = {}
    for resource in resources:
        grouped.setdefault((resource.group, resource.version), []).append(f"{resource.plural}{suffix}")
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "resources": plurals,
            "operations": sorted(handler.operations) if handler.operations else ["*"],
            "scope": "*",
        }
        for (group, version), plurals in grouped.items()
    ]
