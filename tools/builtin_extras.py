"""
What the packages do not know of the built-in kinds, kept by hand; used only by ``generate_builtin_kinds.py``.

The sources are the Kubernetes documentation, v1.36: "API reference" for the values that fields may have,
"Field Selectors" for the fields to select by, and the output of ``kubectl api-resources -o wide`` and
``kubectl get --raw /apis`` for short names, categories, and the order of groups.
"""

from __future__ import annotations

from typing import Final

# The order in which kube-apiserver lists the groups; clients resolve short names by it.
GROUPS: Final = (
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "resource.k8s.io",
    "storagemigration.k8s.io",
    "internal.apiserver.k8s.io",
)

SHORT_NAMES: Final = {
    "certificatesigningrequests": "csr",
    "componentstatuses": "cs",
    "configmaps": "cm",
    "cronjobs": "cj",
    "customresourcedefinitions": "crd crds",
    "daemonsets": "ds",
    "deployments": "deploy",
    "endpoints": "ep",
    "events": "ev",
    "horizontalpodautoscalers": "hpa",
    "ingresses": "ing",
    "ipaddresses": "ip",
    "limitranges": "limits",
    "namespaces": "ns",
    "networkpolicies": "netpol",
    "nodes": "no",
    "persistentvolumeclaims": "pvc",
    "persistentvolumes": "pv",
    "poddisruptionbudgets": "pdb",
    "pods": "po",
    "priorityclasses": "pc",
    "replicasets": "rs",
    "replicationcontrollers": "rc",
    "resourcequotas": "quota",
    "serviceaccounts": "sa",
    "services": "svc",
    "statefulsets": "sts",
    "storageclasses": "sc",
    "volumeattributesclasses": "vac",
}

CATEGORIES: Final = {
    "all": "pods services replicationcontrollers daemonsets deployments replicasets statefulsets "
    "horizontalpodautoscalers cronjobs jobs",
    "api-extensions": "apiservices customresourcedefinitions mutatingwebhookconfigurations "
    "validatingwebhookconfigurations mutatingadmissionpolicies mutatingadmissionpolicybindings "
    "validatingadmissionpolicies validatingadmissionpolicybindings",
}

# What a field selector may name, besides the name and the namespace; with the group where it matters.
SELECTABLE_FIELDS: Final = {
    "certificatesigningrequests": "spec.signerName",
    "events": "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
    "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath "
    "reason reportingComponent source type",
    "events.events.k8s.io": "regarding.kind regarding.namespace regarding.name regarding.uid regarding.apiVersion "
    "regarding.resourceVersion regarding.fieldPath reason reportingController type",
    "jobs": "status.successful",
    "namespaces": "status.phase",
    "nodes": "spec.unschedulable",
    "pods": "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
    "status.phase status.podIP status.nominatedNodeName",
    "replicasets": "status.replicas",
    "replicationcontrollers": "status.replicas",
    "resourceslices": "spec.driver spec.nodeName",
    "secrets": "type",
    "services": "spec.clusterIP spec.type",
}

# Where the packages take the documentation too literally: these cannot be watched.
VERBS: Final = {"componentstatuses": "get list"}

# The kinds whose `metadata.generation` grows with their specs.
GENERATIONS: Final = (
    "customresourcedefinitions",
    "cronjobs",
    "csidrivers",
    "daemonsets",
    "deployments",
    "deviceclasses",
    "endpointslices",
    "flowschemas",
    "ingressclasses",
    "ingresses",
    "jobs",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "networkpolicies",
    "poddisruptionbudgets",
    "pods",
    "podtemplates",
    "priorityclasses",
    "prioritylevelconfigurations",
    "replicasets",
    "replicationcontrollers",
    "resourceslices",
    "statefulsets",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
)

# The kinds whose deletion is answered with the object, by the responses to DELETE in the API reference.
SHOWN_DELETED: Final = (
    "csidrivers",
    "csinodes",
    "deviceclasses",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourcequotas",
    "resourceslices",
    "serviceaccounts",
    "services",
    "storageclasses",
    "volumeattachments",
    "volumeattributesclasses",
)

# Subresources that open connections; the packages leave them out. The last word is the kind of what they take.
CONNECTIONS: Final = {
    "nodes": {"proxy": "create delete get patch update NodeProxyOptions"},
    "pods": {
        "attach": "create get PodAttachOptions",
        "exec": "create get PodExecOptions",
        "portforward": "create get PodPortForwardOptions",
        "proxy": "create delete get patch update PodProxyOptions",
    },
    "services": {"proxy": "create delete get patch update ServiceProxyOptions"},
}

# Definitions that look like empty objects, but hold anything.
OPAQUE: Final = (
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
)

