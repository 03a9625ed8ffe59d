"""
The defaults of built-in kinds, which the API server adds to the objects of clients.

The source is the API reference of Kubernetes v1.36 ("defaults to ..."). Constant defaults are in a table by their
definitions; defaults that depend on other fields are in small functions. Only those parts of an object are visited
that can have defaults.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kopf_cluster import codec
from kopf_cluster.kinds.structures import Shape, Structure
from kopf_cluster.protobuf import messages

Obj: TypeAlias = dict[str, Any]

_MODE: Final = 0o644
_SELECT_ALL: Final[Obj] = {"namespaceSelector": {}, "objectSelector": {}}
_CONTAINER: Final[Obj] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
_WEBHOOK: Final[Obj] = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10, **_SELECT_ALL}
_ALLOCATION: Final[Obj] = {"allocationMode": "ExactCount", "count": 1}

TABLE: Final[Mapping[str, Obj]] = {
    "admissionregistration.v1.MatchResources": {"matchPolicy": "Equivalent", **_SELECT_ALL},
    "admissionregistration.v1.MutatingWebhook": {**_WEBHOOK, "reinvocationPolicy": "Never"},
    "admissionregistration.v1.RuleWithOperations": {"scope": "*"},
    "admissionregistration.v1.NamedRuleWithOperations": {"scope": "*"},
    "admissionregistration.v1.ServiceReference": {"port": 443},
    "admissionregistration.v1.ValidatingAdmissionPolicySpec": {"failurePolicy": "Fail"},
    "admissionregistration.v1.MutatingAdmissionPolicySpec": {"failurePolicy": "Fail"},
    "admissionregistration.v1.ValidatingWebhook": _WEBHOOK,
    "apps.v1.DaemonSetSpec": {"updateStrategy": {"type": "RollingUpdate"}, "revisionHistoryLimit": 10},
    "apps.v1.DeploymentSpec": {
        "replicas": 1,
        "strategy": {"type": "RollingUpdate"},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "apps.v1.ReplicaSetSpec": {"replicas": 1},
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    "apps.v1.StatefulSetSpec": {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate"},
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    "authentication.v1.TokenRequestSpec": {"expirationSeconds": 3600},
    "autoscaling.v1.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    "autoscaling.v2.HorizontalPodAutoscalerSpec": {
        "minReplicas": 1,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }
        ],
    },
    "batch.v1.CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "core.v1.AzureDiskVolumeSource": {
        "cachingMode": "ReadWrite",
        "kind": "Shared",
        "fsType": "ext4",
        "readOnly": False,
    },
    "core.v1.ConfigMapVolumeSource": {"defaultMode": _MODE},
    "core.v1.Container": _CONTAINER,
    "core.v1.ContainerPort": {"protocol": "TCP"},
    "core.v1.DownwardAPIVolumeSource": {"defaultMode": _MODE},
    "core.v1.EndpointPort": {"protocol": "TCP"},
    "core.v1.EphemeralContainer": _CONTAINER,
    "core.v1.GRPCAction": {"service": ""},
    "core.v1.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "core.v1.HostPathVolumeSource": {"type": ""},
    "core.v1.ISCSIPersistentVolumeSource": {"iscsiInterface": "default"},
    "core.v1.ISCSIVolumeSource": {"iscsiInterface": "default"},
    "core.v1.ObjectFieldSelector": {"apiVersion": "v1"},
    "core.v1.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "core.v1.PersistentVolumeSpec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
    "core.v1.PodSpec": {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    },
    "core.v1.Probe": {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
    "core.v1.ProjectedVolumeSource": {"defaultMode": _MODE},
    "core.v1.RBDPersistentVolumeSource": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "core.v1.RBDVolumeSource": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "core.v1.ReplicationControllerSpec": {"replicas": 1},
    "core.v1.ScaleIOPersistentVolumeSource": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "core.v1.ScaleIOVolumeSource": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "core.v1.Secret": {"type": "Opaque"},
    "core.v1.SecretVolumeSource": {"defaultMode": _MODE},
    "core.v1.ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "core.v1.ServicePort": {"protocol": "TCP"},
    "core.v1.ServiceSpec": {"type": "ClusterIP", "sessionAffinity": "None"},
    "discovery.v1.EndpointPort": {"name": "", "protocol": "TCP"},
    "networking.v1.IngressClassParametersReference": {"scope": "Cluster"},
    "networking.v1.NetworkPolicyPort": {"protocol": "TCP"},
    "resource.v1.ExactDeviceRequest": _ALLOCATION,
    "resource.v1.DeviceSubRequest": _ALLOCATION,
    "scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "storage.v1.CSIDriverSpec": {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "requiresRepublish": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent"],
        "seLinuxMount": False,
    },
    "storage.v1.StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    "kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference": {"port": 443},
}
"""By the definitions without the common prefix; mutable values are copied on use."""


class _Plan:
    """The defaults of one structure, and the plans of its fields that have defaults inside."""

    __slots__ = ("_below", "_complete", "_constants", "_shape")

    def __init__(
        self, shape: Shape, constants: Obj, complete: Callable[[Obj], None] | None, below: dict[str, _Plan]
    ) -> None:
        self._shape = shape
        self._constants = tuple((name, value, isinstance(value, (dict, list))) for name, value in constants.items())
        self._complete = complete
        self._below = below

    def apply(self, value: Any) -> None:
        if self._shape in ("array", "map"):
            below = self._below["[]"]
            for item in value.values() if self._shape == "map" else value:
                below.apply(item)
            return
        for name, default, is_mutable in self._constants:
            if name not in value:
                value[name] = codec.decode(codec.encode(default)) if is_mutable else default
        if self._complete is not None:
            self._complete(value)
        plans = self._below
        for name, item in value.items():
            if name in plans:
                plans[name].apply(item)


@functools.cache
def find_plan(structure: Structure) -> _Plan | None:
    """Return what fills in the defaults; none if there are no defaults in the structure and below."""
    short = structure.definition.removeprefix("io.k8s.").removeprefix("api.")
    if short.endswith("JSONSchemaProps"):  # the only definition that contains itself; it has no defaults
        return None
    inner = {"[]": structure.items} if structure.items is not None else structure.fields
    below = {name: plan for name, sub in inner.items() if (plan := find_plan(sub)) is not None}
    constants, complete = {**_find_shown(structure), **TABLE.get(short, {})}, FUNCTIONS.get(short)
    return _Plan(structure.shape, constants, complete, below) if below or constants or complete else None


def _find_shown(structure: Structure) -> Obj:
    """Return what Go always shows: structures and, in statuses, zeros. Elsewhere, validation asks for the latter.

    The metadata of whole objects are always there.
    """
    is_status, is_whole = structure.definition.endswith("Status"), "apiVersion" in structure.fields
    shown: Obj = {}
    for name, zero in messages.find_shown(structure.definition):
        if (
            isinstance(zero, dict)
            and structure.fields[name].shape == "object"
            and not (is_whole and name == "metadata")
        ):
            shown[name] = {}
        elif is_status and zero is not None:
            shown[name] = zero
    return shown


# ------------------------------------------------------------------------- what depends on other fields


def _container(value: Obj) -> None:
    image = str(value.get("image", ""))
    tag = image.rpartition("/")[2].partition("@")[0].rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
    is_latest = "@" not in image and tag in ("", "latest")
    value.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")


def _pod_spec(value: Obj) -> None:
    """Ports of the host, the old name of the account's field, and volumes that are nothing else."""
    if value.get("hostNetwork"):
        for container in value.get("containers", []) + value.get("initContainers", []):
            for port in container.get("ports", []):
                port.setdefault("hostPort", port.get("containerPort", 0))
    account = value.get("serviceAccountName") or value.get("serviceAccount")
    if account:
        value["serviceAccountName"] = value["serviceAccount"] = account
    for volume in value.get("volumes", []):
        if len(volume) <= 1:
            volume["emptyDir"] = {}


