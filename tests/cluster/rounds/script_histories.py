"""Revisions of daemon sets and stateful sets with the causes of their changes; replication controllers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.cluster.rounds.scripts import Step, eventually, run, same

SET = """
apiVersion: apps/v1
kind: %s
metadata: {name: web, annotations: {kubernetes.io/change-cause: "%s"}}
spec:
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "nginx:%d"}]}
"""
CONTROLLER = """
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec: {replicas: 2, template: {metadata: {labels: {app: old}}, spec: {containers: [{name: main, image: nginx}]}}}
"""


def live(kind: str) -> Sequence[Step]:
    """The cause of a change is what the annotation says then; an old revision comes back as the latest one."""
    what, name = f"{kind.lower()}/web", f"{kind.lower()}.apps/web"
    manifest = SET if kind == "StatefulSet" else SET.replace("  serviceName: web\n", "")

    def is_rolled_out(image: str) -> Sequence[Step]:
        return [
            run(f"rollout status {what} --timeout=120s", re.compile("rolled out|complete")),
            same("get pods -l app=web -o jsonpath={..spec.containers[0].image}", image),
        ]

    return [
        same("apply -f -", f"{name} created", stdin=manifest % (kind, "the first", 1)),
        *is_rolled_out("nginx:1"),
        same("apply -f -", f"{name} configured", stdin=manifest % (kind, "the second", 2)),
        *is_rolled_out("nginx:2"),
        same(f"rollout history {what}", f"{name}\nREVISION CHANGE-CAUSE\n1 the first\n2 the second"),
        run(f"rollout undo {what}", "rolled back"),
        *is_rolled_out("nginx:1"),
        run(f"rollout history {what}", re.compile(r"REVISION.*\n2 .*\n3 ")),
        same(f"delete {what}", f'{kind.lower()}.apps "web" deleted'),
        run("wait pod -l app=web --for=delete --timeout=120s"),
    ]


STEPS = [
    *live("DaemonSet"),
    *live("StatefulSet"),
    same("apply -f -", "replicationcontroller/old created", stdin=CONTROLLER),
    same(
        "wait rc/old --for=jsonpath={.status.readyReplicas}=2 --timeout=120s", "replicationcontroller/old condition met"
    ),
    same("scale rc/old --replicas=3", "replicationcontroller/old scaled"),
    same(
        "wait rc/old --for=jsonpath={.status.availableReplicas}=3 --timeout=120s",
        "replicationcontroller/old condition met",
    ),
    run("describe rc old", "3 current / 3 desired", "3 Running / 0 Waiting / 0 Succeeded / 0 Failed"),
    same("delete rc/old", 'replicationcontroller "old" deleted'),
    run("wait pod -l app=old --for=delete --timeout=120s"),
    eventually("get pods -o name", ""),
]