# The values of fields, by their definitions without the common prefix. The schemas of the packages have none.
ENUMS: Final = {
    "admissionregistration.v1.MutatingWebhook.failurePolicy": "Fail Ignore",
    "admissionregistration.v1.MutatingWebhook.matchPolicy": "Equivalent Exact",
    "admissionregistration.v1.MutatingWebhook.reinvocationPolicy": "IfNeeded Never",
    "admissionregistration.v1.MutatingWebhook.sideEffects": "None NoneOnDryRun",
    "admissionregistration.v1.ValidatingWebhook.failurePolicy": "Fail Ignore",
    "admissionregistration.v1.ValidatingWebhook.matchPolicy": "Equivalent Exact",
    "admissionregistration.v1.ValidatingWebhook.sideEffects": "None NoneOnDryRun",
    "apps.v1.DaemonSetUpdateStrategy.type": "OnDelete RollingUpdate",
    "apps.v1.DeploymentStrategy.type": "Recreate RollingUpdate",
    "apps.v1.StatefulSetSpec.podManagementPolicy": "OrderedReady Parallel",
    "apps.v1.StatefulSetUpdateStrategy.type": "OnDelete RollingUpdate",
    "batch.v1.CronJobSpec.concurrencyPolicy": "Allow Forbid Replace",
    "batch.v1.JobSpec.completionMode": "Indexed NonIndexed",
    "batch.v1.JobSpec.podReplacementPolicy": "Failed TerminatingOrFailed",
    "core.v1.Container.imagePullPolicy": "Always IfNotPresent Never",
    "core.v1.Container.terminationMessagePolicy": "FallbackToLogsOnError File",
    "core.v1.ContainerPort.protocol": "SCTP TCP UDP",
    "core.v1.EndpointPort.protocol": "SCTP TCP UDP",
    "core.v1.HTTPGetAction.scheme": "HTTP HTTPS",
    "core.v1.NodeSelectorRequirement.operator": "DoesNotExist Exists Gt In Lt NotIn",
    "core.v1.PersistentVolumeClaimSpec.volumeMode": "Block Filesystem",
    "core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy": "Delete Recycle Retain",
    "core.v1.PersistentVolumeSpec.volumeMode": "Block Filesystem",
    "core.v1.PodSpec.dnsPolicy": "ClusterFirst ClusterFirstWithHostNet Default None",
    "core.v1.PodSpec.preemptionPolicy": "Never PreemptLowerPriority",
    "core.v1.PodSpec.restartPolicy": "Always Never OnFailure",
    "core.v1.ServicePort.protocol": "SCTP TCP UDP",
    "core.v1.ServiceSpec.externalTrafficPolicy": "Cluster Local",
    "core.v1.ServiceSpec.internalTrafficPolicy": "Cluster Local",
    "core.v1.ServiceSpec.ipFamilyPolicy": "PreferDualStack RequireDualStack SingleStack",
    "core.v1.ServiceSpec.sessionAffinity": "ClientIP None",
    "core.v1.ServiceSpec.type": "ClusterIP ExternalName LoadBalancer NodePort",
    "core.v1.Taint.effect": "NoExecute NoSchedule PreferNoSchedule",
    "core.v1.Toleration.operator": "Equal Exists Gt Lt",
    "core.v1.TopologySpreadConstraint.whenUnsatisfiable": "DoNotSchedule ScheduleAnyway",
    "discovery.v1.EndpointSlice.addressType": "FQDN IPv4 IPv6",
    "networking.v1.HTTPIngressPath.pathType": "Exact ImplementationSpecific Prefix",
    "networking.v1.NetworkPolicyPort.protocol": "SCTP TCP UDP",
    "scheduling.v1.PriorityClass.preemptionPolicy": "Never PreemptLowerPriority",
    "storage.v1.StorageClass.reclaimPolicy": "Delete Retain",
    "storage.v1.StorageClass.volumeBindingMode": "Immediate WaitForFirstConsumer",
}

# The messages that no client has compiled in, by ``kube-aggregator/pkg/apis/apiregistration/v1/generated.proto``.
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_AGGREGATION: Final = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1"
MESSAGES: Final[dict[str, list[tuple[int, str, str, str, str]]]] = {
    f"{_AGGREGATION}.APIService": [
        (1, "metadata", f"{_META}.ObjectMeta", "one", "empty"),
        (2, "spec", f"{_AGGREGATION}.APIServiceSpec", "one", "empty"),
        (3, "status", f"{_AGGREGATION}.APIServiceStatus", "one", "empty"),
    ],
    f"{_AGGREGATION}.APIServiceList": [
        (1, "metadata", f"{_META}.ListMeta", "one", "empty"),
        (2, "items", f"{_AGGREGATION}.APIService", "list", "never"),
    ],
    f"{_AGGREGATION}.APIServiceSpec": [
        (1, "service", f"{_AGGREGATION}.ServiceReference", "optional", "empty"),
        (2, "group", "string", "one", "empty"),
        (3, "version", "string", "one", "empty"),
        (4, "insecureSkipTLSVerify", "bool", "one", "empty"),
        (5, "caBundle", "bytes", "one", "empty"),
        (7, "groupPriorityMinimum", "int32", "one", "never"),
        (8, "versionPriority", "int32", "one", "never"),
    ],
    f"{_AGGREGATION}.ServiceReference": [
        (1, "namespace", "string", "one", "empty"),
        (2, "name", "string", "one", "empty"),
        (3, "port", "int32", "optional", "empty"),
    ],
    f"{_AGGREGATION}.APIServiceStatus": [
        (1, "conditions", f"{_AGGREGATION}.APIServiceCondition", "list", "empty"),
    ],
    f"{_AGGREGATION}.APIServiceCondition": [
        (1, "type", "string", "one", "never"),
        (2, "status", "string", "one", "never"),
        (3, "lastTransitionTime", f"{_META}.Time", "one", "empty"),
        (4, "reason", "string", "one", "empty"),
        (5, "message", "string", "one", "empty"),
    ],
}
