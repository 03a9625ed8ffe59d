"""
The built-in kinds: the data of the resources with columns, initial states, and rules of kinds.

Names, verbs, and subresources come from ``data/``, types and defaults from `structures` and `defaults`.
"""

from __future__ import annotations

import base64
import functools
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from kopf_cluster import codec, statuses
from kopf_cluster.custom_resources import definitions as customs
from kopf_cluster.kinds import (
    builtin_pruning,
    certificates,
    columns,
    conversions,
    defaults,
    resources,
    scales,
    schedules,
    structures,
)
from kopf_cluster.kinds.kind import Converter, Kind, Obj, Strategy
from kopf_cluster.kinds.resources import Resource
from kopf_cluster.kinds.selectors import Selectable, make_selectable
from kopf_cluster.statuses import FieldError
from kopf_cluster.validation import (
    admission_kinds,
    autoscaler_specs,
    networking,
    pod_specs,
    single_kinds,
    workload_specs,
)

Rule: TypeAlias = Callable[[Obj, Obj | None], Iterable[FieldError]]
"""Completes the new state of an object in place, knowing the old one if any, and returns the errors in it."""

_CLEANUP_FINALIZERS: Final = {customs.PLURAL: customs.CLEANUP_FINALIZER}

# Versions whose objects are stored in another one: the bucket, the stored version, and the converter.
_CONVERTED: Final[dict[tuple[str, str], tuple[str, str, Converter]]] = {
    ("autoscaling", "v1"): ("", "v2", conversions.AUTOSCALERS),
    ("events.k8s.io", "v1"): ("events", "core/v1", conversions.EVENTS),
}

# Kinds whose names must only fit in a URL.
_LOOSE_NAMES: Final = {"apiservices", "roles", "rolebindings", "clusterroles", "clusterrolebindings"}

# Kinds whose objects are also created by updates.
_CREATED_BY_UPDATE: Final = {
    "clusterrolebindings",
    "clusterroles",
    "endpoints",
    "events",
    "leases",
    "limitranges",
    "rolebindings",
    "roles",
    "services",
}

# Warnings for all requests to these kinds.
_DEPRECATED: Final = {
    "componentstatuses": ("v1 ComponentStatus is deprecated in v1.19+",),
    "endpoints": ("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",),
}

# The initial values of new objects besides the defaults.
_INITIAL: Final[dict[str, Obj]] = {
    "namespaces": {"status": {"phase": "Active"}},
    "pods": {"status": {"phase": "Pending", "qosClass": "BestEffort"}},
    "persistentvolumes": {"status": {"phase": "Available"}},
}


_NAMESPACE_FINALIZER: Final = "kubernetes"
"""The finalizer of the controller of namespaces."""

_TOO_DEEP: Final = "json: exceeded max depth"


@functools.cache
def read_kinds() -> tuple[Kind, ...]:
    """Return all built-in kinds that are served by default, i.e. of stable versions; all clusters share them."""
    return tuple(_make_kind(resource) for resource in resources.read_resources() if not resource.is_preview)


def _make_kind(resource: Resource) -> Kind:
    plural = resource.plural
    stored_as, storage_version, converter = _CONVERTED.get((resource.group, resource.version), ("", "", None))
    return Kind(
        group=resource.group,
        version=resource.version,
        kind=resource.kind,
        plural=plural,
        singular=resource.singular,
        namespaced=resource.namespaced,
        short_names=resource.short_names,
        categories=resource.categories,
        verbs=resource.verbs,
        has_status="status" in resource.subresources,
        has_generation=resource.generation,
        shows_deleted=resource.shown_deleted,
        listed_subresources=resource.subresources,
        definition=resource.definition,
        scale=scales.BUILTIN if "scale" in resource.subresources else None,
        created_by_update=plural in _CREATED_BY_UPDATE,
        loose_names=plural in _LOOSE_NAMES,
        cleanup_finalizer=_CLEANUP_FINALIZERS.get(plural, ""),
        columns=columns.make_columns(plural),
        fields=_make_fields(resource),
        other_fields=_make_other_fields(resource),
        stored_as=stored_as,
        storage_version=storage_version,
        converter=converter,
        strategy=_make_strategy(resource),
        warnings=_DEPRECATED.get(plural, ()),
    )


