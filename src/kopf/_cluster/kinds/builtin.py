"""
The built-in kinds as they are served: the data of the resources with columns, initial states, and rules of kinds.

Names, verbs, and subresources come from ``data/``, types and defaults from `structures` and `defaults`.
"""
from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from .. import codec, jsonpaths, statuses
from . import columns, customs, defaults, pruning, resources, structures, validation
from .kind import Column, Kind, Obj, Strategy
from .resources import Resource

#: What is special of a kind: completes the new state, and tells what is wrong with it.
Rule: TypeAlias = Callable[[Obj, Obj | None], list[statuses.FieldError]]

_COLUMNS: Final[dict[str, str]] = {
    "namespaces": "Status=@phase",
    "nodes": "Status=@node-status, Age=@age, Version=.status.nodeInfo.kubeletVersion",
    "pods": "Ready=@pod-ready, Status=@pod-status, Restarts=@pod-restarts, (IP)=.status.podIP, "
            "(Node)=.spec.nodeName, (Nominated Node)=.status.nominatedNodeName, "
            "(Readiness Gates)=.spec.readinessGates[*].conditionType",
    "services": "Type=.spec.type, Cluster-IP=.spec.clusterIP, External-IP=.spec.externalIPs[*], "
                "Port(s)=@ports, (Selector)=@selector",
    "configmaps": "Data=@data-count",
    "secrets": "Type=.type, Data=@data-count",
    "serviceaccounts": "Secrets=@secrets",
    "events": "Last Seen=@event-last-seen, Type=.type, Reason=.reason, Object=@event-object, Message=.message",
    "persistentvolumes": "Capacity=.spec.capacity.storage, Access Modes=@access-modes, "
                         "Reclaim Policy=.spec.persistentVolumeReclaimPolicy, Status=@phase, "
                         "Claim=.spec.claimRef.name, StorageClass=.spec.storageClassName, "
                         "(VolumeMode)=.spec.volumeMode",
    "persistentvolumeclaims": "Status=@phase, Volume=.spec.volumeName, Capacity=@capacity, "
                              "Access Modes=@access-modes, StorageClass=.spec.storageClassName, "
                              "(VolumeMode)=.spec.volumeMode",
    "deployments": "Ready=@replicas-ready, Up-to-date=@updated, Available=@available, "
                   "(Containers)=.spec.template.spec.containers[*].name, "
                   "(Images)=.spec.template.spec.containers[*].image, (Selector)=@selector",
    "replicasets": "Desired=@replicas, Current=@current, Ready=@ready, "
                   "(Containers)=.spec.template.spec.containers[*].name, "
                   "(Images)=.spec.template.spec.containers[*].image, (Selector)=@selector",
    "statefulsets": "Ready=@replicas-ready, (Containers)=.spec.template.spec.containers[*].name, "
                    "(Images)=.spec.template.spec.containers[*].image",
    "daemonsets": "Desired=@ds-desired, Current=@ds-current, Ready=@ds-ready, "
                  "(Containers)=.spec.template.spec.containers[*].name, "
                  "(Images)=.spec.template.spec.containers[*].image, (Selector)=@selector",
    "jobs": "Status=@job-status, Completions=@job-completions, "
            "(Containers)=.spec.template.spec.containers[*].name, (Images)=.spec.template.spec.containers[*].image",
    "cronjobs": "Schedule=.spec.schedule, Suspend=@suspend, "
                "(Containers)=.spec.jobTemplate.spec.template.spec.containers[*].name",
    "ingresses": "Class=.spec.ingressClassName, Hosts=.spec.rules[*].host",
    "leases": "Holder=.spec.holderIdentity",
    "roles": "Created At=@created", "clusterroles": "Created At=@created",
    "rolebindings": "Role=@role", "clusterrolebindings": "Role=@role",
    "storageclasses": "Provisioner=.provisioner, ReclaimPolicy=.reclaimPolicy, "
                      "VolumeBindingMode=.volumeBindingMode",
    "priorityclasses": "Value=.value, Global-Default=.globalDefault",
    "customresourcedefinitions": "Created At=@created",
    "certificatesigningrequests": "Age=@age, SignerName=.spec.signerName, Requestor=.spec.username",
    "controllerrevisions": "Revision=.revision",
    "csidrivers": "AttachRequired=.spec.attachRequired, PodInfoOnMount=.spec.podInfoOnMount, "
                  "StorageCapacity=.spec.storageCapacity, Modes=.spec.volumeLifecycleModes[*]",
    "endpointslices": "AddressType=.addressType, Ports=.ports[*].port, Endpoints=.endpoints[*].addresses[*]",
    "ingressclasses": "Controller=.spec.controller, Parameters=.spec.parameters.name",
    "limitranges": "Created At=@created",
    "replicationcontrollers": "Desired=@replicas, Current=@current, Ready=@ready, "
                              "(Containers)=.spec.template.spec.containers[*].name, "
                              "(Images)=.spec.template.spec.containers[*].image, (Selector)=@selector",
    "runtimeclasses": "Handler=.handler",
    "volumeattachments": "Attacher=.spec.attacher, PV=.spec.source.persistentVolumeName, Node=.spec.nodeName, "
                         "Attached=.status.attached",
}