def _pod(value: Obj) -> None:
    """Pods themselves get more than templates of pods do: requests from limits, and what admission adds."""
    spec = value.setdefault("spec", {})
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    _tolerate_bad_nodes(spec)
    for container in spec.get("containers", []) + spec.get("initContainers", []):
        resources = container.get("resources", {})
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **resources.get("requests", {})}


def _tolerate_bad_nodes(spec: Obj) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            (one.get("key") or key) == key and (one.get("effect") or "NoExecute") == "NoExecute" for one in tolerations
        ):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _service(value: Obj) -> None:
    for port in value.get("ports", []):
        if not port.get("targetPort") and "port" in port:
            port["targetPort"] = port["port"]
    if value["sessionAffinity"] == "ClientIP":
        config = value.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        config.setdefault("timeoutSeconds", 10800)
    if value["type"] != "ExternalName":
        value.setdefault("internalTrafficPolicy", "Cluster")
    if value["type"] in ("NodePort", "LoadBalancer"):
        value.setdefault("externalTrafficPolicy", "Cluster")
    if value["type"] == "LoadBalancer":
        value.setdefault("allocateLoadBalancerNodePorts", True)


def _rolling(**defaults: Any) -> Callable[[Obj], None]:
    """Make the defaults of a strategy of updates, which has parameters only if it is rolling."""

    def complete(value: Obj) -> None:
        if value.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = value.setdefault("rollingUpdate", {})
            for name, default in defaults.items():
                rolling.setdefault(name, default)

    return complete


