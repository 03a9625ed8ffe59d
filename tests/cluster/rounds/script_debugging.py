"""Debugging of pods in ephemeral containers and in copies, and of nodes in pods; how pods are run."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import fail, run, same

EPHEMERAL = "{range .spec.ephemeralContainers[*]}{.name} {.image} {.targetContainerName};{end}"

STEPS = [
    same("run web --image=nginx:1 --labels=app=web", "pod/web created"),
    same("wait pod/web --for=condition=Ready --timeout=120s", "pod/web condition met"),
    run("debug web --image=busybox --profile=general --attach=false", "Defaulting debug container name to debugger-"),
    run(
        "debug web --image=tools:1 --container=tools --target=web --profile=netadmin --attach=false -- sleep 1",
        'Targeting container "web"',
    ),
    run(f"get pod web -o jsonpath='{EPHEMERAL}'", re.compile(r"^debugger-\w+ busybox ;tools tools:1 web;$")),
    run("describe pod web", "Ephemeral Containers:", "tools:1"),
    fail(
        "debug web --image=other --container=tools --profile=general --attach=false",
        'existing ephemeral containers "tools" may not be changed',
    ),
    fail("debug absent --image=busybox --profile=general --attach=false", 'pods "absent" not found'),
    same(
        "patch pod web --subresource=ephemeralcontainers --type=strategic -p "
        '\'{"spec":{"ephemeralContainers":[{"name":"late","image":"late:1"}]}}\'',
        "pod/web patched",
    ),
    fail(
        'patch pod web --type=strategic -p \'{"spec":{"ephemeralContainers":[{"name":"no","image":"no:1"}]}}\'',
        'The Pod "web" is invalid',
    ),
    run(
        "debug web --image=busybox --profile=general --copy-to=copy --share-processes --attach=false",
        "Defaulting debug container name to debugger-",
    ),
    same(
        "get pod copy -o jsonpath='{.spec.shareProcessNamespace} {.spec.containers[*].image}'", "true nginx:1 busybox"
    ),
    run("debug web --image=busybox --profile=restricted --copy-to=strict --container=extra --attach=false"),
    same(
        "get pod strict -o jsonpath='{.spec.containers[*].name} {.spec.containers[1].securityContext.runAsNonRoot}'",
        "web extra true",
    ),
    run("debug web --profile=general --copy-to=other --set-image=*=nginx:2 --keep-labels --attach=false"),
    same("get pod other -o jsonpath='{.spec.containers[*].image} {.metadata.labels.app}'", "nginx:2 web"),
    fail("debug web --image=busybox --profile=general --copy-to=copy --attach=false", 'pods "copy" already exists'),
    run(
        "debug node/kopf-node --image=busybox --profile=general --attach=false",
        re.compile("Creating debugging pod node-debugger-kopf-node-.* with container debugger on node kopf-node"),
    ),
    run("debug node/kopf-node --image=busybox --profile=sysadmin --attach=false", "Creating debugging pod"),
    same(
        "get pods --field-selector=spec.nodeName=kopf-node -o "
        "jsonpath='{.items[?(@.spec.hostPID)].spec.volumes[?(@.name==\"host-root\")].hostPath.path}'",
        "/ /",
    ),
    same("get pods -o jsonpath='{.items[?(@.spec.hostPID)].spec.containers[*].securityContext.privileged}'", "true"),
    fail("debug node/absent --image=busybox --profile=general --attach=false", 'nodes "absent" not found'),
    same(
        "get pods --field-selector=spec.hostNetwork=false -o name",
        "pod/copy\npod/other\npod/strict\npod/web",
    ),
    fail("run two --image=", "--image is required"),
    same("run two --image=busybox --expose --port=80", "service/two created\npod/two created"),
]