_FIELD_PATHS: Final = {"source": "source.component"}

_CLEANUP_FINALIZERS: Final = {customs.PLURAL: customs.CLEANUP_FINALIZER}

# Versions whose objects are stored in another one; they are not served as long as nobody converts them.
_CONVERTED: Final = {("autoscaling", "v1"), ("events.k8s.io", "v1")}

# Names of these are limited only by what fits in a URL.
_LOOSE_NAMES: Final = {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}

# What new objects have from the beginning, besides the defaults: what the server adds, and zeros that are shown.
_INITIAL: Final[dict[str, Obj]] = {
    "namespaces": {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    "pods": {"status": {"phase": "Pending", "qosClass": "BestEffort"}},
    "services": {"status": {"loadBalancer": {}}},
    "persistentvolumes": {"status": {"phase": "Available"}},
    "persistentvolumeclaims": {"status": {"phase": "Pending"}},
    "replicationcontrollers": {"status": {"replicas": 0}},
    "deployments": {"status": {}},
    "replicasets": {"status": {"replicas": 0}},
    "statefulsets": {"status": {"replicas": 0, "availableReplicas": 0}},
    "daemonsets": {"status": {"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
                              "numberMisscheduled": 0, "numberReady": 0}},
    "jobs": {"status": {}},
    "cronjobs": {"status": {}},
}


_TOO_DEEP: Final = "json: exceeded max depth"


def read_kinds() -> Iterator[Kind]:
    """Give all built-in kinds that are served by default: those of stable versions."""
    for resource in resources.read_resources():
        if not resource.is_preview and (resource.group, resource.version) not in _CONVERTED:
            yield _make_kind(resource)


def _make_kind(resource: Resource) -> Kind:
    plural = resource.plural
    return Kind(
        group=resource.group, version=resource.version, kind=resource.kind, plural=plural,
        singular=resource.singular, namespaced=resource.namespaced,
        short_names=resource.short_names, categories=resource.categories, verbs=resource.verbs,
        has_status="status" in resource.subresources, has_generation=resource.generation,
        listed_subresources=resource.subresources, definition=resource.definition,
        loose_names=plural in _LOOSE_NAMES,
        cleanup_finalizer=_CLEANUP_FINALIZERS.get(plural, ""),
        columns=_make_columns(plural),
        fields={field: jsonpaths.parse(_FIELD_PATHS.get(field, field)) for field in resource.fields},
        strategy=_make_strategy(resource),
    )


def _make_columns(plural: str) -> tuple[Column, ...]:
    made = columns.from_notes(_COLUMNS.get(plural, ""))
    if plural == "events":  # they have no meaningful names or ages: kubectl shows other columns first
        by_name = {column.name: column for column in made}
        order = ("Last Seen", "Type", "Reason", "Object", "Message")
        return *(by_name[name] for name in order), dataclasses.replace(by_name["Name"], priority=1)
    if any(column.name == "Created At" for column in made):
        return tuple(column for column in made if column.name != "Age")
    return made


def _make_strategy(resource: Resource) -> Strategy:
    initial, special = _INITIAL.get(resource.plural, {}), _RULES.get(resource.plural)

    def strategy(new: Obj, old: Obj | None, unknown: list[str] | None = None) -> list[statuses.FieldError]:
        structure = structures.of_definition(resource.definition)
        _replace(new, _prune(resource, new, structure, unknown))
        _fill(new, initial)
        errors = special(new, old) if special is not None else []
        return errors + list(validation.validate(new, structure))

    def definition_strategy(
            new: Obj, old: Obj | None, unknown: list[str] | None = None,
    ) -> list[statuses.FieldError]:
        """Definitions are checked by those who use them; what is not looked at is only pruned."""
        try:
            errors = customs.settle(new, old)
        except RecursionError:
            raise _undecodable(resource, _TOO_DEEP) from None
        if not errors:
            _replace(new, _prune(resource, new, structures.of_definition(resource.definition), unknown))
        return errors
    return definition_strategy if resource.plural == customs.PLURAL else strategy


def _prune(resource: Resource, obj: Obj, structure: structures.Structure, unknown: list[str] | None) -> Obj:
    """Give the object as its structure wants it, with all defaults; the given one is not modified."""
    try:
        kept, dropped = pruning.prune(obj, structure)
    except pruning.MistypedError as error:
        raise _undecodable(resource, str(error)) from None
    except RecursionError:
        raise _undecodable(resource, _TOO_DEEP) from None
    if unknown is not None:
        unknown += dropped
    if defaults.has_defaults(structure):
        kept = codec.decode(codec.encode(kept))
        defaults.fill_defaults(kept, structure)
    made: Obj = kept
    return made


def _undecodable(resource: Resource, why: str) -> statuses.APIStatus:
    return statuses.bad_request(f'{resource.kind} in version "{resource.version}" cannot be handled as '
                                f"a {resource.kind}: {why}")


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


def _settle_namespace(new: Obj, old: Obj | None) -> list[statuses.FieldError]:
    labels = dict(new["metadata"].get("labels") or {})
    labels["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")
    new["metadata"] = {**new["metadata"], "labels": labels}
    return []


def _settle_secret(new: Obj, old: Obj | None) -> list[statuses.FieldError]:
    """Move the write-only `stringData` to `data`, as the API promises."""
    errors: list[statuses.FieldError] = []
    texts = new.pop("stringData", None)
    if texts is not None:
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}
    if old is not None and new.get("type") != old.get("type"):
        errors.append(statuses.invalid_value("type", new.get("type"), "field is immutable"))
    return errors + _refuse_change_if_immutable(new, old, "data", "immutable")


