"""
The configured webhooks, and their selection for an operation.

The rules follow "Dynamic Admission Control" in the Kubernetes documentation: rules with wildcards, scopes,
selectors, and the match policy by which a webhook gets an equivalent version of the object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from kopf_cluster import codec, statuses
from kopf_cluster.kinds import selectors
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Change

Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]

_GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = f"mutatingwebhookconfigurations.{_GROUP}"
VALIDATING: Final = f"validatingwebhookconfigurations.{_GROUP}"


@dataclasses.dataclass(frozen=True)
class Attributes:
    """The attributes of an operation for webhooks."""

    operation: Operation
    kind: Kind
    subresource: str
    namespace: str
    name: str
    obj: Obj | None
    old: Obj | None
    dry_run: bool = False

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


@dataclasses.dataclass(frozen=True, eq=False)
class Webhook:
    """One webhook of a configuration; it is the same object as long as the configuration does not change."""

    configuration: str
    mutating: bool
    raw: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.raw["name"])

    @property
    def timeout(self) -> int:
        """In seconds."""
        return int(self.raw.get("timeoutSeconds") or 10)

    @property
    def ignores_failures(self) -> bool:
        return self.raw.get("failurePolicy") == "Ignore"

    @property
    def is_reinvoked(self) -> bool:
        return self.raw.get("reinvocationPolicy") == "IfNeeded"

    @property
    def review_version(self) -> str:
        """The first supported version of reviews; empty if there is none."""
        return next((name for name in self.raw.get("admissionReviewVersions") or () if name in ("v1", "v1beta1")), "")


class Configurations:
    """All webhooks, always up to date, in the order in which they are called: by the names of configurations."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._webhooks: dict[bool, tuple[Webhook, ...]] = {True: (), False: ()}

    def __bool__(self) -> bool:
        return bool(self._webhooks[True] or self._webhooks[False])

    def observe(self, bucket: str, change: Change) -> None:
        if bucket in (MUTATING, VALIDATING):
            self._webhooks[bucket == MUTATING] = tuple(self._read(bucket))

    def _read(self, bucket: str) -> Iterator[Webhook]:
        for record in self._store.bucket(bucket).select():
            configuration = codec.decode(b"{" + record.data)
            for raw in configuration.get("webhooks") or ():
                yield Webhook(record.key[1], bucket == MUTATING, raw)

    def select(self, attributes: Attributes, *, mutating: bool) -> list[tuple[Webhook, Kind]]:
        """Return the webhooks to call, each with the version of the kind for its review."""
        if attributes.kind.bucket in (MUTATING, VALIDATING):
            return []  # otherwise, a broken configuration could never be repaired
        return [
            (webhook, kind)
            for webhook in self._webhooks[mutating]
            if (kind := self._choose_kind(webhook, attributes)) is not None and self._is_selected(webhook, attributes)
        ]

    def _choose_kind(self, webhook: Webhook, attributes: Attributes) -> Kind | None:
        rules: Sequence[Obj] = webhook.raw.get("rules") or ()
        kind = attributes.kind
        if any(_covers(rule, attributes, kind) for rule in rules):
            return kind
        if webhook.raw.get("matchPolicy") == "Exact":
            return None
        for version in self._registry.versions(kind.group):
            other = self._registry.find(kind.group, version, kind.plural)
            if other is not None and any(_covers(rule, attributes, other) for rule in rules):
                if other.converter is not None and other.converter.converts:
                    raise statuses.not_implemented(
                        f"the review of {other.api_version} for a request in {kind.api_version}, which are converted "
                        f'by a webhook, as the webhook "{webhook.name}" asks for by its match policy,'
                    )
                return other
        return None

    def _is_selected(self, webhook: Webhook, attributes: Attributes) -> bool:
        return self._is_in_namespace(webhook.raw.get("namespaceSelector") or {}, attributes) and _is_any_selected(
            webhook.raw.get("objectSelector") or {}, attributes
        )

    def _is_in_namespace(self, selector: Obj, attributes: Attributes) -> bool:
        if not selector:
            return True
        if attributes.kind.bucket == "namespaces":
            return selectors.matches(selector, _labels(attributes.obj or attributes.old))
        if not attributes.namespace:
            return True
        record = self._store.bucket("namespaces").records.get(("", attributes.namespace))
        return selectors.matches(selector, record.labels if record is not None else {})


def _is_any_selected(selector: Obj, attributes: Attributes) -> bool:
    """An object is selected if it is so either before or after the operation."""
    return not selector or any(
        selectors.matches(selector, _labels(obj)) for obj in (attributes.obj, attributes.old) if obj is not None
    )


def _labels(obj: Obj | None) -> Mapping[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def _covers(rule: Obj, attributes: Attributes, kind: Kind) -> bool:
    scope = rule.get("scope") or "*"
    return (
        _is_listed(attributes.operation, rule.get("operations"))
        and _is_listed(kind.group, rule.get("apiGroups"))
        and _is_listed(kind.version, rule.get("apiVersions"))
        and (scope == "*" or (scope == "Namespaced") is kind.namespaced)
        and any(_is_resource(pattern, attributes) for pattern in rule.get("resources") or ())
    )


def _is_listed(value: str, listed: Sequence[str] | None) -> bool:
    return listed is not None and ("*" in listed or value in listed)


def _is_resource(pattern: str, attributes: Attributes) -> bool:
    plural, _, subresource = pattern.partition("/")
    return plural in ("*", attributes.kind.plural) and (
        subresource == attributes.subresource or (subresource == "*" and bool(pattern))
    )
