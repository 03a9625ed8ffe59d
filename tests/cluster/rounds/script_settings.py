"""The configuration of ``kubectl``, and the flags that all commands have."""

from __future__ import annotations

import re

from tests.cluster.rounds.scripts import fail, run, same

STRANGE = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, spec: {a: '1'}}"

STEPS = [
    # Contexts, users, clusters.
    run("config current-context", re.compile(r"^\S+$")),
    run("config get-clusters", "NAME"),
    run("config get-users", "NAME"),
    same("config set-credentials stranger --token=wrong", 'User "stranger" set.'),
    same("config set-credentials nobody --username=u --password=p", 'User "nobody" set.'),
    run("config set-context strange --cluster=kopf --user=stranger --namespace=lost", 'Context "strange" created.'),
    run("config get-contexts strange --no-headers", re.compile(r"strange +kopf +stranger +lost")),
    same("config get-contexts -o name strange", "strange"),
    fail("config get-contexts absent", "context absent not found"),
    run("config set-cluster away --server=https://127.0.0.1:1 --insecure-skip-tls-verify", 'Cluster "away" set.'),
    run("config set-context away --cluster=away --user=stranger", "created"),
    fail("--context=away get pods", "connection", "refused"),
    fail("--context=away version --request-timeout=1s", "refused"),
    fail("get pods --user=stranger", re.compile("Unauthorized|must be logged in")),
    fail("get pods --user=absent", 'auth info "absent" does not exist'),
    fail("get pods --context=absent", "context was not found for specified context: absent"),
    fail("get pods --cluster=absent", 'no server found for cluster "absent"'),
    same("config set users.stranger.token other", 'Property "users.stranger.token" set.'),
    same("config view --raw -o jsonpath='{.users[?(@.name==\"stranger\")].user.token}'", "other"),
    same("config unset users.stranger", 'Property "users.stranger" unset.'),
    run("config delete-user nobody", "deleted user nobody from"),
    same("config rename-context strange weird", 'Context "strange" renamed to "weird".'),
    run("config delete-context weird", "deleted context weird from"),
    run("config delete-cluster away", "deleted cluster away from"),
    fail("config delete-context weird", "cannot delete context weird, not in"),
    fail("config use-context weird", 'no context exists with the name: "weird"'),
    # Tokens and certificates instead of the configuration.
    same("create sa robot", "serviceaccount/robot created"),
    same(
        "create clusterrolebinding robot --clusterrole=view --serviceaccount=default:robot",
        "clusterrolebinding.rbac.authorization.k8s.io/robot created",
    ),
    run(
        "create token robot --duration=30m -o jsonpath={.status.expirationTimestamp}", re.compile(r"^\d{4}-\d\d-\d\dT")
    ),
    run("create token robot --audience=vault -o json", '"audiences": [', '"vault"', '"kind": "TokenRequest"'),
    fail(
        "create token robot --duration=1s",
        "spec.expirationSeconds: Invalid value: 1",
        "may not specify a duration less than 10 minutes",
    ),
    fail("create token robot --bound-object-kind=Node --bound-object-name=absent", 'nodes "absent" not found'),
    # Verbosity and other flags of all commands.
    run("get cm -v=6", re.compile(r"GET.*https://127.0.0.1:\d+/api/v1/namespaces/default/configmaps\?limit=500")),
    run(
        "get cm kube-root-ca.crt -v=8",
        "Accept: application/json;as=Table;v=v1;g=meta.k8s.io",
        re.compile("Response.*200 OK"),
    ),
    run("get cm -v=9 -o name", "curl -v -XGET", "kube-root-ca.crt"),
    fail("get cm absent -v=8", "404 Not Found", '"reason": "NotFound"', '"kind": "configmaps"'),
    run("get cm --server-print=false", re.compile(r"^NAME +AGE$", re.MULTILINE)),
    run("get cm --request-timeout=5s -o name", "configmap/kube-root-ca.crt"),
    fail("get cm --request-timeout=forever", "Invalid timeout value"),
    same("get cm --disable-compression -o name", "configmap/kube-root-ca.crt"),
    same("get cm --cache-dir=.other -o name", "configmap/kube-root-ca.crt"),
    same("-n kube-public get cm -o name", "configmap/kube-root-ca.crt"),
    fail(
        "get cm --as=jane --as-uid=7",
        'configmaps is forbidden: User "jane" cannot list resource "configmaps" in API '
        'group "" in the namespace "default"',
    ),
    same("auth whoami --as=jane --as-uid=7 -o jsonpath={.status.userInfo.uid}", "7"),
    run(
        "auth whoami --as=jane --as-group=a --as-group=b",
        re.compile(r"^Groups +\[a b system:authenticated\]$", re.MULTILINE),
    ),
    run("auth whoami -o yaml", "kind: SelfSubjectReview", "username: kubernetes-admin"),
    fail("create cm x --warnings-as-errors=maybe", "invalid argument"),
    fail("get endpoints --warnings-as-errors", "v1 Endpoints is deprecated in v1.33+", "1 warning received"),
    fail("create -f - --validate=strict", 'unknown field "spec"', stdin=STRANGE),
    run(
        "create -f - --validate=warn --warnings-as-errors=false",
        'Warning: unknown field "spec"',
        "configmap/x created",
        stdin=STRANGE,
    ),
    fail("create -f - --validate=maybe", 'invalid - validate option "maybe"', stdin=STRANGE),
    # What does not exist, and what is written wrong.
    fail("nosuch", 'unknown command "nosuch" for "kubectl"'),
    fail("plugin list", "unable to find any kubectl plugins in your PATH"),
    fail("get", "You must specify the type of resource to get"),
    fail("get cm -o nosuch", 'unable to match a printer suitable for the output format "nosuch"'),
    fail("get cm -o jsonpath='{.items[}'", "error parsing jsonpath"),
    fail("get cm -o go-template='{{.items'", "error parsing template"),
    fail("get cm a -l b=c", "name cannot be provided when a selector is specified"),
    fail("get cm/a secret", "there is no need to specify a resource type as a separate argument"),
    fail("get cm,nosuch", 'the server doesn\'t have a resource type "nosuch"'),
    fail("get -f nosuch.yaml", 'the path "nosuch.yaml" does not exist'),
    fail("get cm --raw /api", "--raw"),
    fail("get --raw /apis/nosuch", "the server could not find the requested resource"),
    fail("create -f -", "error validating data: kind not set", stdin="{apiVersion: v1, metadata: {name: x}}"),
    fail(
        "apply -f -",
        'no matches for kind "Nosuch" in version "v1"',
        "ensure CRDs are installed first",
        stdin="{apiVersion: v1, kind: Nosuch, metadata: {name: x}}",
    ),
    fail(
        "create -f - -n other",
        'the namespace from the provided object "default" does not match the namespace "other"',
        stdin="{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: default}}",
    ),
    fail("delete cm", "resource(s) were provided, but no name was specified"),
    fail("delete cm x --all", "name cannot be provided when a selector is specified"),
    fail("scale cm/kube-root-ca.crt --replicas=1", "the server could not find the requested resource"),
    fail("rollout status cm/kube-root-ca.crt", "no status viewer has been implemented for ConfigMap"),
    fail("rollout undo cm/kube-root-ca.crt", "no visitor method exists"),
    fail("rollout restart cm/kube-root-ca.crt", "restarting is not supported"),
    fail("autoscale deployment absent --max=1", 'deployments.apps "absent" not found'),
    fail("expose cm kube-root-ca.crt --port=1", "cannot expose a ConfigMap"),
    fail("wait cm/kube-root-ca.crt --for=nosuch", "unrecognized condition"),
    fail("explain nosuch", 'the server doesn\'t have a resource type "nosuch"'),
    fail("top node", "Metrics API not available"),
    fail("logs absent", 'pods "absent" not found'),
    fail("exec absent -- date", 'pods "absent" not found'),
    fail("port-forward absent 1", 'pods "absent" not found'),
    fail("cp absent:/x .", 'pods "absent" not found'),
]
