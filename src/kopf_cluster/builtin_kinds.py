"""
The built-in kinds as they are served: the data of the resources with columns, initial states, and rules of kinds.

Names, verbs, and subresources come from ``data/``, types and defaults from `structures` and `defaults`.
"""

from __future__ import annotations

import base64
import functools
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from kopf_cluster import codec, statuses
from kopf_cluster.custom_resources import definitions as customs
from kopf_cluster.kinds import (
    certificates,
    columns,
    conversions,
    defaults,
    pruning,
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

Rule: TypeAlias = Callable[[Obj, Obj | None], list[FieldError]]
"""What is special of a kind: completes the new state, and tells what is wrong with it."""

_CLEANUP_FINALIZERS: Final = {customs.PLURAL: customs.CLEANUP_FINALIZER}

# Versions whose objects are stored in another one: where, in which version, and who converts them.
_CONVERTED: Final[dict[tuple[str, str], tuple[str, str, Converter]]] = {
    ("autoscaling", "v1"): ("", "v2", conversions.AUTOSCALERS),
    ("events.k8s.io", "v1"): ("events", "core/v1", conversions.EVENTS),
}

# Names of these are limited only by what fits in a URL.
_LOOSE_NAMES: Final = {"apiservices", "roles", "rolebindings", "clusterroles", "clusterrolebindings"}

# What everybody is told who asks for these kinds, which are served as long as there is v1.
_DEPRECATED: Final = {
    "componentstatuses": ("v1 ComponentStatus is deprecated in v1.19+",),
    "endpoints": ("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",),
}

# What new objects have from the beginning, besides the defaults: what the server adds, and zeros that are shown.
_INITIAL: Final[dict[str, Obj]] = {
    "namespaces": {"spec": {}, "status": {"phase": "Active"}},
    "pods": {"status": {"phase": "Pending", "qosClass": "BestEffort"}},
    "services": {"status": {"loadBalancer": {}}},
    "persistentvolumes": {"status": {"phase": "Available"}},
    "persistentvolumeclaims": {"status": {"phase": "Pending"}},
    "replicationcontrollers": {"status": {"replicas": 0}},
    "deployments": {"status": {}},
    "replicasets": {"status": {"replicas": 0}},
    "statefulsets": {"status": {"replicas": 0, "availableReplicas": 0}},
    "daemonsets": {
        "status": {"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}
    },
    "jobs": {"status": {}},
    "cronjobs": {"status": {}},
}


_NAMESPACE_FINALIZER: Final = "kubernetes"
"""What the controller of namespaces waits for before a namespace goes."""

_TOO_DEEP: Final = "json: exceeded max depth"


@functools.cache
def read_kinds() -> tuple[Kind, ...]:
    """Give all built-in kinds that are served by default: those of stable versions; all clusters share them."""
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
        errors = special(new, old) if special is not None else []
        errors += _validate(resource.plural, new, old)
        told = {error.field for error in errors}
        return errors + [error for error in structures.validate(new, structure) if error.field not in told]

    def definition_strategy(
        new: Obj,
        old: Obj | None,
        unknown: list[str] | None = None,
    ) -> list[FieldError]:
        """Definitions are checked by those who use them; what is not looked at is only pruned."""
        _replace(new, _prune(resource, new, structures.of_definition(resource.definition), unknown))
        try:
            return customs.settle(new, old)
        except RecursionError:
            raise statuses.Undecodable(resource.kind, resource.version, _TOO_DEEP) from None

    return definition_strategy if resource.plural == customs.PLURAL else strategy


def _prune(resource: Resource, obj: Obj, structure: structures.Structure, unknown: list[str] | None) -> Obj:
    """Give the object as its structure wants it, with all defaults; the given one is not modified."""
    try:
        kept, dropped = pruning.prune(obj, structure)
    except pruning.MistypedError as error:
        raise statuses.Undecodable(resource.kind, resource.version, str(error)) from None
    except RecursionError:
        raise statuses.Undecodable(resource.kind, resource.version, _TOO_DEEP) from None
    if unknown is not None:
        unknown += dropped
    if defaults.has_defaults(structure):
        kept = codec.decode(codec.encode(kept))
        defaults.fill_defaults(kept, structure)
    made: Obj = kept
    return made


def _replace(target: Obj, source: Obj) -> None:
    if target is not source:
        target.clear()
        target.update(source)


def _fill(target: Obj, defaults: Obj) -> None:
    """Add absent fields, never sharing what is mutable with the defaults."""
    for key, value in defaults.items():
        if isinstance(value, dict):
            existing = target.get(key)
            if existing is None or isinstance(existing, dict):
                target[key] = dict(existing or {})
                _fill(target[key], value)
        elif target.get(key) is None:
            target[key] = list(value) if isinstance(value, list) else value


def _settle_namespace(new: Obj, old: Obj | None) -> list[FieldError]:
    labels = dict(new["metadata"].get("labels") or {})
    labels["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")
    new["metadata"] = {**new["metadata"], "labels": labels}
    if old is None:
        finalizers = (new.get("spec") or {}).get("finalizers") or []
        if _NAMESPACE_FINALIZER not in finalizers:
            new["spec"] = {**(new.get("spec") or {}), "finalizers": [*finalizers, _NAMESPACE_FINALIZER]}
    return []


def _settle_secret(new: Obj, old: Obj | None) -> list[FieldError]:
    """Move the write-only `stringData` to `data`, as the API promises."""
    errors: list[FieldError] = []
    texts = new.pop("stringData", None)
    if texts is not None:
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}
    if old is not None and new.get("type") != old.get("type"):
        errors.append(statuses.invalid_value("type", new.get("type"), "field is immutable"))
    return errors + _refuse_change_if_immutable(new, old, "data", "immutable")


def _settle_config_map(new: Obj, old: Obj | None) -> list[FieldError]:
    return _refuse_change_if_immutable(new, old, "data", "binaryData", "immutable")


def _refuse_change_if_immutable(new: Obj, old: Obj | None, *fields: str) -> list[FieldError]:
    if old is None or old.get("immutable") is not True:
        return []
    return [
        statuses.forbidden_value(field, "field is immutable when `immutable` is set")
        for field in fields
        if new.get(field) != old.get(field)
    ]


def _settle_event(new: Obj, old: Obj | None) -> list[FieldError]:
    """Events belong to the namespaces of their objects; those with the exact time must tell who posts them."""
    errors: list[FieldError] = []
    is_new = new.get("apiVersion") == "events.k8s.io/v1"
    field = "regarding" if is_new else "involvedObject"
    namespace = (new.get(field) or {}).get("namespace") or ""
    if namespace != new["metadata"].get("namespace") and (namespace or new["metadata"].get("namespace") != "default"):
        errors.append(statuses.invalid_value(f"{field}.namespace", namespace, "does not match event.namespace"))
    if new.get("eventTime"):
        for names, limit in _EVENT_LIMITS.items():
            field = names[is_new]
            text = str(new.get(field) or "")
            if not text and field not in ("message", "note"):
                errors.append(statuses.required(field))
            elif len(text.encode()) > limit:
                errors.append(statuses.invalid_value(field, text, f"can have at most {limit} characters"))
    return errors


# The names in the core group, and in the group of events.
_EVENT_LIMITS: Final = {
    ("reportingComponent", "reportingController"): 128,
    ("reportingInstance", "reportingInstance"): 128,
    ("action", "action"): 128,
    ("reason", "reason"): 128,
    ("message", "note"): 1024,
}


def _settle_cron_job(new: Obj, old: Obj | None) -> list[FieldError]:
    errors: list[FieldError] = []
    spec = new.get("spec") or {}
    try:
        schedules.Schedule(spec.get("schedule") or "")
    except ValueError as error:
        errors.append(statuses.invalid_value("spec.schedule", spec.get("schedule") or "", str(error)))
    zone = spec.get("timeZone")
    try:
        zoneinfo.ZoneInfo("UTC" if zone is None else zone)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError, OSError):
        errors.append(statuses.invalid_value("spec.timeZone", zone, f"unknown time zone {zone}"))
    return errors


_RULES: Final[dict[str, Rule]] = {
    "namespaces": _settle_namespace,
    "secrets": _settle_secret,
    "configmaps": _settle_config_map,
    "events": _settle_event,
    "cronjobs": _settle_cron_job,
    "jobs": workload_specs.settle,
    "certificatesigningrequests": certificates.settle_request,
}


Validator: TypeAlias = Callable[[Obj, Obj | None], Iterator[FieldError]]

# By the plural names, which are unique among built-in kinds.
_VALIDATORS: Final[Mapping[str, Validator]] = {
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

# What the rules are not about; a write that changes nothing else is as good as the object was before.
_LEFT_OUT: Final = frozenset({"metadata", "status"})


def _validate(plural: str, new: Obj, old: Obj | None) -> list[FieldError]:
    """Give everything that is wrong with a new state; the old one is there if the object is changed."""
    validator = _VALIDATORS.get(plural)
    return [] if validator is None or (old is not None and _is_same(new, old)) else list(validator(new, old))


def _is_same(new: Obj, old: Obj) -> bool:
    return all(new.get(name) == old.get(name) for name in {*new, *old} if name not in _LEFT_OUT)