def _make_fields(resource: Resource) -> dict[str, Selectable]:
    rename = conversions.rename_event_field if resource.group == "events.k8s.io" else str
    return {field: make_selectable(rename(field)) for field in resource.fields}


def _make_other_fields(resource: Resource) -> dict[str, Selectable]:
    """Events of both groups are the same objects, but are selected by different names of fields."""
    if resource.plural != "events":
        return {}
    others = (other for other in resources.read_resources() if other.plural == "events" and not other.is_preview)
    return {field: path for other in others for field, path in _make_fields(other).items()}


def _make_strategy(resource: Resource) -> Strategy:
    initial, special = _INITIAL.get(resource.plural, {}), _RULES.get(resource.plural)

    def strategy(new: Obj, old: Obj | None, unknown: list[str] | None = None) -> list[FieldError]:
        structure = structures.of_definition(resource.definition)
        _replace(new, _prune(resource, new, structure, unknown))
        _fill(new, initial)
        errors = list(special(new, old)) if special is not None else []
        errors += _validate(resource.plural, new, old)
        told = {error.field for error in errors}
        return errors + [error for error in structures.validate(new, structure) if error.field not in told]

    def definition_strategy(
        new: Obj,
        old: Obj | None,
        unknown: list[str] | None = None,
    ) -> list[FieldError]:
        """Prune the definition; `definitions` validates the rest."""
        _replace(new, _prune(resource, new, structures.of_definition(resource.definition), unknown))
        try:
            return customs.settle(new, old)
        except RecursionError:
            raise statuses.Undecodable(resource.kind, resource.version, _TOO_DEEP) from None

    return definition_strategy if resource.plural == customs.PLURAL else strategy


def _prune(resource: Resource, obj: Obj, structure: structures.Structure, unknown: list[str] | None) -> Obj:
    """Return the object without unknown fields and with all defaults; the given one is not modified."""
    try:
        kept, dropped = builtin_pruning.prune(obj, structure)
    except builtin_pruning.MistypedError as error:
        raise statuses.Undecodable(resource.kind, resource.version, str(error)) from None
    except RecursionError:
        raise statuses.Undecodable(resource.kind, resource.version, _TOO_DEEP) from None
    if unknown is not None:
        unknown += dropped
    if (plan := defaults.find_plan(structure)) is not None:
        kept = codec.decode(codec.encode(kept))
        plan.apply(kept)
    made: Obj = kept
    return made


def _replace(target: Obj, source: Obj) -> None:
    if target is not source:
        target.clear()
        target.update(source)


def _fill(target: Obj, defaults: Obj) -> None:
    """Add absent fields, without sharing mutable values with the defaults."""
    for key, value in defaults.items():
        if isinstance(value, dict):
            existing = target.get(key)
            if existing is None or isinstance(existing, dict):
                target[key] = dict(existing or {})
                _fill(target[key], value)
        elif target.get(key) is None:
            target[key] = list(value) if isinstance(value, list) else value


def _settle_namespace(new: Obj, old: Obj | None) -> Iterable[FieldError]:
    labels = dict(new["metadata"].get("labels") or {})
    labels["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")
    new["metadata"] = {**new["metadata"], "labels": labels}
    if old is None:
        finalizers = (new.get("spec") or {}).get("finalizers") or []
        if _NAMESPACE_FINALIZER not in finalizers:
            new["spec"] = {**(new.get("spec") or {}), "finalizers": [*finalizers, _NAMESPACE_FINALIZER]}
    return []


