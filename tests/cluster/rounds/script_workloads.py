"""Rollouts, scaling, waiting, and the nodes below, with workloads that progress as if there were kubelets."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import eventually, fail, run, same

IMAGE = "get deployment web -o jsonpath={.spec.template.spec.containers[0].image}"

STEPS = [
    run(
        "apply -f workloads.yaml",
        "deployment.apps/web created",
        "statefulset.apps/db created",
        "daemonset.apps/agent created",
    ),
    run("rollout status deployment/web --timeout=120s", 'deployment "web" successfully rolled out'),
    run(
        "rollout status statefulset db --timeout=120s",
        re.compile("partitioned roll out complete|rolling update complete"),
    ),
    run("rollout status ds/agent --timeout=120s", 'daemon set "agent" successfully rolled out'),
    run(
        "get deployments,rs,sts,ds,pods,pvc,pv",
        re.compile(r"^deployment.apps/web +2/2 +2 +2 ", re.MULTILINE),
        re.compile(r"^replicaset.apps/web-\S+ +2 +2 +2 ", re.MULTILINE),
        re.compile(r"^statefulset.apps/db +2/2 ", re.MULTILINE),
        re.compile(r"^daemonset.apps/agent +1 +1 +1 +1 +1 +<none> ", re.MULTILINE),
        *("pod/db-0", "pod/db-1", "pod/agent-", "pod/web-"),
        re.compile(r"^persistentvolumeclaim/data-db-0 +Bound +\S+ +1Gi +RWO ", re.MULTILINE),
        re.compile(r"1Gi +RWO +Delete +Bound +default/data-db-\d"),
    ),
    # Rollouts.
    same("set image deployment/web app=nginx:2", "deployment.apps/web image updated"),
    same("annotate deployment/web kubernetes.io/change-cause='the second'", "deployment.apps/web annotated"),
    run("rollout status deployment/web --timeout=120s", "successfully rolled out"),
    run(
        "rollout history deployment/web",
        "REVISION",
        re.compile(r"^1 +<none>$", re.MULTILINE),
        re.compile(r"^2 +the second$", re.MULTILINE),
    ),
    same("rollout undo deployment/web", "deployment.apps/web rolled back"),
    same(IMAGE, "nginx:1"),
    run("rollout status deployment/web --timeout=120s", "successfully rolled out"),
    same("rollout undo deployment/web --to-revision=2", "deployment.apps/web rolled back"),
    same(IMAGE, "nginx:2"),
    same("rollout pause deployment/web", "deployment.apps/web paused"),
    same("set image deployment/web app=nginx:4", "deployment.apps/web image updated"),
    same("rollout resume deployment/web", "deployment.apps/web resumed"),
    same(
        "rollout restart deployment/web statefulset/db", "deployment.apps/web restarted\nstatefulset.apps/db restarted"
    ),
    run("rollout status deployment/web --timeout=120s", "successfully rolled out"),
    run("rollout status sts/db --timeout=120s", "complete"),
    eventually("get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}", "nginx:4 nginx:4"),
    # Scaling.
    same("scale deployment/web --replicas=4", "deployment.apps/web scaled"),
    same("scale deployment/web --current-replicas=4 --replicas=1", "deployment.apps/web scaled"),
    same("wait deployment/web --for=jsonpath={.status.replicas}=1 --timeout=120s", "deployment.apps/web condition met"),
    same("scale sts db --replicas=1", "statefulset.apps/db scaled"),
    eventually("get pods -l app=db -o name", "pod/db-0"),
    same(
        "get deployment web --subresource=scale -o jsonpath='{.kind} {.spec.replicas} {.status.selector}'",
        "Scale 1 app=web",
    ),
    same(
        'patch deployment web --subresource=scale --type=merge -p \'{"spec":{"replicas":3}}\' '
        "-o jsonpath={.spec.replicas}",
        "3",
    ),
    same(
        "autoscale deployment web --min=1 --max=5 --cpu-percent=80",
        "horizontalpodautoscaler.autoscaling/web autoscaled",
    ),
    fail("scale ds/agent --replicas=2", "the server could not find the requested resource"),
    # Describing.
    run(
        "describe deployment/web sts/db pvc/data-db-0",
        *("3 desired", "NewReplicaSet:", "nginx:4", "Volume Claims:"),
        re.compile(r"^Pods Status: +1 Running / 0 Waiting", re.MULTILINE),
        re.compile(r"^Status: +Bound$", re.MULTILINE),
    ),
    # Nodes.
    run("label nodes --all disk=ssd", "labeled"),
    run(
        "drain -l disk=ssd --ignore-daemonsets --delete-emptydir-data --force --timeout=120s",
        "cordoned",
        "evicting pod",
        "drained",
        re.compile("ignoring DaemonSet-managed Pods"),
    ),
    eventually("get pods -l app=agent -o jsonpath={.items[*].status.phase}", "Running"),
    run("uncordon -l disk=ssd", "uncordoned"),
    eventually("get deployment web -o jsonpath={.status.readyReplicas}", "3"),
]
