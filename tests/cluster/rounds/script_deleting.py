"""All ways to delete: by names, selectors, files; with finalizers, grace, and dependents."""

from __future__ import annotations

from tests.cluster.rounds.scripts import eventually, fail, run, same, see, start

DEPENDENT = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {l: x}, finalizers: [%s]}}"
PODS = "get pods -l app=web -o name"

STEPS = [
    run("create -f pods.yaml", "pod/alpha created"),
    run("wait pod --all --for=condition=Ready --timeout=120s", "pod/gamma condition met"),
    same("delete pod alpha --dry-run=server", 'pod "alpha" deleted (server dry run)'),
    same("delete pod alpha", 'pod "alpha" deleted'),
    fail("delete pod alpha", 'pods "alpha" not found'),
    run("delete pod beta --grace-period=0 --force", "Immediate deletion does not wait", 'pod "beta" force deleted'),
    same("delete -f pods.yaml --ignore-not-found", 'pod "gamma" deleted'),
    run("create -f pods.yaml", "pod/alpha created"),
    same("delete pods -l app=web", 'pod "alpha" deleted\npod "beta" deleted'),
    same("delete pods --all --now", 'pod "gamma" deleted'),
    same("create cm a", "configmap/a created"),
    same("delete cm --field-selector=metadata.name=a", 'configmap "a" deleted'),
    # Finalizers hold the objects, and the command waits for them.
    same("create -f -", "configmap/held created", stdin=DEPENDENT % ("held", "example.com/hold")),
    start("delete cm held"),
    eventually("get cm held -o jsonpath={.metadata.deletionGracePeriodSeconds}", "0"),
    same("delete cm held --wait=false", 'configmap "held" deleted'),
    start("wait cm/held --for=delete --timeout=120s -v=6", "watch=true"),
    fail(
        'patch cm held --type=merge -p \'{"metadata":{"finalizers":["example.com/hold","example.com/late"]}}\'',
        "no new finalizers can be added if the object is being deleted",
    ),
    same('patch cm held --type=json -p \'[{"op":"remove","path":"/metadata/finalizers"}]\'', "configmap/held patched"),
    see("delete cm held", 'configmap "held" deleted'),
    see("wait cm/held --for=delete --timeout=120s -v=6", "configmap/held condition met"),
    # What depends on others.
    run("apply -f workloads.yaml", "deployment.apps/web created"),
    run("rollout status deployment/web --timeout=120s", "successfully rolled out"),
    same("delete deployment web --cascade=orphan", 'deployment.apps "web" deleted'),
    eventually(
        "get rs -l app=web -o jsonpath='{range .items[*]}{.metadata.ownerReferences}{.spec.replicas}{end}'", "2"
    ),
    run("delete rs -l app=web --cascade=foreground", 'replicaset.apps "web-'),
    same(PODS, ""),
    eventually("get rs,pods -l app=web -o name", ""),
    same("delete statefulset/db daemonset/agent", 'statefulset.apps "db" deleted\ndaemonset.apps "agent" deleted'),
    eventually("get pods -o name", ""),
    run("delete pvc --all", 'persistentvolumeclaim "data-db-0" deleted'),
    # Whole namespaces.
    same("create ns doomed", "namespace/doomed created"),
    same("create cm inside -n doomed", "configmap/inside created"),
    same("create -n doomed -f -", "configmap/held created", stdin=DEPENDENT % ("held", "example.com/hold")),
    same("delete ns doomed --wait=false", 'namespace "doomed" deleted'),
    same("get ns doomed -o jsonpath={.status.phase}", "Terminating"),
    fail("create cm late -n doomed", "because it is being terminated"),
    eventually("get cm -n doomed -o name", "configmap/held"),
    same('patch cm held -n doomed --type=merge -p \'{"metadata":{"finalizers":null}}\' -o name', "configmap/held"),
    run("wait ns/doomed --for=delete --timeout=120s"),
    run("delete all --all", 'service "kubernetes" deleted'),
]
