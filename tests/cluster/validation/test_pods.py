"""
What is wrong in pods is refused in the words of kube-apiserver: probes, hooks, security contexts, scheduling, volumes.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.cluster.conftest import Client
from tests.cluster.validation.test_cross_fields import CONTAINER, KINDS, LABEL_RULE, pod, template, workload

PODS: Final = KINDS["pods"]
PORT_RULE: Final = "must be between 1 and 65535, inclusive"
KEY_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
ID_RULE: Final = "must be between 0 and 2147483647, inclusive"
NOT_FOR_INIT: Final = "Forbidden: may not be set for init containers without restartPolicy=Always"
SOON: Final = "preferredDuringSchedulingIgnoredDuringExecution"
MUST: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NODES: Final = "spec.affinity.nodeAffinity"


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{**CONTAINER, **fields}]}


GOOD: Final[list[dict[str, Any]]] = [
    container(
        livenessProbe={"httpGet": {"port": "http"}},
        readinessProbe={"grpc": {"port": 80}, "successThreshold": 2},
        startupProbe={"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 5},
        lifecycle={"preStop": {"sleep": {"seconds": 30}}, "postStart": {"tcpSocket": {"port": 80}}},
    ),
    {
        "initContainers": [
            {**CONTAINER, "name": "sidecar", "restartPolicy": "Always", "readinessProbe": {"tcpSocket": {"port": 1}}}
        ]
    },
    container(
        securityContext={
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "Localhost", "localhostProfile": "x.json"},
        }
    ),
    {"securityContext": {"fsGroup": 1, "supplementalGroups": [1, 2], "seccompProfile": {"type": "RuntimeDefault"}}},
    {
        "affinity": {
            "nodeAffinity": {
                MUST: {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "a", "operator": "Gt", "values": ["1"]},
                                {"key": "b", "operator": "Exists"},
                            ],
                            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
                        }
                    ]
                },
                SOON: [{"weight": 100, "preference": {}}],
            },
            "podAntiAffinity": {SOON: [{"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}]},
        }
    },
    {
        "tolerations": [
            {"operator": "Exists"},
            {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
        ]
    },
    {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2},
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
        ]
    },
    {"volumes": [{"name": "a", "configMap": {"name": "x"}}, {"name": "b", "secret": {"secretName": "x"}}]},
]

WRONG: Final[list[tuple[dict[str, Any], list[str]]]] = [
    (
        container(livenessProbe={}, readinessProbe={"exec": {}, "tcpSocket": {"port": 1}}),
        [
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
            "spec.containers[0].readinessProbe.exec.command: Required value",
            "spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ],
    ),
    (
        container(
            livenessProbe={
                "httpGet": {"port": 0, "httpHeaders": [{"name": "a b", "value": "x"}]},
                "successThreshold": 2,
                "periodSeconds": -1,
                "terminationGracePeriodSeconds": 0,
            },
            readinessProbe={"tcpSocket": {"port": "no_name"}, "terminationGracePeriodSeconds": 1},
        ),
        [
            f"spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: {PORT_RULE}",
            'spec.containers[0].livenessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header '
            "must consist "
            "of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
            "spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
            "spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            'spec.containers[0].readinessProbe.tcpSocket.port: Invalid value: "no_name": must contain only '
            "alpha-numeric "
            "characters (a-z, 0-9), and hyphens (-)",
            "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for "
            "readinessProbes",
        ],
    ),
    (
        container(lifecycle={"preStop": {"sleep": {"seconds": 31}}, "postStart": {}}),
        [
            "spec.containers[0].lifecycle.postStart: Required value: must specify a handler type",
            "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than "
            "terminationGracePeriodSeconds (30)",
        ],
    ),
    (
        {"initContainers": [{**CONTAINER, "name": "init", "lifecycle": {}, "startupProbe": {}}]},
        [f"spec.initContainers[0].lifecycle: {NOT_FOR_INIT}", f"spec.initContainers[0].startupProbe: {NOT_FOR_INIT}"],
    ),
    (
        container(securityContext={"runAsUser": -1, "runAsGroup": 2**31, "seccompProfile": {"type": "Localhost"}}),
        [
            f"spec.containers[0].securityContext.runAsUser: Invalid value: -1: {ID_RULE}",
            f"spec.containers[0].securityContext.runAsGroup: Invalid value: 2147483648: {ID_RULE}",
            "spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set "
            "when seccomp "
            "type is Localhost",
        ],
    ),
    (
        {
            "securityContext": {
                "fsGroup": -1,
                "supplementalGroups": [1, -2],
                "sysctls": [
                    {"name": "kernel.shm_rmid_forced", "value": "0"},
                    {"name": "kernel.shm_rmid_forced", "value": "1"},
                ],
            }
        },
        [
            f"spec.securityContext.fsGroup: Invalid value: -1: {ID_RULE}",
            f"spec.securityContext.supplementalGroups[1]: Invalid value: -2: {ID_RULE}",
            'spec.securityContext.sysctls[1].name: Duplicate value: "kernel.shm_rmid_forced"',
        ],
    ),
    (
        {
            "affinity": {
                "nodeAffinity": {
                    MUST: {"nodeSelectorTerms": []},
                    SOON: [
                        {
                            "weight": 0,
                            "preference": {
                                "matchExpressions": [
                                    {"key": "a", "operator": "In"},
                                    {"key": "b", "operator": "Exists", "values": ["x"]},
                                    {"key": "c", "operator": "Lt", "values": ["1", "2"]},
                                ],
                                "matchFields": [{"key": "spec.x", "operator": "In", "values": []}],
                            },
                        }
                    ],
                },
                "podAffinity": {
                    SOON: [
                        {
                            "weight": 101,
                            "podAffinityTerm": {
                                "topologyKey": "zone",
                                "labelSelector": {"matchLabels": {"a": "no spaces"}},
                            },
                        }
                    ]
                },
            }
        },
        [
            f"{NODES}.{MUST}.nodeSelectorTerms: Required value: must have at least one node selector term",
            f"{NODES}.{SOON}[0].weight: Invalid value: 0: must be in the range 1-100",
            f"{NODES}.{SOON}[0].preference.matchExpressions[0].values: Required value: must be specified "
            "when `operator` is 'In' or 'NotIn'",
            f"{NODES}.{SOON}[0].preference.matchExpressions[1].values: Forbidden: may not be specified "
            "when `operator` is 'Exists' or 'DoesNotExist'",
            f"{NODES}.{SOON}[0].preference.matchExpressions[2].values: Required value: must be specified "
            "single value when `operator` is 'Lt' or 'Gt'",
            f"{NODES}.{SOON}[0].preference.matchFields[0].values: Required value: must be only one value "
            "when `operator` is 'In' or 'NotIn' for node field selector",
            f'{NODES}.{SOON}[0].preference.matchFields[0].key: Invalid value: "spec.x": not a valid field selector key',
            f"spec.affinity.podAffinity.{SOON}[0].weight: Invalid value: 101: must be in the range 1-100",
            f"spec.affinity.podAffinity.{SOON}[0].podAffinityTerm.labelSelector.matchLabels: Invalid value: "
            f'"no spaces": {VALUE_RULE}',
        ],
    ),
    (
        {
            "tolerations": [
                {"key": "a", "operator": "Exists", "value": "b"},
                {"value": "b"},
                {"key": "c", "effect": "NoSchedule", "tolerationSeconds": 1},
                {"key": "d", "effect": "Never"},
            ]
        },
        [
            'spec.tolerations[0].operator: Invalid value: {"key":"a","operator":"Exists","value":"b"}: '
            "value must be empty when `operator` is 'Exists'",
            'spec.tolerations[1].operator: Invalid value: "": operator must be Exists when `key` is empty, which means '
            '"match all values and all keys"',
            "spec.tolerations[2].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when "
            "`tolerationSeconds` is set",
            'spec.tolerations[3].effect: Unsupported value: "Never": supported values: "NoSchedule", '
            '"PreferNoSchedule", '
            '"NoExecute"',
        ],
    ),
    (
        {
            "topologySpreadConstraints": [
                {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Maybe"},
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 0},
                {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
            ]
        },
        [
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
            'spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Maybe": supported values: '
            '"DoNotSchedule", "ScheduleAnyway"',
            "spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}: Duplicate value: "
            '"{zone, ScheduleAnyway}"',
            "spec.topologySpreadConstraints[1].minDomains: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[1].minDomains: Invalid value: 0: can only use minDomains if "
            "whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
        ],
    ),
    (
        {
            "volumes": [{"name": "a", "configMap": {}}, {"name": "b", "secret": {"secretName": "x"}, "emptyDir": {}}],
            "nodeSelector": {"a": "b c"},
            "hostname": "No",
        },
        [
            "spec.volumes[0].configMap.name: Required value",
            "spec.volumes[1].secret: Forbidden: may not specify more than 1 volume type",
            f'spec.nodeSelector: Invalid value: "b c": {VALUE_RULE}',
            f'spec.hostname: Invalid value: "No": {LABEL_RULE}',
        ],
    ),
    (
        container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k"}}}], image=" x "),
        [
            "spec.containers[0].env[0].valueFrom.secretKeyRef.name: Required value",
            'spec.containers[0].image: Invalid value: " x ": must not have leading or trailing whitespace',
        ],
    ),
]


def get_causes(reply: Any) -> list[str]:
    assert reply.status == 422, reply.body
    return [f"{cause['field']}: {cause['message']}" for cause in reply.body["details"]["causes"]]


@pytest.mark.parametrize("spec", GOOD)
async def test_good_pods_are_taken(client: Client, spec: dict[str, Any]) -> None:
    await client.create(PODS, {"metadata": {"name": "one"}, "spec": pod(**spec)})


@pytest.mark.parametrize(("spec", "expected"), WRONG)
async def test_wrong_pods_are_refused(client: Client, spec: dict[str, Any], expected: list[str]) -> None:
    reply = await client.call("POST", PODS, json={"metadata": {"name": "one"}, "spec": pod(**spec)})
    assert get_causes(reply) == expected


@pytest.mark.parametrize(
    ("key", "reasons"),
    [
        ("", ["can not be empty", "name part must be non-empty", KEY_RULE]),
        ("a b", [KEY_RULE]),
        ("a" * 64, ["name part must be no more than 63 bytes"]),
    ],
)
async def test_keys_are_refused_for_all_reasons_at_once(client: Client, key: str, reasons: list[str]) -> None:
    affinity = {"podAffinity": {MUST: [{"topologyKey": key}]}}
    reply = await client.call("POST", PODS, json={"metadata": {"name": "one"}, "spec": pod(affinity=affinity)})
    found = get_causes(reply)
    assert {cause.partition(": ")[0] for cause in found} == {f"spec.affinity.podAffinity.{MUST}[0].topologyKey"}
    assert [cause.removeprefix(found[0].partition(": ")[0]) for cause in found] == [
        f": Required value: {reason}" if reason == "can not be empty" else f': Invalid value: "{key}": {reason}'
        for reason in reasons
    ]


async def test_contexts_that_contradict_themselves_are_shown_as_a_whole(client: Client) -> None:
    context = {"allowPrivilegeEscalation": False, "privileged": True, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}
    reply = await client.call(
        "POST", PODS, json={"metadata": {"name": "one"}, "spec": pod(**container(securityContext=context))}
    )
    shown = json.dumps(context, separators=(",", ":"))
    assert get_causes(reply) == [
        f"spec.containers[0].securityContext: Invalid value: {shown}: cannot set `allowPrivilegeEscalation` to false "
        f"and {what}"
        for what in ("`privileged` to true", "`capabilities.Add` CAP_SYS_ADMIN")
    ]


@pytest.mark.parametrize("plural", ["deployments", "daemonsets"])
async def test_templates_are_checked_as_pods_are(client: Client, plural: str) -> None:
    wrong = template(**container(livenessProbe={}, image=" x "), tolerations=[{"key": "a", "effect": "Never"}])
    reply = await client.call(
        "POST", KINDS[plural], json={"metadata": {"name": "one"}, "spec": workload(template=wrong)}
    )
    assert get_causes(reply) == [
        "spec.template.spec.containers[0].livenessProbe: Required value: must specify a handler type",
        'spec.template.spec.tolerations[0].effect: Unsupported value: "Never": supported values: "NoSchedule", '
        '"PreferNoSchedule", "NoExecute"',
    ]
