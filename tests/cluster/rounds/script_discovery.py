"""What a newcomer asks first: what is this cluster, what is in it, who am I."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import fail, run, same

STEPS = [
    run("version", "Server Version: v1.36"),
    run("version -o json", '"serverVersion"', '"minor": "36"'),
    run("cluster-info", "control plane", "is running at", "https://127.0.0.1:"),
    run("api-versions", "apps/v1", "batch/v1", "rbac.authorization.k8s.io/v1", re.compile(r"^v1$", re.MULTILINE)),
    run(
        "api-resources",
        re.compile(r"^pods +po +v1 +true +Pod$", re.MULTILINE),
        re.compile(r"^deployments +deploy +apps/v1 +true +Deployment$", re.MULTILINE),
        re.compile(r"^customresourcedefinitions +crd,crds +apiextensions.k8s.io/v1 +false +", re.MULTILINE),
    ),
    run(
        "api-resources --namespaced=false -o name",
        "nodes",
        "namespaces",
        "clusterroles.rbac.authorization.k8s.io",
        absent=["pods", "deployments.apps"],
    ),
    run(
        "api-resources --api-group=batch --no-headers",
        re.compile(r"^cronjobs +cj +batch/v1 +true +CronJob$", re.MULTILINE),
        re.compile(r"^jobs +batch/v1 +true +Job$", re.MULTILINE),
    ),
    run(
        "api-resources --api-group=apps -o wide --sort-by=kind",
        "create,delete,deletecollection,get,list,patch,update,watch",
        re.compile(r"controllerrevisions.*daemonsets.*statefulsets", re.DOTALL),
    ),
    run("api-resources --categories=all -o name", "pods", "services", "deployments.apps", absent=["secrets"]),
    run("api-resources --verbs=list,create -o name", "configmaps", absent=["tokenreviews", "subjectaccessreviews"]),
    fail("get nosuch", 'the server doesn\'t have a resource type "nosuch"'),
    fail("get pods.v9.nosuch", "the server doesn't have a resource type"),
    run("explain pod", "KIND:       Pod", "VERSION:    v1", "spec", "<PodSpec>", "status"),
    run("explain pod.spec.containers", "FIELD: containers <[]Container>", "image", "<string>", "-required-"),
    run("explain deployment.spec.strategy.rollingUpdate", "GROUP:      apps", "maxSurge", "<IntOrString>"),
    run("explain cronjobs --recursive", "jobTemplate", "backoffLimit", "<integer>"),
    run("explain ingress.spec.rules.http.paths.pathType", "FIELD: pathType <string>"),
    fail("explain pod.spec.nosuch", 'field "nosuch" does not exist'),
    same("get --raw /healthz", "ok"),
    run("get --raw /readyz?verbose", "readyz check passed"),
    run("get --raw /version", '"major": "1"'),
    run("get --raw /apis/apps/v1", '"kind":"APIResourceList"', '"name":"deployments/scale"'),
    run("get --raw /openapi/v3", '"apis/apps/v1"'),
    fail("get --raw /nosuch", "the server could not find the requested resource"),
    fail("get --raw /api/v9/pods", "the server could not find the requested resource"),
    run("config view", "certificate-authority-data: DATA+OMITTED", "token: REDACTED"),
    run("config get-contexts", "CURRENT", "*"),
    run("config view --minify -o jsonpath={.clusters[0].cluster.server}", "https://127.0.0.1:"),
    run("auth whoami", "Username", "kubernetes-admin", "system:authenticated"),
    same("auth whoami -o jsonpath={.status.userInfo.username}", "kubernetes-admin"),
    same("auth whoami --as=jane --as-group=devs -o jsonpath={.status.userInfo.username}", "jane"),
    same(
        "get namespaces -o name",
        "namespace/default\nnamespace/kube-node-lease\nnamespace/kube-public\nnamespace/kube-system",
    ),
    same("get svc -o custom-columns=NAME:.metadata.name,PORT:.spec.ports[0].port", "NAME PORT\nkubernetes 443"),
    run("get all", "service/kubernetes", "ClusterIP"),
    run("get cm kube-root-ca.crt -o jsonpath={.data}", "BEGIN CERTIFICATE"),
    run("get sa", re.compile(r"^default +\d+s$", re.MULTILINE)),
]
