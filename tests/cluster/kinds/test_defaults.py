from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster.kinds import structures
from kopf_cluster.kinds.builtin_pruning import prune
from kopf_cluster.kinds.defaults import FUNCTIONS, TABLE
from tests.cluster.kinds.strategies import KINDS, fill_defaults, values

TEMPLATE = {
    "metadata": {},
    "spec": {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    },
}


def fill(definition: str, obj: dict[str, Any]) -> dict[str, Any]:
    fill_defaults(obj, structures.of_definition(f"io.k8s.api.{definition}"))
    return obj


def pod(**spec: Any) -> Any:
    return fill("core.v1.Pod", {"spec": spec})["spec"]


def container(**fields: Any) -> Any:
    return pod(containers=[{"name": "x", **fields}])["containers"][0]


def test_the_table_names_what_exists() -> None:
    for name in (*TABLE, *FUNCTIONS):
        prefix = "io.k8s." if name.startswith("kube-aggregator") else "io.k8s.api."
        assert TABLE.get(name, {}).keys() <= structures.of_definition(prefix + name).fields.keys()


@pytest.mark.parametrize("name", TABLE)
def test_the_defaults_are_of_the_right_types(name: str) -> None:
    prefix = "io.k8s." if name.startswith("kube-aggregator") else "io.k8s.api."
    value = dict(TABLE[name])
    assert prune(value, structures.of_definition(prefix + name)) == (value, [])


@given(st.data())
def test_defaults_are_well_formed_stable_and_replace_nothing(data: st.DataObject) -> None:
    structure = structures.of_definition(data.draw(st.sampled_from(KINDS)))
    obj = data.draw(values(structure))
    filled = copy.deepcopy(obj)
    fill_defaults(filled, structure)
    assert prune(filled, structure)[1] == []
    again = copy.deepcopy(filled)
    fill_defaults(again, structure)
    assert again == filled
    for name in obj.keys() - {"metadata", "spec"}:
        assert name in filled


