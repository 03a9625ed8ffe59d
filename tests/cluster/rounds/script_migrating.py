"""From client-side to server-side apply, and back; several managers; sets of what was applied together."""

from __future__ import annotations

from tests.cluster.rounds.scripts import fail, run, same

CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {%s}}"
LABELED = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {set: mine}}}"
MANAGERS = "get cm plan -o jsonpath='{range .metadata.managedFields[*]}{.manager} {.operation}{\"\\n\"}{end}'"
DATA = "get cm plan -o jsonpath={.data}"

STEPS = [
    # The manager of the client-side apply hands its fields over to the server-side one.
    same("apply -f -", "configmap/plan created", stdin=CONFIG % ("plan", "a: '1', b: '1'")),
    same(MANAGERS, "kubectl-client-side-apply Update"),
    same("apply --server-side -f -", "configmap/plan serverside-applied", stdin=CONFIG % ("plan", "a: '2'")),
    same(DATA, '{"a":"2"}'),
    same(MANAGERS, "kubectl Apply\nkubectl-last-applied Apply"),
    run("apply view-last-applied cm/plan -o json", '"a": "2"', absent=['"b"']),
    same("apply --server-side -f -", "configmap/plan serverside-applied", stdin=CONFIG % ("plan", "a: '2', c: '1'")),
    same(DATA, '{"a":"2","c":"1"}'),
    run("apply view-last-applied cm plan", 'c: "1"'),
    # And back: what is changed so is taken over, what is not in the manifest goes.
    same("apply -f -", "configmap/plan configured", stdin=CONFIG % ("plan", "a: '3', d: '1'")),
    same(DATA, '{"a":"3","d":"1"}'),
    same(MANAGERS, "kubectl-client-side-apply Update"),
    same("apply -f -", "configmap/plan unchanged", stdin=CONFIG % ("plan", "a: '3', d: '1'")),
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
        "apply --server-side --field-manager=ci --force-conflicts -f -",
        "configmap/plan serverside-applied",
        stdin=CONFIG % ("plan", "a: '4'"),
    ),
    same(DATA, '{"a":"4"}'),
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
        "apply --server-side --field-manager=ci -f -",
        "configmap/plan serverside-applied",
        stdin=CONFIG % ("plan", "e: '1'"),
    ),
    same(DATA, '{"a":"4","d":"1","e":"1"}'),
    fail(
        "apply -f - --force-conflicts",
        "--force-conflicts only works with --server-side",
        stdin=CONFIG % ("plan", "a: '1'"),
    ),
    fail(
        "apply -f - --server-side --dry-run=client",
        "--dry-run=client doesn't work with --server-side",
        stdin=CONFIG % ("plan", "a: '1'"),
    ),
    fail(
        "apply -f - --server-side --force",
        "--force cannot be used with --server-side",
        stdin=CONFIG % ("plan", "a: '1'"),
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
    fail(
        "apply set-last-applied -f -",
        "no last-applied-configuration annotation found on resource: bare",
        stdin=CONFIG % ("bare", "a: '2'"),
    ),
    same(
        "apply set-last-applied --create-annotation -f -",
        "configmap/bare configured",
        stdin=CONFIG % ("bare", "a: '2'"),
    ),
    run("apply view-last-applied cm bare", 'a: "2"'),
    same('KUBE_EDITOR=\'sed -i s/"2"/"9"/\' apply edit-last-applied cm bare', "configmap/bare edited"),
    run("apply view-last-applied cm bare", 'a: "9"'),
    same("get cm bare -o jsonpath={.data.a}", "2"),
    # Differences before they are made, in both ways.
    run("diff -f -", stdin=CONFIG % ("bare", "a: '2'")),
    fail("diff -f -", '-  a: "2"', '+  a: "3"', stdin=CONFIG % ("bare", "a: '3'")),
    fail("diff --server-side -f -", '-  a: "2"', '+  a: "3"', stdin=CONFIG % ("bare", "a: '3'")),
    fail(
        "diff --server-side --field-manager=ci -f -",
        'conflict with "kubectl"',
        code=2,  # not a mere difference
        stdin=CONFIG % ("bare", "a: '3'"),
    ),
    fail("diff -f -", "+  name: fresh", stdin=CONFIG % ("fresh", "a: '1'")),
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
    fail(
        "apply --prune -f -",
        "all resources selected for prune without explicitly passing --all",
        stdin=LABELED % "second",
    ),
    run(
        "KUBECTL_APPLYSET=true apply --prune --applyset=team -n default -f -",
        "configmap/third created",
        stdin=LABELED % "third",
    ),
    same(
        "get secret team -o jsonpath='{.metadata.annotations.applyset\\.kubernetes\\.io/contains-group-kinds}'",
        "ConfigMap",
    ),
    run("get cm third --show-labels", "applyset.kubernetes.io/part-of=applyset-"),
    run(
        "KUBECTL_APPLYSET=true apply --prune --applyset=team -n default -f -",
        "configmap/fourth created",
        "configmap/third pruned",
        stdin=LABELED % "fourth",
    ),
    same("get cm -l applyset.kubernetes.io/part-of -o name", "configmap/fourth"),
    run(
        "KUBECTL_APPLYSET=true apply --prune --server-side --applyset=configmaps/crew -n default -f -",
        "configmap/fifth serverside-applied",
        stdin=LABELED % "fifth",
    ),
    same(
        "get cm crew -o jsonpath='{.metadata.annotations.applyset\\.kubernetes\\.io/contains-group-kinds}'", "ConfigMap"
    ),
    fail(
        "KUBECTL_APPLYSET=true apply --prune --applyset=team -l set=mine -n default -f -",
        "--selector is incompatible with --applyset",
        stdin=LABELED % "fourth",
    ),
]
