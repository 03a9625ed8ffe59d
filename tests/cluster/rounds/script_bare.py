"""In a bare cluster, there are the objects that one makes, and nothing is made of them: no pods, no nodes, no roles."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import fail, run, same

STEPS = [
    run("version", "Server Version: v1.36"),
    same("apply -f pods.yaml", "pod/alpha created\npod/beta created\npod/gamma created"),
    run("get pod alpha", re.compile(r"^alpha +0/1 +Pending +0 ", re.MULTILINE)),
    same("get pods --field-selector=status.phase=Pending -o name", "pod/alpha\npod/beta\npod/gamma"),
    same(
        "apply -f workloads.yaml",
        "deployment.apps/web created\nstatefulset.apps/db created\ndaemonset.apps/agent created",
    ),
    run("get deployment web", re.compile(r"^web +0/2 +0 +0 ", re.MULTILINE)),
    same(
        "get all -o name",
        "pod/alpha\npod/beta\npod/gamma\ndaemonset.apps/agent\ndeployment.apps/web\nstatefulset.apps/db",
    ),
    same("get nodes", ""),
    same("auth can-i '*' '*' --as=anybody", "yes"),
    same("create namespace foo", "namespace/foo created"),
    same("delete namespace foo", 'namespace "foo" deleted'),
    fail("get namespace foo", 'namespaces "foo" not found'),
    same(
        "delete all --all",
        'pod "alpha" deleted\npod "beta" deleted\npod "gamma" deleted\n'
        'daemonset.apps "agent" deleted\n'
        'deployment.apps "web" deleted\nstatefulset.apps "db" deleted',
    ),
]
