"""All ways to change an object: apply, diff, replace, edit, patches of every type, labels, annotations, ``set``."""

from __future__ import annotations

from tests.cluster.rounds.scripts import eventually, fail, run, same

CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {a: b}}, data: {x: '%s'%s}}"
SERVICE = "{apiVersion: v1, kind: Service, metadata: {name: front}, spec: {selector: {app: web}, ports: [%s]}}"
TEMPLATE = "{apiVersion: v1, kind: PodTemplate, metadata: {name: p}, template: {spec: {containers: [%s]}}}"

STEPS = [
    # Apply, and compare with what is there.
    same("apply -f -", "configmap/settings created", stdin=CONFIG % (1, ", z: '1'")),
    same("apply -f -", "configmap/settings unchanged", stdin=CONFIG % (1, ", z: '1'")),
    run("diff -f -", stdin=CONFIG % (1, ", z: '1'")),
    fail("diff -f -", '-  x: "1"', '+  x: "2"', '-  z: "1"', absent=["resourceVersion"], stdin=CONFIG % (2, "")),
    same("apply -f - --dry-run=server", "configmap/settings configured (server dry run)", stdin=CONFIG % (2, "")),
    same("apply -f - -o jsonpath={.data}", '{"x":"2"}', stdin=CONFIG % (2, "")),
    same("apply -f - -o jsonpath={.data.x}", "3", stdin=CONFIG % (3, "")),
    same(
        "apply -f - --prune -l a=b --prune-allowlist=core/v1/ConfigMap",
        "configmap/other created\nconfigmap/settings pruned",
        stdin="{apiVersion: v1, kind: ConfigMap, metadata: {name: other, labels: {a: b}}}",
    ),
    # Keyed lists of built-in kinds.
    same("apply -f -", "service/front created", stdin=SERVICE % "{name: a, port: 80}, {name: b, port: 81}"),
    same(
        "apply -f - -o jsonpath={.spec.ports[*].name}",
        "b c",
        stdin=SERVICE % "{name: b, port: 81}, {name: c, port: 82}",
    ),
    same(
        'patch svc front -p \'{"spec":{"ports":[{"port":82,"name":"d"}]}}\' -o jsonpath=\'{.spec.ports[*].port}\'',
        "81 82",
    ),
    same(
        'patch svc front -p \'{"spec":{"ports":[{"port":83,"name":"e"}]}}\' -o jsonpath={.spec.ports[*].port}',
        "83 81 82",
    ),  # new items come first
    same(
        'patch svc front -p \'{"spec":{"ports":[{"port":81,"$patch":"delete"}]}}\' -o jsonpath={.spec.ports[*].name}',
        "e d",
    ),
    fail('patch svc front -p \'{"spec":{"ports":[{"name":"x"}]}}\'', "does not contain declared merge key: port"),
    same("apply -f -", "podtemplate/p created", stdin=TEMPLATE % "{name: a, image: x}, {name: b, image: x}"),
    fail(
        "diff -f -",
        "image: z",
        absent=["+  resourceVersion", "-  resourceVersion"],
        stdin=TEMPLATE % "{name: b, image: z}, {name: a, image: x}",
    ),
    same(
        "apply -f - -o jsonpath='{range .template.spec.containers[*]}{.name}={.image} {end}'",
        "b=z a=x",
        stdin=TEMPLATE % "{name: b, image: z}, {name: a, image: x}",
    ),
    # The other types of patches.
    same('patch cm other --type=merge -p \'{"data":{"a":"1","b":"2"}}\'', "configmap/other patched"),
    same('patch cm other --type=merge -p \'{"data":{"a":null}}\' -o jsonpath={.data}', '{"b":"2"}'),
    same('patch cm other --type=merge -p \'{"data":{"b":"2"}}\'', "configmap/other patched (no change)"),
    same(
        'patch cm other --type=json -p \'[{"op":"test","path":"/data/b","value":"2"},'
        '{"op":"add","path":"/data/c","value":"3"}]\' -o jsonpath={.data.c}',
        "3",
    ),
    # Labels and annotations.
    same("label cm other color=red", "configmap/other labeled"),
    same("label cm other color=blue --overwrite", "configmap/other labeled"),
    same("label cm -l color=blue color-", "configmap/other unlabeled"),
    same("annotate cm other note='some text'", "configmap/other annotated"),
    fail("annotate cm other more=text --resource-version=1", "the object has been modified"),
    # The editor, and the whole object.
    same("KUBE_EDITOR='sed -i s/c:.*/c:\\ edited/' edit cm other", "configmap/other edited"),
    same("get cm other -o jsonpath={.data.c}", "edited"),
    same(
        "replace -f - -o jsonpath='{.data}{.metadata.labels}'",
        '{"r":"1"}',
        stdin="{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {r: '1'}}",
    ),
    same(
        "replace --force -f -",
        'configmap "other" deleted\nconfigmap/other replaced',
        stdin="{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {r: '2'}}",
    ),
    # Convenient changes of parts.
    run("apply -f workloads.yaml", "deployment.apps/web created", "statefulset.apps/db created"),
    same("set image deployment/web app=nginx:2", "deployment.apps/web image updated"),
    same("set env deployment/web MODE=fast", "deployment.apps/web env updated"),
    same(
        "set resources deployment web --limits=cpu=200m,memory=64Mi",
        "deployment.apps/web resource requirements updated",
    ),
    same(
        "get deployment web -o jsonpath='{.spec.template.spec.containers[0]['\"'\"'image'\"'\"','\"'\"'env'\"'\"']}'",
        'nginx:2 [{"name":"MODE","value":"fast"}]',
    ),
    eventually("get deployment web -o jsonpath='{.metadata.generation} {.status.observedGeneration}'", "4 4"),
    # Whole directories.
    same("apply -k kustomize", "configmap/dev-shared created\nservice/dev-front created"),
    same("get svc,cm -l origin=kustomize -o name", "service/dev-front\nconfigmap/dev-shared"),
    same("delete -k kustomize", 'configmap "dev-shared" deleted\nservice "dev-front" deleted'),
]
