"""From client-side to server-side apply, and back; several managers; sets of what was applied together."""

from __future__ import annotations

from tests.cluster.rounds.scripts import fail, run, same

CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {%s}}"
LABELED = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {set: mine}}}"
PLAN = "{apiVersion: v1, kind: ConfigMap, metadata: {name: plan, labels: {%s}}, data: {%s}}"
VIEW = (
    "get cm plan --show-managed-fields -o go-template='{{.data}} {{.metadata.labels}}{{range .metadata.managedFields}}"
    ' {{.manager}} {{.operation}}{{range $name, $_ := index .fieldsV1 "f:data"}} {{$name}}{{end}}{{end}}\''
)
DATA = "get cm plan -o jsonpath={.data}"

STEPS = [
    # The manager of the client-side apply hands its fields over to the server-side one.
    same("apply -f -", "configmap/plan created", stdin=PLAN % ("a: x, b: x", "a: '1', b: '1'")),
    same(VIEW, "map[a:1 b:1] map[a:x b:x] kubectl-client-side-apply Update . f:a f:b"),
    same(
        "apply --server-side -f -", "configmap/plan serverside-applied", stdin=PLAN % ("a: x, c: x", "a: '2', c: '3'")
    ),
    same(VIEW, "map[a:2 c:3] map[a:x c:x] kubectl Apply f:a f:c kubectl-last-applied Apply"),
    run("apply view-last-applied cm/plan -o json", '"a": "2"', '"c": "3"', '"c": "x"', absent=['"b"']),
    # And back: what is changed so is taken over, what is not in the manifest goes.
    same("apply -f -", "configmap/plan configured", stdin=PLAN % ("a: x, d: x", "a: '3', d: '1'")),
    same(VIEW, "map[a:3 d:1] map[a:x d:x] kubectl Apply kubectl-client-side-apply Update f:a f:d"),
    same("apply -f -", "configmap/plan unchanged", stdin=PLAN % ("a: x, d: x", "a: '3', d: '1'")),
    # The changes of the same kubectl are no conflict.
    same(
        "apply --server-side -f -", "configmap/plan serverside-applied", stdin=PLAN % ("a: x, e: x", "a: '6', e: '5'")
    ),
    same(VIEW, "map[a:6 e:5] map[a:x e:x] kubectl Apply f:a f:e kubectl-last-applied Apply"),
    run("apply view-last-applied cm/plan -o json", '"a": "6"', '"e": "5"', '"e": "x"', absent=['"d"']),
    same("apply -f -", "configmap/plan configured", stdin=CONFIG % ("plan", "a: '3', d: '1'")),
    # The server lets only kubectl itself take over what kubectl has applied: others have conflicts. When forced, it is
    # kubectl who hands over to them everything that was applied before.
    fail(
        "apply --server-side --field-manager=ci -f -",
        "Apply failed with 1 conflict",
        'conflict with "kubectl-client-side-apply" using v1: .data.a',
        "--force-conflicts",
        stdin=CONFIG % ("plan", "a: '4'"),
    ),
    same(
        "apply --server-side --field-manager=ci --force-conflicts -f - -o jsonpath={.data}",
        '{"a":"4"}',
        stdin=CONFIG % ("plan", "a: '4'"),
    ),
    fail(
        "apply --server-side -f -",
        "Apply failed with 1 conflict",
        'conflict with "ci": .data.a',
        stdin=CONFIG % ("plan", "a: '5', d: '1'"),
    ),
    same(
        "apply --server-side -f -", "configmap/plan serverside-applied", stdin=CONFIG % ("plan", "a: '4', d: '1'")
    ),  # the same values are shared
    same(
        "apply --server-side --field-manager=ci -f - -o jsonpath={.data}",
        '{"a":"4","d":"1","e":"1"}',
        stdin=CONFIG % ("plan", "e: '1'"),
    ),
    # What was not applied before.
    same("create configmap made --from-literal=a=1 --field-manager=creator", "configmap/made created"),
    run(
        "apply -f -",
        "Warning: resource configmaps/made is missing the kubectl.kubernetes.io/last-applied-configuration annotation",
        "will be patched automatically",
        "configmap/made configured",
        stdin=CONFIG % ("made", "a: '1'"),
    ),
    same("create configmap bare --from-literal=a=1", "configmap/bare created"),
    same("get cm bare --show-managed-fields -o jsonpath='{.metadata.managedFields[0].manager}'", "kubectl-create"),
    fail(
        "apply --server-side -f -",
        'conflict with "kubectl-create" using v1: .data.a',
        stdin=CONFIG % ("bare", "a: '2'"),
    ),
    same(
        "apply --server-side -f - --force-conflicts",
        "configmap/bare serverside-applied",
        stdin=CONFIG % ("bare", "a: '2'"),
    ),
    same("apply view-last-applied cm bare", ""),
    same(
        "apply set-last-applied --create-annotation -f -",
        "configmap/bare configured",
        stdin=CONFIG % ("bare", "a: '2'"),
    ),
    run("apply view-last-applied cm bare", 'a: "2"'),
    # Differences before they are made, in both ways.
    fail("diff --server-side -f -", '-  a: "2"', '+  a: "3"', stdin=CONFIG % ("bare", "a: '3'")),
    fail(
        "diff --server-side --field-manager=ci -f -",
        'conflict with "kubectl"',
        code=2,  # not a mere difference
        stdin=CONFIG % ("bare", "a: '3'"),
    ),
    fail(
        "KUBECTL_EXTERNAL_DIFF='diff -u' diff --show-managed-fields --server-side -f -",
        '+  a: "3"',
        stdin=CONFIG % ("bare", "a: '3'"),
    ),
    same("get cm bare -o jsonpath={.data.a}", "2"),
    # What is applied together, is pruned together.
    same(
        "apply --prune -l set=mine --prune-allowlist=core/v1/ConfigMap -f -",
        "configmap/first created",
        stdin=LABELED % "first",
    ),
    same(
        "apply --prune -l set=mine --prune-allowlist=core/v1/ConfigMap --dry-run=server -f -",
        "configmap/second created (server dry run)\nconfigmap/first pruned (server dry run)",
        stdin=LABELED % "second",
    ),
    same(
        "apply --prune -l set=mine --prune-allowlist=core/v1/ConfigMap -f -",
        "configmap/second created\nconfigmap/first pruned",
        stdin=LABELED % "second",
    ),
    run(
        "KUBECTL_APPLYSET=true apply --prune --applyset=team -n default -f -",
        "configmap/third created",
        stdin=LABELED % "third",
    ),
    run("get cm third --show-labels", "applyset.kubernetes.io/part-of=applyset-"),
    run(
        "KUBECTL_APPLYSET=true apply --prune --applyset=team -n default -f -",
        "configmap/fourth created",
        "configmap/third pruned",
        stdin=LABELED % "fourth",
    ),
    same("get cm -l applyset.kubernetes.io/part-of -o name", "configmap/fourth"),
]
