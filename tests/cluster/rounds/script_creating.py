"""Imperative creation of everything that ``kubectl create``, ``run``, and ``expose`` know."""

from __future__ import annotations

from tests.cluster.rounds.scripts import eventually, fail, run, same

ALIENS = """
apiVersion: v1
kind: Pod
metadata: {name: x, alien: 1}
spec: {containers: [{name: a, image: x, alien: 1}]}
"""

STEPS = [
    same("create namespace team", "namespace/team created"),
    fail("create namespace UPPER", 'The Namespace "UPPER" is invalid', "metadata.name", "RFC 1123 label"),
    run("config set-context --current --namespace=team", "modified"),
    same(
        "create configmap settings --from-literal=a=1 --from-literal=b=two -o jsonpath={.data}", '{"a":"1","b":"two"}'
    ),
    same(
        "create secret generic access --from-literal=password=s3cret -o jsonpath='{.type} {.data.password}'",
        "Opaque czNjcmV0",
    ),
    same(
        "create secret docker-registry pull --docker-server=r.io --docker-username=u --docker-password=p "
        "-o jsonpath={.type}",
        "kubernetes.io/dockerconfigjson",
    ),
    same("create serviceaccount robot", "serviceaccount/robot created"),
    run("create token robot --duration=10m"),
    same(
        "create role reader --verb=get,list --resource=pods,pods/log", "role.rbac.authorization.k8s.io/reader created"
    ),
    same(
        "create rolebinding reading --role=reader --serviceaccount=team:robot",
        "rolebinding.rbac.authorization.k8s.io/reading created",
    ),
    same(
        "get role reader -o jsonpath={.rules}",
        '[{"apiGroups":[""],"resources":["pods","pods/log"],"verbs":["get","list"]}]',
    ),
    same(
        "get rolebinding reading -o jsonpath={.subjects}",
        '[{"kind":"ServiceAccount","name":"robot","namespace":"team"}]',
    ),
    same(
        "create priorityclass low --value=-100 --preemption-policy=Never -o jsonpath={.value}{.preemptionPolicy}",
        "-100Never",
    ),
    same(
        "create poddisruptionbudget budget --selector=app=web --min-available=1",
        "poddisruptionbudget.policy/budget created",
    ),
    same(
        "create deployment web --image=nginx:1.25 --replicas=2 --port=80 "
        "-o jsonpath={.spec.template.spec.containers[0].ports}",
        '[{"containerPort":80,"protocol":"TCP"}]',
    ),
    same("get pdb budget -o jsonpath={.spec}", '{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}'),
    run("rollout status deployment/web --timeout=120s", "successfully rolled out"),
    same(
        "expose deployment web --port=80 --target-port=8080 --name=front -o jsonpath='{.spec.selector.app} "
        "{.spec.ports[0].port}/{.spec.ports[0].protocol}->{.spec.ports[0].targetPort}'",
        "web 80/TCP->8080",
    ),
    eventually("get endpointslices -l kubernetes.io/service-name=front -o jsonpath={.items[0].ports[0].port}", "8080"),
    same("create service nodeport outer --tcp=80:http", "service/outer created"),
    run("get svc outer", "NodePort", "80:3"),
    same("create service externalname away --external-name=example.com", "service/away created"),
    run("get svc away", "ExternalName", "<none>", "example.com"),
    same("create service loadbalancer big --tcp=80", "service/big created"),
    same(
        "create ingress entry --class=default --rule=example.com/*=front:80", "ingress.networking.k8s.io/entry created"
    ),
    same("create job hello --image=busybox -- echo hi", "job.batch/hello created"),
    same("wait job/hello --for=condition=complete --timeout=120s", "job.batch/hello condition met"),
    run("get jobs", "hello", "Complete", "1/1"),
    same("create cronjob tick --image=busybox --schedule='0 0 1 1 *' -- date", "cronjob.batch/tick created"),
    same("create job manual --from=cronjob/tick -o jsonpath='{.spec.template.spec.containers[0].command[0]}'", "date"),
    fail("create cronjob wrong --image=busybox --schedule=never", "spec.schedule", "Invalid value"),
    fail(
        "create -f -",
        'spec.timeZone: Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus',
        stdin="""
        {apiVersion: batch/v1, kind: CronJob, metadata: {name: wrong}, spec: {schedule: "@daily",
         timeZone: Mars/Olympus, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [
         {name: c, image: i}]}}}}}}""",
    ),
    same(
        "run box --image=busybox --restart=Never --labels=a=b --env=X=1 --port=80 "
        "-o jsonpath='{.spec.restartPolicy} {.metadata.labels.a} {.spec.containers[0].env[0].value}' -- sleep 1",
        "Never b 1",
    ),
    eventually("get pod box -o jsonpath={.status.phase}", "Succeeded"),
    fail(
        "create --validate=strict -f -",
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "metadata.alien", '
        'unknown field "spec.containers[0].alien"',
        stdin=ALIENS,
    ),
]
