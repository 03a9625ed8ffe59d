"""
Columns of the Table output, of built-in and of custom kinds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from kopf_cluster import ages, jsonpaths
from kopf_cluster.kinds.cells import CELLS, NONE, age_of
from kopf_cluster.kinds.kind import Column, Obj


def name_of(obj: Obj) -> Any:
    return obj["metadata"].get("name", "")


NAME: Final = Column("Name", "string", "The unique name within its namespace.", name_of, format="name")
AGE: Final = Column("Age", "string", "The time since the creation.", age_of)


def from_definition(raw: list[Obj] | None) -> tuple[Column, ...]:
    """Make the columns of a custom kind from its `additionalPrinterColumns`."""
    if not raw:
        return NAME, Column("Age", "date", "The time since the creation.", age_of)
    return NAME, *(
        Column(
            item.get("name", ""),
            item.get("type", ""),
            item.get("description", ""),
            _custom_cell(item.get("type", ""), jsonpaths.parse(item.get("jsonPath", ""))),
            format=item.get("format", ""),
            priority=int(item.get("priority") or 0),
        )
        for item in raw
    )


def _custom_cell(kind: str, path: jsonpaths.Path) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        found = path.find(obj)
        if not found:
            return None
        if kind == "string":
            return " ".join(jsonpaths.as_text(value) for value in found)
        if kind == "date":
            return ages.age(found[0])
        if kind == "integer":
            return int(found[0]) if isinstance(found[0], (int, float)) else None
        if kind == "number":
            return found[0] if isinstance(found[0], (int, float)) else None
        return found[0] if isinstance(found[0], bool) else None

    return cell


# Columns of the built-in kinds from short notes: the same columns as in ``kubectl get``.
#
# A note is ``Title=path`` for a cell with the result of the JSONPath, ``Title=@name`` for a cell computed by a function
# of `cells`; a title in parentheses is only in the wide output. The name goes first unless it is in the note;
# the age goes before the wide columns unless it is in the note.

_CONTAINERS: Final = (
    "(Containers)=.spec.template.spec.containers[*].name, (Images)=.spec.template.spec.containers[*].image"
)
_REPLICATED: Final = f"Desired=@replicas, Current=@current, Ready=@ready, {_CONTAINERS}, (Selector)=@selector"
_QUEUING: Final = ".spec.limited.limitResponse.queuing"
_WEBHOOKS: Final = "Webhooks=@webhooks"
_BINDING: Final = "Role=@role, Age=@age, (Users)=@users, (Groups)=@groups, (ServiceAccounts)=@service-accounts"

_NOTES: Final[dict[str, str]] = {
    "apiservices": "Service=@api-service, Available=@is-available",
    "certificatesigningrequests": "Age=@age, SignerName=.spec.signerName, Requestor=.spec.username, "
    "RequestedDuration=@requested-duration, Condition=@request-condition",
    "clusterrolebindings": _BINDING,
    "clusterroles": "Created At=@created",
    "componentstatuses": "Status=@component-status, Message=@health-message, Error=@health-error",
    "configmaps": "Data=@data-count",
    "controllerrevisions": "Controller=@controller, Revision=.revision",
    "cronjobs": "Schedule=.spec.schedule, TimeZone=.spec.timeZone, Suspend=@suspend, Active=@active, "
    "Last Schedule=@last-schedule, (Containers)=.spec.jobTemplate.spec.template.spec.containers[*].name, "
    "(Images)=.spec.jobTemplate.spec.template.spec.containers[*].image, (Selector)=@job-selector",
    "csidrivers": "AttachRequired=.spec.attachRequired, PodInfoOnMount=.spec.podInfoOnMount, "
    "StorageCapacity=.spec.storageCapacity, TokenRequests=@token-requests, "
    "RequiresRepublish=.spec.requiresRepublish, Modes=.spec.volumeLifecycleModes[*]",
    "csinodes": "Drivers=@drivers",
    "customresourcedefinitions": "Created At=@created",
    "daemonsets": "Desired=@ds-desired, Current=@ds-current, Ready=@ds-ready, Up-to-date=@ds-updated, "
    f"Available=@ds-available, Node Selector=@node-selector, {_CONTAINERS}, (Selector)=@selector",
    "deployments": "Ready=@replicas-ready, Up-to-date=@updated, Available=@available, "
    f"{_CONTAINERS}, (Selector)=@selector",
    "endpoints": "Endpoints=@endpoints",
    "endpointslices": "AddressType=.addressType, Ports=@slice-ports, Endpoints=@slice-endpoints",
    "events": "Last Seen=@event-last-seen, Type=.type, Reason=.reason, Object=@event-object, "
    "(Subobject)=@event-subobject, (Source)=@event-source, Message=@event-message, "
    "(First Seen)=@event-first-seen, (Count)=@event-count",
    "flowschemas": "PriorityLevel=.spec.priorityLevelConfiguration.name, MatchingPrecedence=.spec.matchingPrecedence, "
    "DistinguisherMethod=.spec.distinguisherMethod.type, Age=@age, MissingPL=@is-dangling",
    "horizontalpodautoscalers": "Reference=@scale-target, Targets=@metrics, MinPods=@min-pods, "
    "MaxPods=.spec.maxReplicas, Replicas=@hpa-replicas",
    "ingressclasses": "Controller=.spec.controller, Parameters=@parameters",
    "ingresses": "Class=.spec.ingressClassName, Hosts=@hosts, Address=@addresses, Ports=@ingress-ports",
    "jobs": f"Status=@job-status, Completions=@job-completions, Duration=@job-duration, {_CONTAINERS}, "
    "(Selector)=@selector",
    "leases": "Holder=.spec.holderIdentity",
    "limitranges": "Created At=@created",
    "mutatingwebhookconfigurations": _WEBHOOKS,
    "mutatingadmissionpolicies": "Mutations=@mutations, ParamKind=@param-kind",
    "mutatingadmissionpolicybindings": "PolicyName=.spec.policyName, ParamRef=@param-ref",
    "namespaces": "Status=@phase",
    "networkpolicies": "Pod-Selector=@pod-selector",
    "nodes": "Status=@node-status, Roles=@node-roles, Age=@age, Version=.status.nodeInfo.kubeletVersion, "
    "(Internal-IP)=@internal-ip, (External-IP)=@external-ip, (OS-Image)=.status.nodeInfo.osImage, "
    "(Kernel-Version)=.status.nodeInfo.kernelVersion, "
    "(Container-Runtime)=.status.nodeInfo.containerRuntimeVersion",
    "persistentvolumeclaims": "Status=@phase, Volume=@volume, Capacity=@capacity, Access Modes=@granted-modes, "
    "StorageClass=@storage-class, VolumeAttributesClass=@attributes-class, Age=@age, "
    "(VolumeMode)=.spec.volumeMode",
    "persistentvolumes": "Capacity=.spec.capacity.storage, Access Modes=@offered-modes, "
    "Reclaim Policy=.spec.persistentVolumeReclaimPolicy, Status=@phase, Claim=@claim, "
    "StorageClass=@storage-class, VolumeAttributesClass=@attributes-class, "
    "Reason=@reason, Age=@age, (VolumeMode)=.spec.volumeMode",
    "poddisruptionbudgets": "Min Available=@min-available, Max Unavailable=@max-unavailable, "
    "Allowed Disruptions=@allowed-disruptions",
    "pods": "Ready=@pod-ready, Status=@pod-status, Restarts=@pod-restarts, (IP)=.status.podIP, "
    "(Node)=.spec.nodeName, (Nominated Node)=.status.nominatedNodeName, "
    "(Readiness Gates)=@readiness-gates",
    "podtemplates": "Containers=.template.spec.containers[*].name, Images=.template.spec.containers[*].image, "
    "Pod Labels=@template-labels",
    "prioritylevelconfigurations": "Type=.spec.type, NominalConcurrencyShares=.spec.limited.nominalConcurrencyShares, "
    f"Queues={_QUEUING}.queues, HandSize={_QUEUING}.handSize, "
    f"QueueLengthLimit={_QUEUING}.queueLengthLimit",
    "priorityclasses": "Value=.value, Global-Default=@global-default, Age=@age, PreemptionPolicy=.preemptionPolicy",
    "replicasets": _REPLICATED,
    "replicationcontrollers": _REPLICATED,
    "resourcequotas": "Request=@quota-requests, Limit=@quota-limits",
    "rolebindings": _BINDING,
    "roles": "Created At=@created",
    "runtimeclasses": "Handler=.handler",
    "secrets": "Type=.type, Data=@data-count",
    "servicecidrs": "CIDRs=.spec.cidrs[*]",
    "services": "Type=.spec.type, Cluster-IP=.spec.clusterIP, External-IP=@service-addresses, Port(s)=@ports, "
    "(Selector)=@selector",
    "statefulsets": f"Ready=@replicas-ready, {_CONTAINERS}",
    "storageclasses": "Provisioner=.provisioner, ReclaimPolicy=.reclaimPolicy, "
    "VolumeBindingMode=.volumeBindingMode, AllowVolumeExpansion=@expansion",
    "validatingadmissionpolicies": "Validations=@validations, ParamKind=@param-kind",
    "validatingadmissionpolicybindings": "PolicyName=.spec.policyName, ParamRef=@param-ref",
    "validatingwebhookconfigurations": _WEBHOOKS,
    "volumeattributesclasses": "DriverName=.driverName",
    "volumeattachments": "Attacher=.spec.attacher, PV=.spec.source.persistentVolumeName, Node=.spec.nodeName, "
    "Attached=@attached",
}


def make_columns(plural: str) -> tuple[Column, ...]:
    """Make the columns of a built-in kind; by default, the name and the age."""
    noted = [_make_column(note) for note in filter(None, (note.strip() for note in _NOTES.get(plural, "").split(",")))]
    if plural == "events":  # they have no meaningful names or ages
        return *noted, dataclasses.replace(NAME, priority=1)
    if plural == "componentstatuses":  # they have no ages at all
        return NAME, *noted
    narrow = [column for column in noted if not column.priority]
    wide = [column for column in noted if column.priority]
    is_aged = any(column.name in ("Age", "Created At", "Pod Labels") for column in narrow)
    return NAME, *narrow, *(() if is_aged else (AGE,)), *wide


def _make_column(note: str) -> Column:
    title, _, source = note.partition("=")
    is_wide = title.startswith("(")
    cell = CELLS[source[1:]] if source.startswith("@") else _path_cell(jsonpaths.parse(source))
    return Column(title[1:-1] if is_wide else title, "string", "", cell, priority=1 if is_wide else 0)


def _path_cell(path: jsonpaths.Path) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        return ",".join(jsonpaths.as_text(value) for value in path.find(obj)) or NONE

    return cell
