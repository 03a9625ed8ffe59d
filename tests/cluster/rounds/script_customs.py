"""Custom resources: their definitions, columns, validation, and the subresources ``status`` and ``scale``."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import eventually, fail, run, same, see, start

CRONTAB = "{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: %s}, spec: {%s}}"
PATCH = "patch crontab one --type=merge -p"
FREE = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: frees.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: frees, kind: Free}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: string}}}
"""
FREES = """
apiVersion: v1
kind: List
items:
- {apiVersion: example.com/v1, kind: Free, metadata: {name: a}, spec: {x: {y: 1}}}
- {apiVersion: example.com/v1, kind: Free, metadata: {name: b}, spec: {x: {y: 1}}}
"""

STEPS = [
    same("apply -f crd.yaml", "customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com created"),
    same(
        "wait crd/crontabs.stable.example.com --for=condition=Established --timeout=120s",
        "customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com condition met",
    ),
    run(
        "api-resources --api-group=stable.example.com",
        re.compile(r"^crontabs +ct +stable.example.com/v1 +true +CronTab$", re.MULTILINE),
    ),
    run("explain ct.spec.schedule", "FIELD: schedule <string>", "When to run it"),
    run("explain ct.spec --output=plaintext-openapiv2", "When to run it", "How much"),  # also of nullable fields
    run("get ct", "No resources found in default namespace."),
    same("create -f -", "crontab.stable.example.com/one created", stdin=CRONTAB % ("one", "schedule: '* * * * *'")),
    run(
        "get ct -o wide",
        re.compile(r"^NAME +SCHEDULE +REPLICAS +READY +AGE$", re.MULTILINE),
        re.compile(r"^one +\* \* \* \* \* +1 +\d+s$", re.MULTILINE),
    ),
    same("get crontabs.v1.stable.example.com -o name", "crontab.stable.example.com/one"),
    same("get stable-things -o name", "crontab.stable.example.com/one"),
    # Validation.
    fail("create -f -", 'The CronTab "bad" is invalid', "spec.schedule: Required value", stdin=CRONTAB % ("bad", "")),
    fail(
        "create -f -",
        'strict decoding error: unknown field "spec.extra"',
        stdin=CRONTAB % ("bad", "schedule: x, extra: 1"),
    ),
    run(
        "create --validate=warn -f -",
        'Warning: unknown field "spec.extra"',
        "crontab.stable.example.com/two created",
        stdin=CRONTAB % ("two", "schedule: x, extra: 1"),
    ),
    same(
        "create --validate=ignore -f - -o jsonpath={.spec}",
        '{"policy":"Forbid","replicas":1,"schedule":"y"}',
        stdin=CRONTAB % ("three", "schedule: y, extra: 1, policy: Forbid"),
    ),
    # Changes.
    same(PATCH + ' \'{"spec":{"replicas":2}}\'', "crontab.stable.example.com/one patched"),
    fail(PATCH + ' \'{"spec":{"schedule":""}}\'', "spec.schedule", "at least 1 chars long"),
    fail('patch ct one -p \'{"spec":{"replicas":3}}\'', "application/strategic-merge-patch+json is not supported"),
    same(
        'patch ct one --type=json -p \'[{"op":"replace","path":"/spec/replicas","value":3}]\' -o jsonpath='
        "{.spec.replicas}",
        "3",
    ),
    same("KUBE_EDITOR='sed -i s/replicas:.*/replicas:\\ 7/' edit ct one", "crontab.stable.example.com/one edited"),
    same(
        "label ct one two --overwrite group=x",
        "crontab.stable.example.com/one labeled\ncrontab.stable.example.com/two labeled",
    ),
    same("get ct -l group=x -o custom-columns=N:.metadata.name,R:.spec.replicas", "N R\none 7\ntwo 1"),
    same("get ct --field-selector=spec.policy=Forbid -o name", "crontab.stable.example.com/three"),
    # The status.
    same(PATCH + ' \'{"status":{"ready":true}}\'', "crontab.stable.example.com/one patched (no change)"),
    same(
        PATCH + ' \'{"status":{"ready":true,"replicas":7,"selector":"a=b"},"spec":{"replicas":1}}\''
        " --subresource=status",
        "crontab.stable.example.com/one patched",
    ),
    same("get ct one -o jsonpath='{.status.ready} {.spec.replicas} {.metadata.generation}'", "true 7 4"),
    same(
        "wait ct/one --for=jsonpath={.status.ready}=true --timeout=120s", "crontab.stable.example.com/one condition met"
    ),
    same(
        PATCH + ' \'{"status":{"conditions":[{"type":"OK","status":"True"}]}}\' --subresource=status',
        "crontab.stable.example.com/one patched",
    ),
    same("wait ct/one --for=condition=OK --timeout=120s", "crontab.stable.example.com/one condition met"),
    # The scale.
    same("scale ct one --replicas=4", "crontab.stable.example.com/one scaled"),
    same(
        "get ct one --subresource=scale -o jsonpath='{.kind} {.spec.replicas} {.status.replicas} {.status.selector}'",
        "Scale 4 7 a=b",
    ),
    # Descriptions, watches, the end.
    run("describe ct one", "API Version:  stable.example.com/v1", "Kind:         CronTab", "Replicas:  4"),
    start("get ct -w --no-headers", "two"),
    same("delete ct two", 'crontab.stable.example.com "two" deleted'),
    same("create -f -", "crontab.stable.example.com/five created", stdin=CRONTAB % ("five", "schedule: five")),
    see("get ct -w --no-headers", "two", "five"),
    same(
        "delete crd crontabs.stable.example.com",
        'customresourcedefinition.apiextensions.k8s.io "crontabs.stable.example.com" deleted',
    ),
    fail("get --raw /apis/stable.example.com/v1/crontabs", "the server could not find the requested resource"),
    fail("get ct", "the server could not find the requested resource"),  # it is in the caches of kubectl yet
    same("apply -f crd.yaml", "customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com created"),
    run("wait crd --all --for=condition=Established --timeout=120s", "condition met"),
    eventually("get crontabs.stable.example.com -o name", ""),
    # Lists of anything.
    same("create -f -", "customresourcedefinition.apiextensions.k8s.io/frees.example.com created", stdin=FREE),
    run("wait crd --all --for=condition=Established --timeout=120s", "condition met"),
    run("explain free", re.compile(r"known\s+<string>")),
    same("apply -f -", "free.example.com/a created\nfree.example.com/b created", stdin=FREES),
    same("apply --validate=strict -f -", "free.example.com/a unchanged\nfree.example.com/b unchanged", stdin=FREES),
    same(
        "apply --server-side --force-conflicts -f -",
        "free.example.com/a serverside-applied\nfree.example.com/b serverside-applied",
        stdin=FREES,
    ),
]
