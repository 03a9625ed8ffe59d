"""What a newcomer asks first: what is this cluster, what is in it, who am I."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import fail, run, same

STEPS = [
    run("version", "Server Version: v1.36"),
    run("cluster-info", "control plane", "is running at", "https://127.0.0.1:"),
    run("api-versions", "apps/v1", "batch/v1", "rbac.authorization.k8s.io/v1", re.compile(r"^v1$", re.MULTILINE)),
    run(
        "api-resources",
        re.compile(r"^pods +po +v1 +true +Pod$", re.MULTILINE),
        re.compile(r"^deployments +deploy +apps/v1 +true +Deployment$", re.MULTILINE),
        re.compile(r"^customresourcedefinitions +crd,crds +apiextensions.k8s.io/v1 +false +", re.MULTILINE),
    ),
    run("api-resources --categories=all -o name", "pods", "services", "deployments.apps", absent=["secrets"]),
    run("api-resources --verbs=list,create -o name", "configmaps", absent=["tokenreviews", "subjectaccessreviews"]),
    fail("get nosuch", 'the server doesn\'t have a resource type "nosuch"'),
    run("explain pod.spec.containers", "FIELD: containers <[]Container>", "image", "<string>", "-required-"),
    run("explain deployment.spec.strategy.rollingUpdate", "GROUP:      apps", "maxSurge", "<IntOrString>"),
    same("get --raw /healthz", "ok"),
    run("auth whoami", "Username", "kubernetes-admin", "system:authenticated"),
    same(
        "get namespaces -o name",
        "namespace/default\nnamespace/kube-node-lease\nnamespace/kube-public\nnamespace/kube-system",
    ),
    run("get sa", re.compile(r"^default +\d+s$", re.MULTILINE)),
]
