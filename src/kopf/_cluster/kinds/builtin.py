"""
The built-in kinds as data: names, scope, abilities, columns, selectable fields, and the most needed defaults.

One line a kind: ``version plural Kind shorts categories flags``, a dash where there is none. The flags:
``C`` cluster-wide, ``S`` with the status subresource, ``G`` with generations, ``N`` loose names.
"""
from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator
from typing import Final

from .. import jsonpaths, statuses
from . import columns, customs
from .kind import Column, Kind, Obj, Strategy

_KINDS: Final = """
v1 namespaces Namespace ns - CS
v1 nodes Node no - CS
v1 pods Pod po all SG
v1 services Service svc all S
v1 configmaps ConfigMap cm - -
v1 secrets Secret - - -
v1 serviceaccounts ServiceAccount sa - -
v1 events Event ev - -
v1 endpoints Endpoints ep - -
v1 persistentvolumes PersistentVolume pv - CS
v1 persistentvolumeclaims PersistentVolumeClaim pvc - S
v1 replicationcontrollers ReplicationController rc all SG
v1 resourcequotas ResourceQuota quota - S
v1 limitranges LimitRange limits - -
v1 podtemplates PodTemplate - - G
apps/v1 deployments Deployment deploy all SG
apps/v1 replicasets ReplicaSet rs all SG
apps/v1 statefulsets StatefulSet sts all SG
apps/v1 daemonsets DaemonSet ds all SG
apps/v1 controllerrevisions ControllerRevision - - -
batch/v1 jobs Job - all SG
batch/v1 cronjobs CronJob cj all SG
autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler hpa all S
policy/v1 poddisruptionbudgets PodDisruptionBudget pdb - SG
networking.k8s.io/v1 ingresses Ingress ing - SG
networking.k8s.io/v1 ingressclasses IngressClass - - CG
networking.k8s.io/v1 networkpolicies NetworkPolicy netpol - G
discovery.k8s.io/v1 endpointslices EndpointSlice - - G
coordination.k8s.io/v1 leases Lease - - -
rbac.authorization.k8s.io/v1 roles Role - - N
rbac.authorization.k8s.io/v1 rolebindings RoleBinding - - N
rbac.authorization.k8s.io/v1 clusterroles ClusterRole - - CN
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding - - CN
storage.k8s.io/v1 storageclasses StorageClass sc - C
scheduling.k8s.io/v1 priorityclasses PriorityClass pc - CG
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration - api-extensions CG
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration - api-extensions CG
apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition crd,crds api-extensions CSG
"""

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
}

# What a field selector may name, besides the name and the namespace: "Field Selectors" of the documentation.
_FIELDS: Final[dict[str, str]] = {
    "namespaces": "status.phase",
    "nodes": "spec.unschedulable",
    "pods": "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
            "status.phase status.podIP status.nominatedNodeName",
    "secrets": "type",
    "services": "spec.clusterIP spec.type",
    "events": "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
              "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath "
              "reason reportingComponent source type",
    "replicasets": "status.replicas",
    "replicationcontrollers": "status.replicas",
    "jobs": "status.successful",
}
_FIELD_PATHS: Final = {"source": "source.component"}

_CLEANUP_FINALIZERS: Final = {customs.PLURAL: customs.CLEANUP_FINALIZER}

_POD_SPEC: Final[Obj] = {
    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler", "securityContext": {},
}
_DEFAULTS: Final[dict[str, Obj]] = {
    "namespaces": {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    "pods": {"spec": {**_POD_SPEC, "enableServiceLinks": True, "serviceAccountName": "default"},
             "status": {"phase": "Pending", "qosClass": "BestEffort"}},
    "services": {"spec": {"type": "ClusterIP", "sessionAffinity": "None"}, "status": {"loadBalancer": {}}},
    "secrets": {"type": "Opaque"},
    "persistentvolumes": {"spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
                          "status": {"phase": "Available"}},
    "persistentvolumeclaims": {"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}},
    "deployments": {"spec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                             "strategy": {"type": "RollingUpdate"}, "template": {"spec": _POD_SPEC}},
                    "status": {}},
    "replicasets": {"spec": {"replicas": 1, "template": {"spec": _POD_SPEC}}, "status": {"replicas": 0}},
    "statefulsets": {"spec": {"replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
                              "updateStrategy": {"type": "RollingUpdate"}, "template": {"spec": _POD_SPEC}},
                     "status": {"replicas": 0, "availableReplicas": 0}},
    "daemonsets": {"spec": {"revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate"},
                            "template": {"spec": _POD_SPEC}},
                   "status": {"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
                              "numberMisscheduled": 0, "numberReady": 0}},
    "jobs": {"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "suspend": False}, "status": {}},
    "cronjobs": {"spec": {"concurrencyPolicy": "Allow", "suspend": False, "successfulJobsHistoryLimit": 3,
                          "failedJobsHistoryLimit": 1}, "status": {}},
    "storageclasses": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
}


def read_kinds() -> Iterator[Kind]:
    """Give all built-in kinds."""
    for line in _KINDS.strip().splitlines():
        api_version, plural, kind, shorts, categories, flags = line.split()
        group, _, version = api_version.rpartition("/")
        yield Kind(
            group=group, version=version, kind=kind, plural=plural, singular=kind.lower(),
            namespaced="C" not in flags,
            short_names=() if shorts == "-" else tuple(shorts.split(",")),
            categories=() if categories == "-" else tuple(categories.split(",")),
            has_status="S" in flags, has_generation="G" in flags, loose_names="N" in flags,
            cleanup_finalizer=_CLEANUP_FINALIZERS.get(plural, ""),
            columns=_make_columns(plural),
            fields={field: jsonpaths.parse(_FIELD_PATHS.get(field, field))
                    for field in _FIELDS.get(plural, "").split()},
            strategy=_make_strategy(kind, _DEFAULTS.get(plural), _STRATEGIES.get(plural)),
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


def _make_strategy(kind: str, defaults: Obj | None, special: Strategy | None) -> Strategy:
    def strategy(new: Obj, old: Obj | None) -> list[statuses.FieldError]:
        _check_shape(kind, new)
        if defaults is not None:
            _fill(new, defaults)
        return special(new, old) if special is not None else []
    return strategy


# The fields on whose types other rules and the columns rely, wherever they occur.
_SHAPES: Final[dict[str, type]] = {
    "spec": dict, "status": dict, "data": dict, "binaryData": dict, "stringData": dict, "involvedObject": dict,
    "roleRef": dict, "rules": list, "subjects": list, "secrets": list, "webhooks": list,
}


def _check_shape(kind: str, obj: Obj) -> None:
    for field, shape in _SHAPES.items():
        if obj.get(field) is None:
            obj.pop(field, None)
        elif not isinstance(obj[field], shape):
            raise statuses.bad_request(
                f"{kind} cannot be handled as a {kind}: json: cannot unmarshal {statuses.quoted(obj[field])} "
                f"into Go struct field {kind}.{field}: {'an object' if shape is dict else 'a list'} is expected")


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


_STRATEGIES: Final[dict[str, Strategy]] = {
    "namespaces": _settle_namespace,
    "secrets": _settle_secret,
    "configmaps": _settle_config_map,
    "persistentvolumeclaims": _settle_claim,
    "events": _settle_event,
    customs.PLURAL: customs.settle,
}
