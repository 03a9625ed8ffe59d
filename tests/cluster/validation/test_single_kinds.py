"""
The rules of single kinds, in the words of kube-apiserver: what is routed, stored, leased, limited, and registered.
"""

from __future__ import annotations

import base64
import copy
import io
import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.cluster.conftest import CRDS, Client, make_definition

Obj = dict[str, Any]

NETWORKING: Final = "/apis/networking.k8s.io/v1"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
KINDS: Final = {
    "apiservices": "/apis/apiregistration.k8s.io/v1/apiservices",
    "configmaps": "/api/v1/namespaces/default/configmaps",
    "secrets": "/api/v1/namespaces/default/secrets",
    "limitranges": "/api/v1/namespaces/default/limitranges",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/namespaces/default/persistentvolumeclaims",
    "ingresses": f"{NETWORKING}/namespaces/default/ingresses",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "daemonsets": "/apis/apps/v1/namespaces/default/daemonsets",
    "horizontalpodautoscalers": "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    "validatingadmissionpolicies": f"{ADMISSION}/validatingadmissionpolicies",
    "validatingadmissionpolicybindings": f"{ADMISSION}/validatingadmissionpolicybindings",
}
SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
WILDCARD_RULE: Final = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', "
    "regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LARGEST: Final = 1024 * 1024  # bytes
BACKEND: Final[Obj] = {"service": {"name": "web", "port": {"number": 80}}}
RULE: Final[Obj] = {
    "apiGroups": ["apps"],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["deployments"],
}
POLICY: Final[Obj] = {
    "matchConstraints": {"resourceRules": [RULE]},
    "validations": [{"expression": "object.spec.replicas <= params.most"}],
    "paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"},
}
VOLUME: Final[Obj] = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
SERVICE: Final[Obj] = {
    "group": "x.example.com",
    "version": "v1",
    "groupPriorityMinimum": 100,
    "versionPriority": 10,
    "service": {"name": "x", "namespace": "default"},
    "insecureSkipTLSVerify": True,
}


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def routed(*paths: Obj, **rule: Any) -> Obj:
    return {"spec": {"rules": [{"http": {"paths": list(paths)}, **rule}]}}


def daemons(**rolling: Any) -> Obj:
    labels = {"app": "web"}
    return {
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"rollingUpdate": rolling},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "x"}]}},
        }
    }


def scaled(version: str, kind: str, **spec: Any) -> Obj:
    return {"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": "a"}, **spec}}


def counted(version: str) -> Obj:
    described = {"apiVersion": version, "kind": "Service", "name": "s"}
    return scaled(
        "apps/v1",
        "Deployment",
        metrics=[
            {
                "type": "Object",
                "object": {
                    "describedObject": described,
                    "metric": {"name": "hits"},
                    "target": {"type": "Value", "value": "2k"},
                },
            }
        ],
    )