def test_pods() -> None:
    made = pod(containers=[])
    assert made["restartPolicy"] == "Always"
    assert made["dnsPolicy"] == "ClusterFirst"
    assert made["terminationGracePeriodSeconds"] == 30
    assert made["schedulerName"] == "default-scheduler"
    assert made["securityContext"] == {}
    assert made["enableServiceLinks"] is True
    assert (made["serviceAccountName"], made["serviceAccount"]) == ("default", "default")
    assert [one["key"] for one in made["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


def test_what_is_set_stays() -> None:
    made = pod(
        containers=[], restartPolicy="Never", terminationGracePeriodSeconds=0, tolerations=[{"operator": "Exists"}]
    )
    assert (made["restartPolicy"], made["terminationGracePeriodSeconds"]) == ("Never", 0)
    assert made["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.25", "IfNotPresent"),
        ("registry:5000/nginx", "Always"),
        ("registry:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
    ],
)
def test_when_images_are_pulled(image: str, policy: str) -> None:
    assert container(image=image)["imagePullPolicy"] == policy


def test_containers() -> None:
    made = container(
        image="x:1",
        ports=[{"containerPort": 80}],
        livenessProbe={"httpGet": {"port": 80}},
        resources={"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
        env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    )
    assert made["terminationMessagePath"] == "/dev/termination-log"
    assert made["terminationMessagePolicy"] == "File"
    assert made["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert made["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert made["resources"]["requests"] == {"cpu": "100m", "memory": "1Gi"}
    assert made["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


def test_volumes() -> None:
    made = pod(
        containers=[],
        volumes=[
            {"name": "a"},
            {"name": "b", "secret": {"secretName": "x"}},
            {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        ],
    )
    assert made["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "secret": {"secretName": "x", "defaultMode": 420}},
        {
            "name": "c",
            "projected": {
                "defaultMode": 420,
                "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
            },
        },
    ]


def test_ports_of_the_host() -> None:
    made = pod(hostNetwork=True, containers=[{"name": "x", "ports": [{"containerPort": 80}]}])
    assert made["containers"][0]["ports"][0]["hostPort"] == 80


def test_services() -> None:
    made = fill("core.v1.Service", {"spec": {"ports": [{"port": 80}, {"port": 81, "targetPort": "web"}]}})["spec"]
    assert made == {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ports": [
            {"port": 80, "protocol": "TCP", "targetPort": 80},
            {"port": 81, "protocol": "TCP", "targetPort": "web"},
        ],
    }
    made = fill("core.v1.Service", {"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}})["spec"]
    assert made["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    assert made["externalTrafficPolicy"] == "Cluster"
    assert made["allocateLoadBalancerNodePorts"] is True
    assert "internalTrafficPolicy" not in fill("core.v1.Service", {"spec": {"type": "ExternalName"}})["spec"]


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (
            "apps.v1.Deployment",
            {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
                "template": TEMPLATE,
            },
        ),
        ("apps.v1.ReplicaSet", {"replicas": 1, "template": TEMPLATE}),
        (
            "apps.v1.StatefulSet",
            {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "template": TEMPLATE,
            },
        ),
        (
            "apps.v1.DaemonSet",
            {
                "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
                "template": TEMPLATE,
            },
        ),
        (
            "batch.v1.Job",
            {
                "completions": 1,
                "parallelism": 1,
                "backoffLimit": 6,
                "completionMode": "NonIndexed",
                "suspend": False,
                "podReplacementPolicy": "TerminatingOrFailed",
                "template": TEMPLATE,
            },
        ),
        (
            "batch.v1.CronJob",
            {
                "concurrencyPolicy": "Allow",
                "suspend": False,
                "successfulJobsHistoryLimit": 3,
                "failedJobsHistoryLimit": 1,
                "jobTemplate": {"metadata": {}, "spec": {"template": TEMPLATE}},
            },
        ),
        ("core.v1.PersistentVolumeClaim", {"volumeMode": "Filesystem", "resources": {}}),
        ("core.v1.PersistentVolume", {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"}),
        ("networking.v1.NetworkPolicy", {"podSelector": {}, "policyTypes": ["Ingress"]}),
    ],
)
def test_specs(definition: str, expected: dict[str, Any]) -> None:
    assert fill(definition, {"spec": {}})["spec"] == expected


@pytest.mark.parametrize(
    ("definition", "given", "expected"),
    [
        (
            "apps.v1.Deployment",
            {"spec": {"strategy": {"type": "Recreate"}}},
            {
                "spec": {
                    "replicas": 1,
                    "revisionHistoryLimit": 10,
                    "progressDeadlineSeconds": 600,
                    "strategy": {"type": "Recreate"},
                    "template": TEMPLATE,
                },
                "status": {},
            },
        ),
        # Structures in Go are always there, and zeros are in statuses.
        ("coordination.v1.Lease", {}, {"spec": {}}),
        ("networking.v1.Ingress", {"spec": {}}, {"spec": {}, "status": {"loadBalancer": {}}}),
        (
            "core.v1.Pod",
            {"spec": {"containers": []}, "status": {"containerStatuses": [{"name": "main"}]}},
            {
                "spec": pod(containers=[]),
                "status": {
                    "containerStatuses": [
                        {
                            "name": "main",
                            "ready": False,
                            "restartCount": 0,
                            "image": "",
                            "imageID": "",
                            "state": {},
                            "lastState": {},
                        }
                    ]
                },
            },
        ),
        ("core.v1.Secret", {}, {"type": "Opaque"}),
        ("core.v1.ConfigMap", {}, {}),
        ("storage.v1.StorageClass", {}, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        (
            "rbac.v1.RoleBinding",
            {"roleRef": {}, "subjects": [{"kind": "User"}, {"kind": "ServiceAccount"}]},
            {
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount"}],
            },
        ),
        (
            "admissionregistration.v1.ValidatingWebhookConfiguration",
            {"webhooks": [{"rules": [{}], "clientConfig": {"service": {}}}]},
            {
                "webhooks": [
                    {
                        "failurePolicy": "Fail",
                        "matchPolicy": "Equivalent",
                        "timeoutSeconds": 10,
                        "namespaceSelector": {},
                        "objectSelector": {},
                        "rules": [{"scope": "*"}],
                        "clientConfig": {"service": {"port": 443}},
                    }
                ]
            },
        ),
        # Limits follow from each other.
        (
            "core.v1.LimitRange",
            {
                "spec": {
                    "limits": [
                        {"type": "Container", "max": {"cpu": "2", "memory": "1Gi"}, "default": {"cpu": "1"}},
                        {"type": "Pod", "max": {"cpu": "2"}},
                    ]
                }
            },
            {
                "spec": {
                    "limits": [
                        {
                            "type": "Container",
                            "max": {"cpu": "2", "memory": "1Gi"},
                            "default": {"cpu": "1", "memory": "1Gi"},
                            "defaultRequest": {"cpu": "1", "memory": "1Gi"},
                        },
                        {"type": "Pod", "max": {"cpu": "2"}},
                    ]
                }
            },
        ),
    ],
)
def test_other_objects(definition: str, given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert fill(definition, given) == expected


def test_templates_of_jobs_in_cron_jobs_are_no_jobs_yet() -> None:
    made = fill("batch.v1.CronJob", {"spec": {"jobTemplate": {"spec": {"template": {"spec": {}}}}}})
    template = made["spec"]["jobTemplate"]["spec"]
    assert template.keys() == {"template"}
    assert template["template"]["spec"]["restartPolicy"] == "Always"


def test_defaults_are_not_shared_between_objects() -> None:
    fill("apps.v1.Deployment", {"spec": {}})["spec"]["strategy"]["type"] = "Recreate"
    pod(containers=[])["tolerations"].clear()
    assert fill("apps.v1.Deployment", {"spec": {}})["spec"]["strategy"]["type"] == "RollingUpdate"
    assert len(pod(containers=[])["tolerations"]) == 2
