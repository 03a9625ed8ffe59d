"""
What does not fit together in objects of built-in kinds is refused in the words of kube-apiserver, all of it at once.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from tests.cluster.conftest import Client

LABELS: Final = {"app": "web"}
CONTAINER: Final[dict[str, Any]] = {"name": "main", "image": "nginx"}
LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def pod(**spec: Any) -> dict[str, Any]:
    return {"containers": [CONTAINER], **spec}


def template(labels: Any = LABELS, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "spec": pod(**spec)}


def workload(selector: Any = None, **spec: Any) -> dict[str, Any]:
    return {"selector": {"matchLabels": LABELS} if selector is None else selector, "template": template(), **spec}


KINDS: Final = {
    "pods": "/api/v1/namespaces/default/pods",
    "services": "/api/v1/namespaces/default/services",
    "persistentvolumeclaims": "/api/v1/namespaces/default/persistentvolumeclaims",
    "resourcequotas": "/api/v1/namespaces/default/resourcequotas",
    "deployments": "/apis/apps/v1/namespaces/default/deployments",
    "replicasets": "/apis/apps/v1/namespaces/default/replicasets",
    "statefulsets": "/apis/apps/v1/namespaces/default/statefulsets",
    "replicationcontrollers": "/api/v1/namespaces/default/replicationcontrollers",
    "daemonsets": "/apis/apps/v1/namespaces/default/daemonsets",
    "jobs": "/apis/batch/v1/namespaces/default/jobs",
    "cronjobs": "/apis/batch/v1/namespaces/default/cronjobs",
    "horizontalpodautoscalers": "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    "poddisruptionbudgets": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "networkpolicies": "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
    "roles": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
CLAIM: Final[dict[str, Any]] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
SCALED: Final[dict[str, Any]] = {
    "maxReplicas": 3,
    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
}
ROLE: Final = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}

GOOD: Final[list[tuple[str, dict[str, Any]]]] = [
    (
        "pods",
        {
            "spec": pod(
                volumes=[{"name": "v"}],
                initContainers=[{**CONTAINER, "name": "init"}],
                containers=[
                    {
                        **CONTAINER,
                        "ports": [{"name": "http", "containerPort": 80}],
                        "env": [{"name": "A.b-C", "value": "x"}],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                        "resources": {"requests": {"cpu": "1", "x.com/gpu": "1"}, "limits": {"cpu": "1000m"}},
                    }
                ],
            )
        },
    ),
    ("deployments", {"spec": workload()}),
    (
        "statefulsets",
        {
            "spec": workload(
                template=template(
                    containers=[{**CONTAINER, "volumeMounts": [{"name": "of-claim", "mountPath": "/x"}]}]
                ),
                volumeClaimTemplates=[{"metadata": {"name": "of-claim"}, "spec": CLAIM}],
            )
        },
    ),
    ("replicationcontrollers", {"spec": {"template": template()}}),
    ("daemonsets", {"spec": workload({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]})}),
    ("jobs", {"spec": {"template": template(restartPolicy="Never")}}),
    (
        "services",
        {
            "spec": {
                "ports": [{"name": "a", "port": 80, "targetPort": "http"}, {"name": "b", "port": 80, "protocol": "UDP"}]
            }
        },
    ),
    ("services", {"spec": {"clusterIP": "None"}}),
    ("services", {"spec": {"type": "ExternalName", "externalName": "example.com"}}),
    ("persistentvolumeclaims", {"spec": CLAIM}),
    ("resourcequotas", {"spec": {"hard": {"pods": "5", "requests.cpu": "1500m", "count/widgets.example.com": "1"}}}),
    ("horizontalpodautoscalers", {"spec": SCALED}),
    (
        "horizontalpodautoscalers",
        {
            "spec": {
                **SCALED,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                    },
                    {
                        "type": "Object",
                        "object": {
                            "describedObject": {"kind": "Service", "name": "s"},
                            "metric": {"name": "hits"},
                            "target": {"type": "Value", "value": "2k"},
                        },
                    },
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
            }
        },
    ),
    ("poddisruptionbudgets", {"spec": {"minAvailable": "50%", "selector": {"matchLabels": LABELS}}}),
    (
        "networkpolicies",
        {
            "spec": {
                "podSelector": {},
                "ingress": [
                    {},
                    {
                        "from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
                        "ports": [{"port": 1, "endPort": 5}, {"port": "http"}],
                    },
                ],
            }
        },
    ),
    ("roles", {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
    ("clusterroles", {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}),
    (
        "rolebindings",
        {
            "roleRef": ROLE,
            "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}, {"kind": "User", "name": "jane"}],
        },
    ),
]

WRONG: Final[list[tuple[str, dict[str, Any], list[str]]]] = [
    (
        "pods",
        {
            "spec": pod(
                volumes=[{"name": "v"}, {"name": "v"}, {"name": "V"}],
                initContainers=[CONTAINER, {"name": "no image"}],
                containers=[
                    {
                        **CONTAINER,
                        "ports": [
                            {"name": "a", "containerPort": 80},
                            {"name": "a", "containerPort": 0},
                            {"name": "8080", "containerPort": 70000},
                        ],
                    },
                    {
                        **CONTAINER,
                        "volumeMounts": [{"name": "none", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}],
                        "env": [
                            {"name": "a=b"},
                            {"name": "c", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
                        ],
                        "resources": {"requests": {"cpu": "2", "memory": "-1", "gpu": "1"}, "limits": {"cpu": "1500m"}},
                    },
                ],
                activeDeadlineSeconds=0,
            )
        },
        [
            'spec.volumes[1].name: Duplicate value: "v"',
            f'spec.volumes[2].name: Invalid value: "V": {LABEL_RULE}',
            'spec.containers[0].ports[1].name: Duplicate value: "a"',
            "spec.containers[0].ports[1].containerPort: Required value",
            'spec.containers[0].ports[2].name: Invalid value: "8080": must contain at least one letter (a-z)',
            "spec.containers[0].ports[2].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            'spec.containers[1].env[0].name: Invalid value: "a=b": a valid environment variable name must '
            "consist only of "
            "printable ASCII characters other than '='",
            'spec.containers[1].env[1].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
            'spec.containers[1].volumeMounts[0].name: Not found: "none"',
            'spec.containers[1].volumeMounts[1].mountPath: Invalid value: "/x": must be unique',
            'spec.containers[1].resources.requests: Invalid value: "2": must be less than or equal to cpu limit '
            "of 1500m",
            'spec.containers[1].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0',
            'spec.containers[1].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type '
            "or fully "
            "qualified",
            'spec.containers[1].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for '
            "containers",
            'spec.containers[1].name: Duplicate value: "main"',
            'spec.initContainers[0].name: Duplicate value: "main"',
            f'spec.initContainers[1].name: Invalid value: "no image": {LABEL_RULE}',
            "spec.initContainers[1].image: Required value",
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ],
    ),
    (
        "deployments",
        {"spec": workload(template=template({"app": "other"}, restartPolicy="Never"), replicas=-1)},
        [
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            'spec.template.metadata.labels: Invalid value: {"app":"other"}: `selector` does not match template '
            "`labels`",
            'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
        ],
    ),
    (
        "deployments",
        {"spec": workload({}, strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}})},
        [
            "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ],
    ),
    (
        "deployments",
        {"spec": workload(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}})},
        ["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
    ),
    (
        "deployments",
        {"spec": workload(progressDeadlineSeconds=5, minReadySeconds=5)},
        ["spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"],
    ),
    ("deployments", {"spec": {"template": template()}}, ["spec.selector: Required value"]),
    (
        "replicasets",
        {"spec": workload(template=template({}))},
        ["spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`"],
    ),
    (
        "statefulsets",
        {"spec": workload({}, template=template(activeDeadlineSeconds=5))},
        [
            "spec.selector: Invalid value: {}: empty selector is invalid for statefulset",
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in StatefulSet is not "
            "Supported",
        ],
    ),
    (
        "statefulsets",
        {
            "spec": workload(
                template=template(
                    containers=[
                        {
                            **CONTAINER,
                            "livenessProbe": {},
                            "volumeMounts": [
                                {"name": "claimed", "mountPath": "/x"},
                                {"name": "other", "mountPath": "/y"},
                            ],
                        }
                    ]
                ),
                volumeClaimTemplates=[{"metadata": {"name": "claimed"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
            )
        },
        [
            'spec.template.spec.containers[0].volumeMounts[1].name: Not found: "other"',
            "spec.template.spec.containers[0].livenessProbe: Required value: must specify a handler type",
            "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value",
        ],
    ),
    (
        "replicationcontrollers",
        {"spec": {"replicas": -1, "selector": {"app": "other"}, "template": template(restartPolicy="Never")}},
        [
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`',
            'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
        ],
    ),
    ("replicationcontrollers", {"spec": {}}, ["spec.selector: Required value", "spec.template: Required value"]),
    (
        "daemonsets",
        {
            "spec": workload(
                template=template(containers=[{**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/x"}]}])
            )
        },
        ['spec.template.spec.containers[0].volumeMounts[0].name: Not found: "v"'],
    ),
    (
        "jobs",
        {"spec": {"template": template(), "parallelism": -1}},
        [
            "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
        ],
    ),
    (
        "cronjobs",
        {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template()}}}},
        ['spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
    ),
    (
        "services",
        {
            "metadata": {"name": "1st"},
            "spec": {
                "ports": [{"port": 0}, {"name": "a", "port": 80}, {"name": "a", "port": 80, "targetPort": "no--good"}]
            },
        },
        [
            'metadata.name: Invalid value: "1st": a DNS-1035 label must consist of lower case alphanumeric '
            "characters or "
            "'-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or "
            "'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            "spec.ports[0].name: Required value",
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            'spec.ports[2].name: Duplicate value: "a"',
            'spec.ports[2].targetPort: Invalid value: "no--good": must not contain consecutive hyphens',
            'spec.ports[2]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,'
            '"NodePort":0}',
        ],
    ),
    ("services", {"spec": {}}, ["spec.ports: Required value"]),
    ("services", {"spec": {"type": "ExternalName"}}, ["spec.externalName: Required value"]),
    (
        "persistentvolumeclaims",
        {"spec": {}},
        [
            "spec.accessModes: Required value: at least 1 access mode is required",
            "spec.resources[storage]: Required value",
        ],
    ),
    (
        "resourcequotas",
        {"spec": {"hard": {"pods": "500m", "gpu": "-1"}}},
        [
            'spec.hard[pods]: Invalid value: "500m": must be an integer',
            'spec.hard[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified',
            'spec.hard[gpu]: Invalid value: "gpu": must be a standard resource for quota',
            'spec.hard[gpu]: Invalid value: "-1": must be greater than or equal to 0',
        ],
    ),
    (
        "horizontalpodautoscalers",
        {"spec": {"minReplicas": 0, "maxReplicas": -1, "scaleTargetRef": {"kind": "D"}}},
        [
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
            "spec.maxReplicas: Invalid value: -1: must be greater than 0",
            "spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`",
            "spec.scaleTargetRef.name: Required value",
            'spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group',
        ],
    ),
    (
        "horizontalpodautoscalers",
        {
            "spec": {
                **SCALED,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}},
                    {
                        "type": "Pods",
                        "resource": {"name": "cpu", "target": {"type": "Average", "averageUtilization": 0}},
                    },
                    {
                        "type": "External",
                        "external": {
                            "metric": {"name": "a/b"},
                            "target": {"type": "Value", "value": "0", "averageValue": "1"},
                        },
                    },
                    {
                        "type": "Pods",
                        "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue"}},
                        "external": {"metric": {"name": "x"}, "target": {"type": "Value", "value": "1"}},
                    },
                    {
                        "type": "ContainerResource",
                        "containerResource": {
                            "name": "cpu",
                            "target": {"type": "Utilization", "averageUtilization": 5, "averageValue": "5"},
                        },
                    },
                ],
            }
        },
        [
            "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw "
            "value or a "
            "target utilization",
            'spec.metrics[1].resource.target.type: Invalid value: "Average": must be either Utilization, Value, or '
            "AverageValue",
            "spec.metrics[1].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
            "spec.metrics[1].pods: Required value: must populate information for the given metric source",
            "spec.metrics[2].external.metric.name: Invalid value: \"a/b\": may not contain '/'",
            'spec.metrics[2].external.target.value: Invalid value: "0": must be positive',
            "spec.metrics[2].external.target.value: Forbidden: may not set both a target value for metric and a "
            "per-pod "
            "target",
            "spec.metrics[3].external: Forbidden: must populate the given metric source only",
            "spec.metrics[4].containerResource.container: Required value: must specify a container",
            "spec.metrics[4].containerResource.target.averageValue: Forbidden: may not set both a target raw "
            "value and a "
            "target utilization",
        ],
    ),
    (
        "horizontalpodautoscalers",
        {
            "spec": {
                **SCALED,
                "behavior": {
                    "scaleUp": {
                        "stabilizationWindowSeconds": 3601,
                        "policies": [{"type": "Pods", "value": 0, "periodSeconds": 1801}],
                    },
                    "scaleDown": {"stabilizationWindowSeconds": -1},
                },
            }
        },
        [
            "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
            "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
            "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to "
            "zero",
        ],
    ),
    (
        "poddisruptionbudgets",
        {"spec": {"minAvailable": "101%", "maxUnavailable": -1}},
        [
            'spec: Invalid value: {"minAvailable":"101%","maxUnavailable":-1}: '
            "minAvailable and maxUnavailable cannot be both set",
            'spec.minAvailable: Invalid value: "101%": must not be greater than 100%',
            "spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0",
        ],
    ),
    (
        "networkpolicies",
        {
            "spec": {
                "podSelector": {},
                "egress": [
                    {
                        "to": [{}, {"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0", "except": ["x"]}}],
                        "ports": [{"port": 5, "endPort": 4}, {"endPort": 4}],
                    }
                ],
            }
        },
        [
            "spec.egress[0].ports[0].endPort: Invalid value: 4: must be greater than or equal to `port`",
            "spec.egress[0].ports[1].port: Required value: must be specified when `endPort` is specified",
            "spec.egress[0].to[0]: Required value: must specify a peer",
            'spec.egress[0].to[1].ipBlock.cidr: Invalid value: "10.0.0.0": must be a valid CIDR value, '
            "(e.g. 10.9.8.0/24 or 2001:db8::/64)",
            'spec.egress[0].to[1].ipBlock.except[0]: Invalid value: "x": must be a valid CIDR value, '
            "(e.g. 10.9.8.0/24 or 2001:db8::/64)",
            "spec.egress[0].to[1]: Forbidden: may not specify both ipBlock and another peer",
        ],
    ),
    (
        "roles",
        {"rules": [{"verbs": [], "nonResourceURLs": ["/x"]}, {"verbs": ["get"]}]},
        [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
            "rules[1].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[1].resources: Required value: resource rules must supply at least one resource",
        ],
    ),
    (
        "clusterrolebindings",
        {"roleRef": ROLE, "subjects": [{"kind": "ServiceAccount", "name": "a"}, {"kind": "Robot", "name": "b"}]},
        [
            'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"',
            "subjects[0].namespace: Required value",
            'subjects[1].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"',
        ],
    ),
]


@pytest.mark.parametrize(("plural", "obj"), GOOD)
async def test_what_fits_is_taken(client: Client, plural: str, obj: dict[str, Any]) -> None:
    await client.create(KINDS[plural], {"metadata": {"name": "one"}, **obj})


@pytest.mark.parametrize(("plural", "obj", "expected"), WRONG)
async def test_what_does_not_fit_is_refused(
    client: Client,
    plural: str,
    obj: dict[str, Any],
    expected: list[str],
) -> None:
    reply = await client.call(
        "POST", KINDS[plural], json={"metadata": {"name": "one"}, **copy.deepcopy(obj)}, expected=422
    )
    assert [f"{cause['field']}: {cause['message']}" for cause in reply.body["details"]["causes"]] == expected


async def test_changes_are_checked_the_same(client: Client) -> None:
    path = KINDS["deployments"]
    await client.create(path, {"metadata": {"name": "one"}, "spec": workload()})
    reply = await client.send_patch(
        f"{path}/one", {"spec": {"template": {"metadata": {"labels": {"app": "new"}}}}}, expected=422
    )
    assert "`selector` does not match template `labels`" in reply.body["message"]


async def test_claims_are_not_made_smaller_than_what_they_have(client: Client) -> None:
    path = KINDS["persistentvolumeclaims"]
    await client.create(path, {"metadata": {"name": "one"}, "spec": CLAIM})
    await client.patch(f"{path}/one/status", {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
    grown = await client.patch(f"{path}/one", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
    assert grown["spec"]["resources"]["requests"]["storage"] == "2Gi"
    for size in ("512Mi", "1Gi"):  # it must be more than what is there, as documented
        reply = await client.send_patch(f"{path}/one", {"spec": {"resources": {"requests": {"storage": size}}}})
        assert (reply.status, reply.body["message"]) == (
            422,
            'PersistentVolumeClaim "one" is invalid: spec.resources.requests.storage: Forbidden: '
            "field can not be less than status.capacity",
        )
    await client.patch(f"{path}/one", {"spec": {"resources": {"requests": {"storage": "1536Mi"}}}})