def _settle_config_map(new: Obj, old: Obj | None) -> list[statuses.FieldError]:
    return _refuse_change_if_immutable(new, old, "data", "binaryData", "immutable")


def _refuse_change_if_immutable(new: Obj, old: Obj | None, *fields: str) -> list[statuses.FieldError]:
    if old is None or old.get("immutable") is not True:
        return []
    return [statuses.forbidden_value(field, "field is immutable when `immutable` is set")
            for field in fields if new.get(field) != old.get(field)]


def _settle_claim(new: Obj, old: Obj | None) -> list[statuses.FieldError]:
    """Only the requested size of a claim can be changed, and only to a bigger one in a real cluster."""
    if old is None:
        return []
    spec, old_spec = new.get("spec") or {}, old.get("spec") or {}
    changed = {key for key in {*spec, *old_spec} if spec.get(key) != old_spec.get(key)}
    if changed - {"resources", "volumeName", "volumeAttributesClassName"}:
        return [statuses.forbidden_value(
            "spec", "spec is immutable after creation except resources.requests and "
                    "volumeAttributesClassName for bound claims")]
    return []


def _settle_event(new: Obj, old: Obj | None) -> list[statuses.FieldError]:
    """Events belong to the namespaces of their objects; those with the exact time must tell who posts them."""
    errors: list[statuses.FieldError] = []
    namespace = (new.get("involvedObject") or {}).get("namespace") or ""
    if namespace != new["metadata"].get("namespace") and (namespace or new["metadata"].get("namespace") != "default"):
        errors.append(statuses.invalid_value("involvedObject.namespace", namespace, "does not match event.namespace"))
    if new.get("eventTime"):
        for field, limit in _EVENT_LIMITS.items():
            text = str(new.get(field) or "")
            if not text and field != "message":
                errors.append(statuses.required(field))
            elif len(text.encode()) > limit:
                errors.append(statuses.invalid_value(field, text, f"can have at most {limit} characters"))
    return errors


_EVENT_LIMITS: Final = {"reportingComponent": 128, "reportingInstance": 128, "action": 128, "reason": 128,
                        "message": 1024}


_RULES: Final[dict[str, Rule]] = {
    "namespaces": _settle_namespace,
    "secrets": _settle_secret,
    "configmaps": _settle_config_map,
    "persistentvolumeclaims": _settle_claim,
    "events": _settle_event,
}
