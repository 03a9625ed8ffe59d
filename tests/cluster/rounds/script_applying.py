"""Server-side apply: who owns what, conflicts, and how they are resolved."""

from __future__ import annotations

from tests.cluster.rounds.scripts import fail, same

CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: shared}, data: {%s}}"
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [%s]}
"""

STEPS = [
    same("apply --server-side -f -", "configmap/shared serverside-applied", stdin=CONFIG % "a: '1', b: '1'"),
    same(
        "apply --server-side -f - -o "
        "jsonpath='{.metadata.managedFields[*].manager} {.metadata.managedFields[*].operation}'",
        "kubectl Apply",
        stdin=CONFIG % "a: '1', b: '1'",
    ),
    same(
        "apply --server-side --field-manager=other -f - -o jsonpath={.data}",
        '{"a":"1","b":"1","c":"1"}',
        stdin=CONFIG % "c: '1'",
    ),
    fail(
        "apply --server-side --field-manager=other -f -",
        'conflict with "kubectl"',
        ".data.a",
        "--force-conflicts",
        stdin=CONFIG % "a: '2', c: '1'",
    ),
    same(
        "apply --server-side --field-manager=other -f - --dry-run=server --force-conflicts -o jsonpath={.data.a}",
        "2",
        stdin=CONFIG % "a: '2', c: '1'",
    ),
    same(
        "apply --server-side --field-manager=other --force-conflicts -f - -o jsonpath={.data}",
        '{"a":"2","b":"1","c":"1"}',
        stdin=CONFIG % "a: '2', c: '1'",
    ),
    same(
        "apply --server-side --field-manager=other -f - -o jsonpath={.data}",
        '{"a":"2","b":"1"}',
        stdin=CONFIG % "a: '2'",
    ),
    fail("apply --server-side -f -", 'conflict with "other": .data.a', stdin=CONFIG % "a: '1', b: '1'"),
    same("apply --server-side -f -", "configmap/shared serverside-applied", stdin=CONFIG % "b: '1'"),
    same('patch cm shared --type=merge -p \'{"data":{"b":"5"}}\' --field-manager=patcher', "configmap/shared patched"),
    fail("apply --server-side -f -", 'conflict with "patcher"', ".data.b", stdin=CONFIG % "b: '1'"),
    fail("diff --server-side --force-conflicts -f -", '-  b: "5"', '+  b: "1"', stdin=CONFIG % "b: '1'"),
    same("apply --server-side -f - --force-conflicts -o jsonpath={.data.b}", "1", stdin=CONFIG % "b: '1'"),
    same(
        "apply --server-side --field-manager=one -f -",
        "deployment.apps/web serverside-applied",
        stdin=DEPLOYMENT % "{name: app, image: 'app:1'}",
    ),
    same(
        "apply --server-side --field-manager=two -f - -o jsonpath={.spec.template.spec.containers[*].name}",
        "app side",
        stdin=DEPLOYMENT % "{name: side, image: 'side:1'}",
    ),
    same(
        "apply --server-side --field-manager=two -f - -o jsonpath={.spec.template.spec.containers[*].name}",
        "app next",
        stdin=DEPLOYMENT % "{name: next, image: 'next:1'}",
    ),
    same("apply -f -", "configmap/plain created", stdin="{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}"),
    same(
        "apply --server-side -f -",
        "configmap/plain serverside-applied",
        stdin="{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}, data: {x: '1'}}",
    ),
]
