"""The configuration of ``kubectl``, and the flags that all commands have."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import fail, run, same

STRANGE = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, spec: {a: '1'}}"

STEPS = [
    # Tokens and certificates instead of the configuration.
    same("create sa robot", "serviceaccount/robot created"),
    same(
        "create clusterrolebinding robot --clusterrole=view --serviceaccount=default:robot",
        "clusterrolebinding.rbac.authorization.k8s.io/robot created",
    ),
    run(
        "create token robot --duration=30m -o jsonpath={.status.expirationTimestamp}", re.compile(r"^\d{4}-\d\d-\d\dT")
    ),
    run("create token robot --audience=vault -o json", '"audiences": [', '"vault"', '"kind": "TokenRequest"'),
    fail(
        "create token robot --duration=1s",
        "spec.expirationSeconds: Invalid value: 1",
        "may not specify a duration less than 10 minutes",
    ),
    fail("create token robot --bound-object-kind=Node --bound-object-name=absent", 'nodes "absent" not found'),
    # Verbosity and other flags of all commands.
    run(
        "get cm kube-root-ca.crt -v=8",
        "Accept: application/json;as=Table;v=v1;g=meta.k8s.io",
        re.compile("Response.*200 OK"),
    ),
    run("get cm --request-timeout=120s -o name", "configmap/kube-root-ca.crt"),
    same("-n kube-public get cm -o name", "configmap/kube-root-ca.crt"),
    fail(
        "get cm --as=jane --as-uid=7",
        'configmaps is forbidden: User "jane" cannot list resource "configmaps" in API '
        'group "" in the namespace "default"',
    ),
    same("auth whoami --as=jane --as-uid=7 -o jsonpath={.status.userInfo.uid}", "7"),
    run(
        "auth whoami --as=jane --as-group=a --as-group=b",
        re.compile(r"^Groups +\[a b system:authenticated\]$", re.MULTILINE),
    ),
    run("auth whoami -o yaml", "kind: SelfSubjectReview", "username: kubernetes-admin"),
    fail("get endpoints --warnings-as-errors", "v1 Endpoints is deprecated in v1.33+", "1 warning received"),
    fail("create -f - --validate=strict", 'unknown field "spec"', stdin=STRANGE),
    run(
        "create -f - --validate=warn --warnings-as-errors=false",
        'Warning: unknown field "spec"',
        "configmap/x created",
        stdin=STRANGE,
    ),
    # What does not exist, and what is written wrong.
    fail("scale cm/kube-root-ca.crt --replicas=1", "the server could not find the requested resource"),
    fail("autoscale deployment absent --max=1", 'deployments.apps "absent" not found'),
    fail("logs absent", 'pods "absent" not found'),
]