GOOD: Final[list[tuple[str, Obj]]] = [
    ("ingresses", {"spec": {"defaultBackend": {"resource": {"kind": "Bucket", "name": "b", "apiGroup": "x.io"}}}}),
    (
        "ingresses",
        routed(
            {"pathType": "Prefix", "path": "/a", "backend": BACKEND},
            {"pathType": "ImplementationSpecific", "backend": {"service": {"name": "web", "port": {"name": "http"}}}},
            host="*.example.com",
        ),
    ),
    (
        "ingresses",
        {
            "spec": {
                "rules": [{"host": "example.com"}],
                "tls": [{"hosts": ["example.com"], "secretName": "t"}],
                "ingressClassName": "nginx",
            }
        },
    ),
    ("secrets", {"type": "kubernetes.io/tls", "stringData": {"tls.crt": "", "tls.key": ""}}),
    ("secrets", {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": encode('{"auths": {}}')}}),
    ("secrets", {"type": "kubernetes.io/basic-auth", "stringData": {"password": "x"}}),
    ("secrets", {"type": "kubernetes.io/mine"}),
    ("leases", {"spec": {"leaseDurationSeconds": 1, "leaseTransitions": 0}}),
    ("priorityclasses", {"value": 1_000_000_000}),
    ("limitranges", {"spec": {"limits": [{"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}}]}}),
    ("persistentvolumes", {"spec": VOLUME}),
    ("daemonsets", daemons(maxUnavailable=0, maxSurge="10%")),
    ("horizontalpodautoscalers", scaled("v1", "ReplicationController")),
    ("horizontalpodautoscalers", counted("v1")),
    ("validatingadmissionpolicies", {"spec": POLICY}),
    ("validatingadmissionpolicybindings", {"spec": {"policyName": "one", "validationActions": ["Deny", "Audit"]}}),
    ("apiservices", {"metadata": {"name": "v1.x.example.com"}, "spec": SERVICE}),
]

WRONG: Final[list[tuple[str, Obj, list[str]]]] = [
    ("ingresses", {"spec": {}}, ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]),
    (
        "ingresses",
        {"spec": {"defaultBackend": {}}},
        ['spec.defaultBackend: Invalid value: "": resource or service backend is required'],
    ),
    (
        "ingresses",
        {"spec": {"defaultBackend": {**BACKEND, "resource": {"kind": "Bucket", "name": "b"}}}},
        ['spec.defaultBackend: Invalid value: "": cannot set both resource and service backends'],
    ),
    (
        "ingresses",
        {"spec": {"defaultBackend": {"resource": {"kind": "", "name": "", "apiGroup": "A"}}}},
        [
            "spec.defaultBackend.resource.kind: Required value",
            "spec.defaultBackend.resource.name: Required value",
            f'spec.defaultBackend.resource.apiGroup: Invalid value: "A": {SUBDOMAIN_RULE}',
        ],
    ),
    (
        "ingresses",
        routed(
            {"pathType": "Prefix", "path": "a//b/..", "backend": {"service": {"name": "", "port": {}}}},
            {"path": "/", "backend": BACKEND},
            {"pathType": "Exact", "backend": BACKEND},
            {
                "pathType": "Odd",
                "path": "/",
                "backend": {"service": {"name": "web", "port": {"name": "a", "number": 1}}},
            },
            {
                "pathType": "ImplementationSpecific",
                "path": "x",
                "backend": {"service": {"name": "web", "port": {"number": 70000}}},
            },
            {"pathType": "Exact", "path": "/", "backend": {"service": {"name": "web", "port": {"name": "no--good"}}}},
            host="10.0.0.1",
        ),
        [
            'spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address',
            'spec.rules[0].http.paths[0].path: Invalid value: "a//b/..": must be an absolute path',
            "spec.rules[0].http.paths[0].path: Invalid value: \"a//b/..\": must not contain '//'",
            "spec.rules[0].http.paths[0].path: Invalid value: \"a//b/..\": cannot end with '/..'",
            "spec.rules[0].http.paths[0].backend.service.name: Required value",
            "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
            "spec.rules[0].http.paths[1].pathType: Required value: pathType must be specified",
            'spec.rules[0].http.paths[2].path: Invalid value: "": must be an absolute path',
            'spec.rules[0].http.paths[3].backend: Invalid value: "": cannot set both port name & port number',
            'spec.rules[0].http.paths[4].path: Invalid value: "x": must be an absolute path',
            "spec.rules[0].http.paths[4].backend.service.port.number: Invalid value: 70000: must be between 1 "
            "and 65535, "
            "inclusive",
            'spec.rules[0].http.paths[5].backend.service.port.name: Invalid value: "no--good": must not contain '
            "consecutive hyphens",
            'spec.rules[0].http.paths[3].pathType: Unsupported value: "Odd": supported values: "Exact", '
            '"ImplementationSpecific", "Prefix"',
        ],
    ),
    (
        "ingresses",
        {
            "spec": {
                "rules": [{"host": "a.*"}, {"http": {"paths": []}}],
                "ingressClassName": "N",
                "tls": [{"hosts": ["ok", "*"], "secretName": "T"}],
            },
            "metadata": {"annotations": {"kubernetes.io/ingress.class": "n"}},
        },
        [
            f'spec.rules[0].host: Invalid value: "a.*": {WILDCARD_RULE}',
            "spec.rules[1].http.paths: Required value",
            f'spec.tls[0].hosts[1]: Invalid value: "*": {WILDCARD_RULE}',
            f'spec.tls[0].secretName: Invalid value: "T": {SUBDOMAIN_RULE}',
            f'spec.ingressClassName: Invalid value: "N": {SUBDOMAIN_RULE}',
            'annotations.kubernetes.io/ingress.class: Invalid value: "n": must match `ingressClassName` when both are '
            "specified",
        ],
    ),
    ("secrets", {"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}, ["data[tls.key]: Required value"]),
    ("secrets", {"type": "kubernetes.io/dockerconfigjson"}, ["data[.dockerconfigjson]: Required value"]),
    (
        "secrets",
        {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "no"}},
        ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": Input data was truncated'],
    ),
    (
        "secrets",
        {"type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": "[]"}},
        ['data[.dockercfg]: Invalid value: "<secret contents redacted>": json: cannot unmarshal array into an object'],
    ),
    (
        "secrets",
        {"type": "kubernetes.io/basic-auth"},
        ["data[username]: Required value", "data[password]: Required value"],
    ),
    (
        "secrets",
        {"type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": ""}},
        ["data[ssh-privatekey]: Required value"],
    ),
    (
        "secrets",
        {"type": "kubernetes.io/service-account-token"},
        ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
    ),
    (
        "configmaps",
        {"data": {"a": "x"}, "binaryData": {"a": "eA==", "b": "eA=="}},
        [
            'data[a]: Invalid value: "a": duplicate of key present in binaryData',
            'binaryData[a]: Invalid value: "a": duplicate of key present in data',
        ],
    ),
    (
        "leases",
        {"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}},
        [
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ],
    ),
    (
        "priorityclasses",
        {"value": 1_000_000_001},
        ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
    ),
    (
        "priorityclasses",
        {"value": 5, "metadata": {"name": "system-mine"}},
        [
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use "
            "only. error: "
            "system-mine is not a known system priority class"
        ],
    ),
    (
        "limitranges",
        {
            "spec": {
                "limits": [
                    {"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "1"}},
                    {"type": "Pod"},
                    {"type": "PersistentVolumeClaim"},
                    {
                        "type": "Container",
                        "min": {"cpu": "2"},
                        "max": {"cpu": "1"},
                        "maxLimitRequestRatio": {"cpu": "500m"},
                    },
                    {"type": "x.io/y", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "3"}, "max": {"cpu": "1"}},
                ]
            }
        },
        [
            "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
            'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
            'spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1',
            'spec.limits[1].type: Duplicate value: "Pod"',
            "spec.limits[2].limits: Required value: either minimum or maximum storage value is required, but "
            "neither was "
            "provided",
            'spec.limits[3].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
            'spec.limits[3].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request '
            "value 1",
            'spec.limits[3].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1',
            'spec.limits[3].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1',
            'spec.limits[4].defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than max '
            "value 1",
            'spec.limits[4].defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than '
            "default limit "
            "value 2",
            'spec.limits[4].default[cpu]: Invalid value: "1": default value 2 is greater than max value 1',
        ],
    ),
    (
        "persistentvolumes",
        {"spec": {}},
        [
            "spec.accessModes: Required value",
            "spec.capacity: Required value",
            'spec.capacity: Unsupported value: null: supported values: "storage"',
            "spec: Required value: must specify a volume type",
        ],
    ),
    (
        "persistentvolumes",
        {
            "spec": {
                **VOLUME,
                "accessModes": ["ReadWriteOncePod", "Odd"],
                "capacity": {"storage": "0"},
                "nfs": {"server": "s", "path": "/"},
            }
        },
        [
            'spec.accessModes: Unsupported value: "Odd": supported values: "ReadOnlyMany", "ReadWriteMany", '
            '"ReadWriteOnce", "ReadWriteOncePod"',
            "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
            'spec.capacity[storage]: Invalid value: "0": must be greater than zero',
            "spec.nfs: Forbidden: may not specify more than 1 volume type",
        ],
    ),
    (
        "persistentvolumeclaims",
        {"spec": {"accessModes": ["Odd"], "resources": {"requests": {"storage": "1"}}}},
        [
            'spec.accessModes: Unsupported value: "Odd": supported values: "ReadOnlyMany", "ReadWriteMany", '
            '"ReadWriteOnce", "ReadWriteOncePod"'
        ],
    ),
    (
        "daemonsets",
        daemons(maxUnavailable=0, maxSurge="0%"),
        ["spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"],
    ),
    (
        "daemonsets",
        daemons(maxUnavailable=1, maxSurge="101%"),
        [
            'spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "101%": must not be greater than 100%',
            'spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "101%": may not be set when maxUnavailable is '
            "non-zero",
        ],
    ),
    (
        "horizontalpodautoscalers",
        scaled("", "Deployment"),
        ['spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group'],
    ),
    (
        "horizontalpodautoscalers",
        scaled("a/b/c", "ReplicationController"),
        ['spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'],
    ),
    (
        "horizontalpodautoscalers",
        counted("a/b/c"),
        [
            'spec.metrics[0].object.describedObject.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion '
            "string: "
            "a/b/c"
        ],
    ),
    (
        "validatingadmissionpolicies",
        {"spec": {}},
        [
            "spec.matchConstraints: Required value",
            "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
            "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
        ],
    ),
    (
        "validatingadmissionpolicies",
        {
            "spec": {
                **POLICY,
                "failurePolicy": "Maybe",
                "matchConstraints": {"matchPolicy": "Odd"},
                "paramKind": {"apiVersion": "a/b/c", "kind": "1st"},
                "validations": [{"expression": " "}, {"expression": "true", "message": "a\nb", "reason": "Odd"}],
            }
        },
        [
            'spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"',
            'spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
            'spec.paramKind.kind: Invalid value: "1st": may have mixed case, but should otherwise match: a '
            "DNS-1035 label "
            "must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
            "end with "
            "an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
            "'[a-z]([-a-z0-9]*[a-z0-9])?')",
            'spec.matchConstraints.matchPolicy: Unsupported value: "Odd": supported values: "Equivalent", "Exact"',
            "spec.matchConstraints.resourceRules: Required value",
            "spec.validations[0].expression: Required value: expression is not specified",
            'spec.validations[1].message: Invalid value: "a\\nb": message must not contain line breaks',
            'spec.validations[1].reason: Unsupported value: "Odd": supported values: "Forbidden", "Invalid", '
            '"RequestEntityTooLarge", "Unauthorized"',
        ],
    ),
    (
        "validatingadmissionpolicies",
        {"spec": {**POLICY, "validations": [{"expression": "1 + 1", "messageExpression": "5"}]}},
        [
            'spec.validations[0].expression: Invalid value: "1 + 1": must evaluate to bool',
            'spec.validations[0].messageExpression: Invalid value: "5": must evaluate to string',
        ],
    ),
    (
        "validatingadmissionpolicybindings",
        {"spec": {"validationActions": ["Deny", "Warn", "Deny", "Odd"]}},
        [
            "spec.policyName: Required value",
            'spec.validationActions[2]: Duplicate value: "Deny"',
            'spec.validationActions[3]: Unsupported value: "Odd": supported values: "Audit", "Deny", "Warn"',
            'spec.validationActions: Invalid value: ["Deny","Warn","Deny","Odd"]: must not contain both Deny and Warn '
            "(repeating the same validation failure information in the API response and headers serves no purpose)",
        ],
    ),
    (
        "apiservices",
        {"spec": {**SERVICE, "versionPriority": 0, "caBundle": "eHh4eA==", "service": {}}},
        [
            'metadata.name: Invalid value: "one": must be `spec.version+"."+spec.group`: "v1.x.example.com"',
            "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
            "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
            "spec.service.namespace: Required value",
            "spec.service.name: Required value",
        ],
    ),
    (
        "apiservices",
        {
            "metadata": {"name": "v2."},
            "spec": {
                "version": "v2",
                "groupPriorityMinimum": 20001,
                "versionPriority": 5,
                "caBundle": "eHh4eA==",
                "insecureSkipTLSVerify": True,
            },
        },
        [
            "spec.group: Required value: only v1 may have an empty group and it better be legacy kube",
            "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
            'spec.caBundle: Invalid value: "4 bytes": local APIServices may not have a caBundle',
            "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
        ],
    ),
]


def name(obj: Obj) -> Obj:
    made = copy.deepcopy(obj)
    made["metadata"] = {"name": "one", **made.get("metadata", {})}
    return made


@pytest.mark.parametrize(("plural", "obj"), GOOD)
async def test_what_is_right_is_taken(client: Client, plural: str, obj: Obj) -> None:
    await client.create(KINDS[plural], name(obj))


@pytest.mark.parametrize(("plural", "obj", "expected"), WRONG)
async def test_what_is_wrong_is_refused(client: Client, plural: str, obj: Obj, expected: list[str]) -> None:
    reply = await client.call("POST", KINDS[plural], json=name(obj), expected=422)
    assert [f"{cause['field']}: {cause['message']}" for cause in reply.body["details"]["causes"]] == expected


@pytest.mark.parametrize(
    ("plural", "fields", "field"),
    [
        ("configmaps", lambda size: {"data": {"a": "x" * (size - 2), "b": "ö"}}, "[]"),
        ("configmaps", lambda size: {"data": {"a": "x"}, "binaryData": {"b": encode("x" * (size - 1))}}, "[]"),
        ("secrets", lambda size: {"stringData": {"a": "x" * (size - 1)}, "data": {"b": encode("x")}}, "data"),
    ],
)
async def test_data_are_limited(client: Client, plural: str, fields: Callable[[int], Obj], field: str) -> None:
    for excess, status in ((1, 422), (0, 201)):
        body = io.BytesIO(json.dumps(name(fields(LARGEST + excess))).encode())
        reply = await client.call(
            "POST", KINDS[plural], data=body, headers={"Content-Type": "application/json"}, expected=status
        )
        if status == 422:
            [cause] = reply.body["details"]["causes"]
            assert f"{cause['field']}: {cause['message']}" == f"{field}: Too long: may not be more than {LARGEST} bytes"


async def test_autoscalers_from_before_can_go_on_without_the_group(client: Client) -> None:
    path = KINDS["horizontalpodautoscalers"]
    await client.create(path, name(scaled("apps/v1", "Deployment")))
    changed = await client.patch(f"{path}/one", {"spec": {"maxReplicas": 5}})
    assert changed["spec"]["maxReplicas"] == 5
    await client.send_patch(f"{path}/one", {"spec": {"scaleTargetRef": {"apiVersion": "v1"}}}, expected=422)


async def test_arrays_need_items(client: Client) -> None:
    definition = make_definition(
        spec={
            "type": "object",
            "properties": {"a": {"type": "array"}, "b": {"type": "array", "items": {"type": "array"}}},
        }
    )
    reply = await client.call("POST", CRDS, json=definition)
    path = "spec.validation.openAPIV3Schema.properties[spec].properties"
    assert [f"{cause['field']}: {cause['message']}" for cause in reply.body["details"]["causes"]] == [
        f"{path}[a].items: Required value: must be specified",
        f"{path}[b].items.items: Required value: must be specified",
    ]