def _job(value: Obj) -> None:
    """Only of jobs: the templates of jobs in cron jobs stay as they are."""
    spec = value.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")


def _replication_controller(value: Obj) -> None:
    labels = value.get("spec", {}).get("template", {}).get("metadata", {}).get("labels")
    if labels:
        value["spec"].setdefault("selector", dict(labels))
        value["metadata"] = {"labels": dict(labels), **value.get("metadata", {})}


def _network_policy(value: Obj) -> None:
    value.setdefault("podSelector", {})
    if "policyTypes" not in value:
        value["policyTypes"] = ["Ingress", "Egress"] if value.get("egress") else ["Ingress"]


def _claim(value: Obj) -> None:
    value["status"]["phase"] = value["status"].get("phase") or "Pending"


def _stateful_set(value: Obj) -> None:
    """Templates of claims always tell what they are, whether clients do or not."""
    for claim in value.get("volumeClaimTemplates", []):
        claim.update(apiVersion="v1", kind="PersistentVolumeClaim")


def _subject(value: Obj) -> None:
    if value.get("kind") in ("User", "Group"):
        value.setdefault("apiGroup", "rbac.authorization.k8s.io")


def _instead_of_empty(name: str, default: Any) -> Callable[[Obj], None]:
    """Make the default of a field that Go never leaves out, so that it is there even if it is empty."""

    def complete(value: Obj) -> None:
        value[name] = value.get(name) or default

    return complete


def _limits(value: Obj) -> None:
    """The limits of containers follow from each other: the default from the maximum, the request from both."""
    if value.get("type") != "Container":
        return
    default = {**value.get("max", {}), **value.get("default", {})}
    request = {**value.get("min", {}), **default, **value.get("defaultRequest", {})}
    value.update({name: limits for name, limits in (("default", default), ("defaultRequest", request)) if limits})


def _condition(value: Obj) -> None:
    """Times that Go never leaves out."""
    value.setdefault("lastProbeTime", None)
    value.setdefault("lastTransitionTime", None)


FUNCTIONS: Final[Mapping[str, Callable[[Obj], None]]] = {
    "apps.v1.DaemonSetUpdateStrategy": _rolling(maxUnavailable=1, maxSurge=0),
    "apps.v1.DeploymentStrategy": _rolling(maxUnavailable="25%", maxSurge="25%"),
    "apps.v1.StatefulSetSpec": _stateful_set,
    "apps.v1.StatefulSetUpdateStrategy": _rolling(partition=0),
    "batch.v1.Job": _job,
    "batch.v1.JobCondition": _condition,
    "core.v1.Container": _container,
    "core.v1.EphemeralContainer": _container,
    "core.v1.LimitRangeItem": _limits,
    "core.v1.PersistentVolumeClaim": _claim,
    "core.v1.Pod": _pod,
    "core.v1.PodCondition": _condition,
    "core.v1.PodSpec": _pod_spec,
    "core.v1.ReplicationController": _replication_controller,
    "core.v1.ServiceSpec": _service,
    "flowcontrol.v1.FlowSchemaSpec": _instead_of_empty("matchingPrecedence", 1000),
    "networking.v1.NetworkPolicySpec": _network_policy,
    "rbac.v1.RoleRef": _instead_of_empty("apiGroup", "rbac.authorization.k8s.io"),
    "rbac.v1.Subject": _subject,
}
