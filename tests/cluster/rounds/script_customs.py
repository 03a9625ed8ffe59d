"""Custom resources: their definitions, columns, validation, and the subresources ``status`` and ``scale``."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import eventually, fail, run, same, see, start

CRONTAB = "{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: %s}, spec: {%s}}"
PATCH = "patch crontab one --type=merge -p"

STEPS = [
    same("apply -f crd.yaml", "customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com created"),
    same(
        "wait crd/crontabs.stable.example.com --for=condition=Established --timeout=40s",
        "customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com condition met",
    ),
    same(
        "get crd crontabs.stable.example.com -o jsonpath='{.status.acceptedNames.kind} {.status.storedVersions}'",
        'CronTab ["v1"]',
    ),
    run(
        "api-resources --api-group=stable.example.com",
        re.compile(r"^crontabs +ct +stable.example.com/v1 +true +CronTab$", re.MULTILINE),
    ),
    run("explain crontab", "GROUP:      stable.example.com", "spec", "<Object>"),
    run("explain ct.spec.schedule", "FIELD: schedule <string>", "When to run it"),
    run("get ct", "No resources found in default namespace."),
    same("create -f -", "crontab.stable.example.com/one created", stdin=CRONTAB % ("one", "schedule: '* * * * *'")),
    run(
        "get ct",
        re.compile(r"^NAME +SCHEDULE +READY +AGE$", re.MULTILINE),
        re.compile(r"^one +\* \* \* \* \* +\d+s$", re.MULTILINE),
    ),
    run(
        "get ct -o wide",
        re.compile(r"^NAME +SCHEDULE +REPLICAS +READY +AGE$", re.MULTILINE),
        re.compile(r"^one +\* \* \* \* \* +1 +\d+s$", re.MULTILINE),
    ),
    same("get ct one -o jsonpath={.spec}", '{"replicas":1,"schedule":"* * * * *"}'),
    same("get crontabs.v1.stable.example.com -o name", "crontab.stable.example.com/one"),
    same("get stable-things -o name", "crontab.stable.example.com/one"),
    # Validation.
    fail("create -f -", 'The CronTab "bad" is invalid', "spec.schedule: Required value", stdin=CRONTAB % ("bad", "")),
    fail(
        "create -f -",
        "spec.replicas: Invalid value: 99",
        "should be less than or equal to 10",
        stdin=CRONTAB % ("bad", "schedule: x, replicas: 99"),
    ),
    fail(
        "create -f -",
        'spec.schedule: Invalid value: "integer"',
        "must be of type string",
        stdin=CRONTAB % ("bad", "schedule: 5"),
    ),
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
        "create --validate=ignore -f -",
        "crontab.stable.example.com/three created",
        stdin=CRONTAB % ("three", "schedule: y, extra: 1, policy: Forbid"),
    ),
    same("get ct three -o jsonpath={.spec}", '{"policy":"Forbid","replicas":1,"schedule":"y"}'),
    fail(
        "create -f -",
        'spec.policy: Unsupported value: "Maybe": supported values: "Allow", "Forbid"',
        stdin=CRONTAB % ("bad", "schedule: x, policy: Maybe"),
    ),
    fail(
        "create -f -",
        'no matches for kind "Nosuch" in version "stable.example.com/v1"',
        stdin="{apiVersion: stable.example.com/v1, kind: Nosuch, metadata: {name: x}}",
    ),
    fail(
        "create -f -",
        'no matches for kind "CronTab" in version "stable.example.com/v9"',
        stdin="{apiVersion: stable.example.com/v9, kind: CronTab, metadata: {name: x}}",
    ),
    # Changes.
    same(PATCH + ' \'{"spec":{"replicas":2}}\'', "crontab.stable.example.com/one patched"),
    same("get ct one -o jsonpath={.metadata.generation}", "2"),
    fail(PATCH + ' \'{"spec":{"schedule":""}}\'', "spec.schedule", "at least 1 chars long"),
    fail('patch ct one -p \'{"spec":{"replicas":3}}\'', "application/strategic-merge-patch+json is not supported"),
    same(
        'patch ct one --type=json -p \'[{"op":"replace","path":"/spec/replicas","value":3}]\' -o jsonpath='
        "{.spec.replicas}",
        "3",
    ),
    same(
        "apply --server-side -f -",
        "crontab.stable.example.com/four serverside-applied",
        stdin=CRONTAB % ("four", "schedule: z"),
    ),
    same("KUBE_EDITOR='sed -i s/replicas:.*/replicas:\\ 7/' edit ct one", "crontab.stable.example.com/one edited"),
    same(
        "label ct one two --overwrite group=x",
        "crontab.stable.example.com/one labeled\ncrontab.stable.example.com/two labeled",
    ),
    same("get ct -l group=x -o custom-columns=N:.metadata.name,R:.spec.replicas", "N R\none 7\ntwo 1"),
    same("get ct --field-selector=spec.policy=Forbid -o name", "crontab.stable.example.com/three"),
    fail("get ct --field-selector=spec.schedule=x", "field label not supported: spec.schedule"),
    # The status.
    same(PATCH + ' \'{"status":{"ready":true}}\'', "crontab.stable.example.com/one patched (no change)"),
    same(
        PATCH + ' \'{"status":{"ready":true,"replicas":7,"selector":"a=b"},"spec":{"replicas":1}}\''
        " --subresource=status",
        "crontab.stable.example.com/one patched",
    ),
    same("get ct one -o jsonpath='{.status.ready} {.spec.replicas} {.metadata.generation}'", "true 7 4"),
    same("get ct one --subresource=status -o jsonpath={.status.ready}", "true"),
    same(
        "wait ct/one --for=jsonpath={.status.ready}=true --timeout=40s", "crontab.stable.example.com/one condition met"
    ),
    same(
        PATCH + ' \'{"status":{"conditions":[{"type":"OK","status":"True"}]}}\' --subresource=status',
        "crontab.stable.example.com/one patched",
    ),
    same("wait ct/one --for=condition=OK --timeout=40s", "crontab.stable.example.com/one condition met"),
    fail("get ct one --subresource=nosuch", "the server could not find the requested resource"),
    # The scale.
    same("scale ct one --replicas=4", "crontab.stable.example.com/one scaled"),
    same("get ct one -o jsonpath={.spec.replicas}", "4"),
    same(
        "get ct one --subresource=scale -o jsonpath='{.kind} {.spec.replicas} {.status.replicas} {.status.selector}'",
        "Scale 4 7 a=b",
    ),
    fail("scale ct one --replicas=40", "spec.replicas", "should be less than or equal to 10"),
    fail("scale ct one --current-replicas=5 --replicas=1", "Expected replicas to be 5, was 4"),
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
    run("wait crd --all --for=condition=Established --timeout=40s", "condition met"),
    eventually("get crontabs.stable.example.com -o name", ""),
    fail(
        "apply -f -",
        "is invalid",
        "spec.versions",
        "Required value",
        stdin="{apiVersion: apiextensions.k8s.io/v1, "
        "kind: CustomResourceDefinition, metadata: {name: xs.example.com}, spec: {group: example.com, "
        "scope: Namespaced, names: {plural: xs, kind: X}, versions: []}}",
    ),
]
