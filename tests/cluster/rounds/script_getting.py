"""Everything that ``kubectl get`` and ``describe`` can print, with all the selectors."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import fail, run, same, see, start

STEPS = [
    run("apply -f pods.yaml", "pod/alpha created", "pod/gamma created"),
    run("wait pod --all --for=condition=Ready --timeout=120s", "pod/alpha condition met", "pod/gamma condition met"),
    run(
        "get pods -o wide",
        re.compile(r"AGE +IP +NODE +NOMINATED NODE +READINESS GATES"),
        re.compile(r"^alpha +1/1 +Running +0 +\d+s +10\.\S+ +\S+ +<none> +<none>$", re.MULTILINE),
    ),
    same(
        "get po --no-headers -o custom-columns=:.metadata.name,:.spec.containers[*].image",
        "alpha nginx:1\nbeta nginx:2,sidecar:1\ngamma postgres:16",
    ),
    run(
        "get pod alpha -o yaml",
        "apiVersion: v1",
        "kind: Pod",
        "image: nginx:1",
        "phase: Running",
        "uid:",
        absent=["managedFields"],
    ),
    run("get pods -L app,tier", re.compile(r"AGE +APP +TIER$", re.MULTILINE), re.compile(r"web +back$", re.MULTILINE)),
    same("get pods --sort-by=.metadata.labels.rank -o name", "pod/gamma\npod/alpha\npod/beta"),
    same("get pods -l app=web,tier!=front -o name", "pod/beta"),
    same("get pods -l 'tier in (front,back)' -o name", "pod/alpha\npod/beta"),
    run("get pods -l app=none", "No resources found in default namespace."),
    same("get pods --field-selector=status.phase=Running,metadata.name!=beta -o name", "pod/alpha\npod/gamma"),
    same("get pods --chunk-size=1 -o name", "pod/alpha\npod/beta\npod/gamma"),
    run("get pods -A", "NAMESPACE", re.compile(r"^default +alpha ", re.MULTILINE)),
    run("get pod,svc", "pod/alpha", "service/kubernetes"),
    run("get nodes -o wide", "INTERNAL-IP", "OS-IMAGE", "CONTAINER-RUNTIME"),
    run("get ns default -o yaml", "phase: Active", "- kubernetes"),
    run(
        "describe pod beta",
        re.compile(r"^Name: +beta$", re.MULTILINE),
        re.compile(r"^Status: +Running$", re.MULTILINE),
        "sidecar:1",
        "Ready",
        "Successfully assigned default/beta to kopf-node",
        "Started container main",
    ),
    run("describe svc kubernetes", re.compile(r"^Port: +https +443/TCP$", re.MULTILINE)),
    run("describe node", re.compile(r"^Non-terminated Pods: +\(3 in total\)$", re.MULTILINE), "alpha"),
    run("events", re.compile("No events found|LAST SEEN")),
    # What needs containers or metrics is refused clearly.
    fail("logs alpha", "the subresource pods/log is not supported by the local cluster"),
    start("get cm --watch --no-headers", "kube-root-ca.crt"),
    start("get cm -w -l watched=yes -o jsonpath='{.metadata.name}:{.data.n} ' --output-watch-events=false"),
    run("create configmap seen --from-literal=n=1", "created"),
    run("label cm seen watched=yes", "labeled"),
    run('patch cm seen --type=merge -p \'{"data":{"n":"2","m":"0"}}\'', "patched"),
    run("create configmap unseen", "created"),
    run("delete cm seen", "deleted"),
    see(
        "get cm --watch --no-headers",
        re.compile(r"^seen +1 ", re.MULTILINE),
        re.compile(r"^seen +2 ", re.MULTILINE),
        "unseen",
    ),
    see(
        "get cm -w -l watched=yes -o jsonpath='{.metadata.name}:{.data.n} ' --output-watch-events=false",
        "seen:1 ",
        "seen:2 ",
        "seen:2 ",
    ),
]
