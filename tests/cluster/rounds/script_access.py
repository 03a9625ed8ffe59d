"""Who may do what, on a cluster with RBAC: asked, and tried."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import fail, run, same

ROBOT = "--as=system:serviceaccount:default:robot"

STEPS = [
    same("auth can-i create pods", "yes"),
    same("create sa robot", "serviceaccount/robot created"),
    fail(f"auth can-i list pods {ROBOT}", "no"),
    fail(
        f"get pods {ROBOT}",
        "pods is forbidden",
        'User "system:serviceaccount:default:robot" cannot list resource '
        '"pods" in API group "" in the namespace "default"',
    ),
    same(
        "create role reader --verb=get,list,watch --resource=pods,configmaps",
        "role.rbac.authorization.k8s.io/reader created",
    ),
    same(
        "create rolebinding reading --role=reader --serviceaccount=default:robot",
        "rolebinding.rbac.authorization.k8s.io/reading created",
    ),
    same(f"auth can-i list pods {ROBOT}", "yes"),
    run(
        f"auth can-i --list {ROBOT}",
        re.compile(r"^pods +\[\] +\[\] +\[get list watch\]$", re.MULTILINE),
        "selfsubjectaccessreviews.authorization.k8s.io",
        "[/healthz]",
    ),
    run(f"get pods {ROBOT}", "No resources found in default namespace."),
    fail(f"create cm x {ROBOT}", "configmaps is forbidden", 'cannot create resource "configmaps"'),
    same(
        "create clusterrole scaler --verb=patch,get --resource=deployments.apps --resource-name=web",
        "clusterrole.rbac.authorization.k8s.io/scaler created",
    ),
    same(
        "create clusterrolebinding scaling --clusterrole=scaler --serviceaccount=default:robot",
        "clusterrolebinding.rbac.authorization.k8s.io/scaling created",
    ),
    same(f"auth can-i patch deployment/web {ROBOT} -n kube-public", "yes"),
    same(
        "create rolebinding viewing --clusterrole=view --user=jane",
        "rolebinding.rbac.authorization.k8s.io/viewing created",
    ),
    same("auth can-i list deployments --as=jane", "yes"),
    run(
        "auth reconcile -f - ",
        "rolebinding.rbac.authorization.k8s.io/reading reconciled",
        stdin="""
        {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: reading, namespace: default},
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader},
         subjects: [{kind: ServiceAccount, name: robot, namespace: default}, {kind: User, name: joe,
                     apiGroup: rbac.authorization.k8s.io}]}""",
    ),
    same("auth can-i list pods --as=joe", "yes"),
    same("delete rolebinding reading", 'rolebinding.rbac.authorization.k8s.io "reading" deleted'),
    fail(f"auth can-i list pods {ROBOT}", "no"),
    fail("get pods --token=wrong", re.compile("Unauthorized|must be logged in")),
]
