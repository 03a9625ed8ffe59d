"""
The content of the managed webhook configurations, which tell the API servers about the admission handlers.

Each handler has a webhook with a path of its own. Handlers whose resources do not exist (yet) are left out.

The API servers check some filters themselves before they call the webhooks. This only saves calls, and must make no
other difference: filters that cannot be expressed exactly are left to the operator, which checks all filters anyway. So
an object that matches the handler is never left out here. See "Matching requests: objectSelector" and
"matchConditions" in "Dynamic Admission Control".
"""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kopf._admission.webhook_paths import WebhookPaths, make_dns_name, make_unique
from kopf._handlers.filter_criteria import ABSENT, PRESENT
from kopf._handlers.handlers import WebhookHandler
from kopf._values.reasons import WebhookType
from kopf._values.resources import Resource
from kopf._values.reviews import WebhookClientConfig

WebhookRecord = dict[str, Any]
"""One item of ``.webhooks`` of a configuration."""

_TIMEOUT = 30
"""The longest timeout that Kubernetes permits, in seconds."""

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

_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

Expression = dict[str, Any]
"""One requirement of a label selector, or one match condition."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """The source of the content of all configurations."""

    managed: str
    """The name of the configurations; the names of the webhooks end with it."""
    handlers: Sequence[WebhookHandler]
    plan: Mapping[Resource, Collection[WebhookHandler]]
    """The handlers by their resources."""
    client_config: WebhookClientConfig

    def list_webhooks(self, type: str, *, persistent_only: bool = False) -> list[WebhookRecord]:
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
            "clientConfig": extend_path(self.client_config, paths.get(handler), paths.get_of_service(handler)),
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
    """Make unique domain names from the ids: an id can occur several times, or differ only in punctuation."""
    used: set[str] = set()
    for handler in handlers:
        name = make_unique(make_dns_name(handler.id.replace("/", ".")), used)
        used.add(name)
        yield f"{name}.{managed}"


def extend_path(config: WebhookClientConfig, path: str, path_of_service: str) -> dict[str, Any]:
    """Append the path of the webhook to the path of the URL or of the service."""
    result: dict[str, Any] = {key: value for key, value in config.items() if value is not None}
    if url := config.get("url"):
        result["url"] = f"{url.rstrip('/')}/{urllib.parse.quote(path, safe='/:')}"
    if service := config.get("service"):
        fields = {key: value for key, value in service.items() if value is not None}
        base = (service.get("path") or "").rstrip("/")
        result["service"] = {**fields, "path": f"{base}/{path_of_service}"}
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


def select_objects(handler: WebhookHandler) -> Expression:
    """
    Make the ``objectSelector``.

    With any selector, API servers never select bodies that cannot have labels (the options of connections), not even if
    a label must be absent. So, absence is not checked for subresources.
    """
    expressions: list[Expression] = []
    for key, expected in (handler.labels or {}).items():
        if not _is_label_key(key):
            continue
        if expected is PRESENT:
            expressions.append({"key": key, "operator": "Exists"})
        elif expected is ABSENT and handler.subresource is None:
            expressions.append({"key": key, "operator": "DoesNotExist"})
        elif isinstance(expected, str) and _is_label_value(expected):
            expressions.append({"key": key, "operator": "In", "values": [expected]})
    return {"matchExpressions": expressions} if expressions else {}


def list_conditions(handler: WebhookHandler) -> list[Expression]:
    """Make the ``matchConditions`` (Kubernetes 1.28 and up; older servers ignore them)."""
    filters: list[tuple[Sequence[str], object]] = [
        (("metadata", "annotations", key), expected) for key, expected in (handler.annotations or {}).items()
    ]
    if handler.field:
        filters.append((handler.field, PRESENT if handler.value is None else handler.value))
    conditions = [text for path, expected in filters if (text := _make_condition(path, expected)) is not None]
    return [{"name": f"filter-{index}", "expression": text} for index, text in enumerate(conditions, start=1)]


def _make_condition(path: Sequence[str], expected: object) -> str | None:
    """
    Express the filter in CEL; ``None`` if it cannot be expressed exactly.

    Only strings are compared: in Python, ``True == 1 == 1.0``, but not in CEL. ``null`` means absence. Strings with
    control characters (and broken Unicode) are left out: they may not survive the transfer.
    """
    if expected is not PRESENT and expected is not ABSENT and not isinstance(expected, str):
        return None
    if not all(text.isprintable() for text in (*path, expected) if isinstance(text, str)):
        return None
    literals = [_quote(key) for key in path]
    final = "!= null" if not isinstance(expected, str) else f"== {_quote(expected)}"
    steps = ["o != null"]
    place = "o"
    for literal in literals:
        steps += [f"type({place}) == map", f"{literal} in {place}"]
        place = f"{place}[{literal}]"
    if isinstance(expected, str):
        steps.append(f"type({place}) == string")
    steps.append(f"{place} {final}")
    text = " && ".join(steps)
    # CEL has variables only in macros. Deletions are about the old object.
    return f"[object != null ? object : oldObject].all(o, {f'!({text})' if expected is ABSENT else text})"


def _quote(text: str) -> str:
    """Make a literal: for such strings, JSON and CEL agree."""
    return json.dumps(text, ensure_ascii=False)


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    is_prefix_good = not slash or (len(prefix) <= 253 and _LABEL_PREFIX.fullmatch(prefix) is not None)
    return is_prefix_good and _LABEL_NAME.fullmatch(name) is not None


def _is_label_value(value: str) -> bool:
    return not value or _LABEL_NAME.fullmatch(value) is not None
