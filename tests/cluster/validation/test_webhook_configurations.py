"""
Webhook configurations are refused with everything that is wrong with them, in the words of kube-apiserver.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.cluster.conftest import Client

GROUP = "/apis/admissionregistration.k8s.io/v1"
PATHS = [f"{GROUP}/validatingwebhookconfigurations", f"{GROUP}/mutatingwebhookconfigurations"]
WEBHOOK: dict[str, Any] = {
    "name": "checks.example.com",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/a/b"}},
    "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/*"]}],
    "matchConditions": [{"name": "mine", "expression": "object.metadata.name != 'x'"}],
    "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
}
RULE = WEBHOOK["rules"][0]
FORM = "; desired format: https://host[/path]"


async def refuse(client: Client, path: str, *webhooks: Any) -> list[str]:
    reply = await client.call(
        "POST", path, json={"metadata": {"name": "hooks"}, "webhooks": list(webhooks)}, expected=422
    )
    return [
        f"{cause['field'].removeprefix('webhooks[0].')}: {cause['message']}"
        for cause in reply.body["details"]["causes"]
    ]


@pytest.mark.parametrize("path", PATHS)
async def test_good_webhooks(client: Client, path: str) -> None:
    await client.create(
        path,
        {
            "metadata": {"name": "hooks"},
            "webhooks": [
                WEBHOOK,
                {
                    **WEBHOOK,
                    "name": "b.example.com",
                    "clientConfig": {"url": "https://127.0.0.1:9443/x"},
                    "timeoutSeconds": 30,
                    "matchConditions": [{"name": "a.b/c", "expression": "authorizer.path('/').check('get').allowed()"}],
                    "rules": [
                        {**RULE, "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
                    ],
                },
            ],
        },
    )


@pytest.mark.parametrize("path", PATHS)
async def test_all_causes_at_once(client: Client, path: str) -> None:
    assert await refuse(
        client,
        path,
        {
            "name": "Bad",
            "timeoutSeconds": 31,
            "clientConfig": {},
            "rules": [{"operations": ["READ"]}],
            "matchConditions": [{"name": "", "expression": "1 +"}],
            "admissionReviewVersions": ["v2", "v2"],
        },
        WEBHOOK,
        WEBHOOK,
    ) == [
        'name: Invalid value: "Bad": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric '
        "characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex "
        "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        'rules[0].operations[0]: Unsupported value: "READ": supported values: '
        '"*", "CONNECT", "CREATE", "DELETE", "UPDATE"',
        "rules[0].apiGroups: Required value",
        "rules[0].apiVersions: Required value",
        "rules[0].resources: Required value",
        "sideEffects: Required value: must specify one of None, NoneOnDryRun",
        "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        "clientConfig: Required value: exactly one of url or service is required",
        'matchConditions[0].expression: Invalid value: "1 +": compilation failed: ERROR: <input>:1:4: Syntax error: '
        "mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', "
        "NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | 1 +\n | ...^",
        "matchConditions[0].name: Required value",
        'admissionReviewVersions[1]: Invalid value: "v2": duplicate version',
        'admissionReviewVersions: Invalid value: ["v2","v2"]: must include at least one of v1, v1beta1',
        'webhooks[2].name: Duplicate value: "checks.example.com"',
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"name": "example.com"},
            'name: Invalid value: "example.com": should be a domain with at least three segments separated by dots',
        ),
        ({"name": ""}, "name: Required value"),
        ({"sideEffects": "Some"}, 'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'),
        ({"failurePolicy": "X"}, 'failurePolicy: Unsupported value: "X": supported values: "Fail", "Ignore"'),
        (
            {"clientConfig": {"url": "http://x/"}},
            f"clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme{FORM}",
        ),
        ({"clientConfig": {"url": "https:///x"}}, f'clientConfig.url: Invalid value: "": host must be provided{FORM}'),
        (
            {"clientConfig": {"url": "https://me@x/"}},
            'clientConfig.url: Invalid value: "me": user information is not permitted in the URL',
        ),
        (
            {"clientConfig": {"url": "https://x/#y"}},
            'clientConfig.url: Invalid value: "y": fragments are not permitted in the URL',
        ),
        (
            {"clientConfig": {"url": "https://x/?y"}},
            'clientConfig.url: Invalid value: "y": query parameters are not permitted in the URL',
        ),
        (
            {"clientConfig": {"service": {"name": "s", "namespace": "n", "port": 0}}},
            "clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
        ),
        (
            {"clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/a//b"}}},
            'clientConfig.service.path: Invalid value: "/a//b": segment[1] may not be empty',
        ),
        (
            {"clientConfig": {"url": "https://x", "service": {"name": "s", "namespace": "n"}}},
            "clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            {"rules": [{**RULE, "operations": ["*", "CREATE"]}]},
            'rules[0].operations: Invalid value: ["*","CREATE"]: if \'*\' is present, must not specify other '
            "operations",
        ),
        (
            {"rules": [{**RULE, "resources": ["pods/*", "pods/status"]}]},
            "rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify "
            "pods/status",
        ),
        (
            {"rules": [{**RULE, "resources": ["*", "pods"]}]},
            'rules[0].resources: Invalid value: ["*","pods"]: if \'*\' is present, must not specify other '
            "resources without "
            "subresources",
        ),
        (
            {"rules": [{**RULE, "scope": "X"}]},
            'rules[0].scope: Unsupported value: "X": supported values: "*", "Cluster", "Namespaced"',
        ),
        (
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "objectSelector.matchExpressions[0].values: Required value: must be specified when `operator` is "
            "'In' or 'NotIn'",
        ),
        (
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "X"}]}},
            'objectSelector.matchExpressions[0].operator: Invalid value: "X": not a valid selector operator',
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "'x'"}]},
            "matchConditions[0].expression: Invalid value: \"'x'\": must evaluate to bool",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]},
            'matchConditions[1].name: Duplicate value: "a"',
        ),
        ({"admissionReviewVersions": []}, "admissionReviewVersions: Required value: must specify one of v1, v1beta1"),
    ],
)
@pytest.mark.parametrize("path", PATHS)
async def test_wrong_webhooks(client: Client, path: str, change: Any, expected: str) -> None:
    assert await refuse(client, path, {**copy.deepcopy(WEBHOOK), **change}) == [expected]


@pytest.mark.parametrize("path", PATHS)
async def test_changes_are_checked_the_same(client: Client, path: str) -> None:
    await client.create(path, {"metadata": {"name": "hooks"}, "webhooks": [WEBHOOK]})
    reply = await client.send_patch(f"{path}/hooks", {"webhooks": [{**WEBHOOK, "timeoutSeconds": 0}]}, expected=422)
    assert "timeout value must be between" in reply.body["message"]