def _settle_secret(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Move the write-only `stringData` to `data`."""
    texts = new.pop("stringData", None)
    if texts is not None:
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}
    if old is not None and new.get("type") != old.get("type"):
        yield statuses.invalid_value("type", new.get("type"), "field is immutable")
    yield from _keep_immutable(new, old)


def _keep_immutable(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Refuse changes of immutable config maps and secrets."""
    if old is None or old.get("immutable") is not True:
        return
    for field in ("data", "binaryData", "immutable"):
        if new.get(field) != old.get(field):
            yield statuses.forbidden_value(field, "field is immutable when `immutable` is set")


def _settle_event(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Events belong to the namespaces of their objects; those with the exact time must name their reporters."""
    is_new = new.get("apiVersion") == "events.k8s.io/v1"
    field = "regarding" if is_new else "involvedObject"
    namespace = (new.get(field) or {}).get("namespace") or ""
    if namespace != new["metadata"].get("namespace") and (namespace or new["metadata"].get("namespace") != "default"):
        yield statuses.invalid_value(f"{field}.namespace", namespace, "does not match event.namespace")
    if new.get("eventTime"):
        for names, limit in _EVENT_LIMITS.items():
            field = names[is_new]
            text = str(new.get(field) or "")
            if not text and field not in ("message", "note"):
                yield statuses.required(field)
            elif len(text.encode()) > limit:
                yield statuses.invalid_value(field, text, f"can have at most {limit} characters")


# The maximal lengths by the names in the core group, and in the group of events.
_EVENT_LIMITS: Final = {
    ("reportingComponent", "reportingController"): 128,
    ("reportingInstance", "reportingInstance"): 128,
    ("action", "action"): 128,
    ("reason", "reason"): 128,
    ("message", "note"): 1024,
}


def _settle_cron_job(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    try:
        schedules.Schedule(spec.get("schedule") or "")
    except ValueError as error:
        yield statuses.invalid_value("spec.schedule", spec.get("schedule") or "", str(error))
    zone = spec.get("timeZone")
    try:
        zoneinfo.ZoneInfo("UTC" if zone is None else zone)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError, OSError):
        yield statuses.invalid_value("spec.timeZone", zone, f"unknown time zone {zone}")


_RULES: Final[dict[str, Rule]] = {
    "namespaces": _settle_namespace,
    "secrets": _settle_secret,
    "configmaps": _keep_immutable,
    "events": _settle_event,
    "cronjobs": _settle_cron_job,
    "jobs": workload_specs.settle,
    "certificatesigningrequests": certificates.settle_request,
}


# By the plural names, which are unique among built-in kinds. These change nothing.
_VALIDATORS: Final[Mapping[str, Rule]] = {
    "apiservices": single_kinds.validate_api_service,
    "clusterrolebindings": single_kinds.validate_binding,
    "clusterroles": single_kinds.validate_role,
    "configmaps": single_kinds.validate_config_map,
    "cronjobs": workload_specs.validate_cron_job,
    "daemonsets": workload_specs.validate_daemon_set,
    "deployments": workload_specs.validate_deployment,
    "horizontalpodautoscalers": autoscaler_specs.validate_autoscaler,
    "ingresses": networking.validate_ingress,
    "jobs": workload_specs.validate_job,
    "leases": single_kinds.validate_lease,
    "limitranges": single_kinds.validate_range,
    "mutatingwebhookconfigurations": admission_kinds.validate_webhooks,
    "networkpolicies": networking.validate_network_policy,
    "persistentvolumeclaims": workload_specs.validate_claim,
    "persistentvolumes": workload_specs.validate_volume,
    "poddisruptionbudgets": single_kinds.validate_budget,
    "pods": pod_specs.validate_pod,
    "priorityclasses": single_kinds.validate_priority_class,
    "replicasets": workload_specs.validate_replica_set,
    "replicationcontrollers": workload_specs.validate_replication_controller,
    "resourcequotas": single_kinds.validate_quota,
    "rolebindings": single_kinds.validate_binding,
    "roles": single_kinds.validate_role,
    "secrets": single_kinds.validate_secret,
    "services": networking.validate_service,
    "statefulsets": workload_specs.validate_stateful_set,
    "validatingadmissionpolicies": admission_kinds.validate_policy,
    "validatingadmissionpolicybindings": admission_kinds.validate_binding,
    "validatingwebhookconfigurations": admission_kinds.validate_webhooks,
}

# The fields that no rule is about; a write that changes nothing else is as valid as the object was before.
_LEFT_OUT: Final = frozenset({"metadata", "status"})


def _validate(plural: str, new: Obj, old: Obj | None) -> Iterable[FieldError]:
    """Return all errors in a new state; the old one is there if the object is changed."""
    is_same = old is not None and codec.same_fields(new, old, _LEFT_OUT)
    return () if is_same or plural not in _VALIDATORS else _VALIDATORS[plural](new, old)
