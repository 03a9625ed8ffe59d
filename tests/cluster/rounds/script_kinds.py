"""
Every kind that people look at: the columns of its tables, the cells, and what ``kubectl describe`` tells.

The columns are those of the real server: it is the one that makes the tables. The descriptions are made by
``kubectl`` of what it reads: also of related objects, events, and quotas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.cluster.rounds.scripts import Expected, Step, run, tell

_CELLS = {
    "AGE": r"(<unknown>|\d+s)",
    "CREATED": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "IP": r"10\.\d+\.\d+\.\d+",
    "UID": r"batch\.kubernetes\.io/controller-uid=[-0-9a-f]{36}",
}


def line(pattern: str) -> re.Pattern[str]:
    """Make the pattern of a whole line with any spaces at its end."""
    return re.compile(rf"^{pattern} *$", re.MULTILINE)


class Look(NamedTuple):
    """What is seen of an object in the wide table, and in the description: in this order."""

    kind: str
    row: tuple[Expected, ...]
    fields: tuple[Expected, ...]


def look(kind: str, columns: str, cells: str, *described: str) -> Look:
    """
    Look at the object in the wide table, and in the description.

    Args:
        kind: as it is named in the commands.
        columns: all of them, separated by two spaces, as some have a space inside.
        cells: all of them, separated by two spaces; the names of `_CELLS` are for what is never the same.
        described: the fields of the description; the spaces inside are of any width.
    """
    header = " +".join(re.escape(title) for title in columns.split("  "))
    row = " +".join(_CELLS.get(cell) or re.escape(cell) for cell in cells.split("  "))
    fields = (re.compile(re.escape(field).replace(r"\ ", r"\s+")) for field in described)
    return Look(kind, (line(header), line(rf"(\S+/)?{row}")), tuple(fields))


def see_all(*looks: Look) -> Iterator[Step]:
    """Look at many objects at once: most of the time of a command is its start."""
    for chunk in (looks[start : start + 8] for start in range(0, len(looks), 8)):
        names = " ".join(f"{look.kind}/one" for look in chunk)
        yield tell(f"get {names} -o wide", *(expected for look in chunk for expected in look.row))
        yield tell(f"describe {names}", *(expected for look in chunk for expected in look.fields))


_LOOKS = (
    look("configmap", "NAME  DATA  AGE", "one  1  AGE", "Name: one", "color: ---- red", "Events: <none>"),
    look("secret", "NAME  TYPE  DATA  AGE", "one  Opaque  1  AGE", "Type: Opaque", "password: 6 bytes"),
    look("serviceaccount", "NAME  AGE", "one  AGE", "Name: one", "Image pull secrets: <none>", "Events: <none>"),
    look("limitrange", "NAME  CREATED AT", "one  CREATED", "Container cpu - 2 2 2 -"),
    look("podtemplate", "NAME  CONTAINERS  IMAGES  POD LABELS", "one  main  nginx:1  app=one", "Template:"),
    look(
        "rc",
        "NAME  DESIRED  CURRENT  READY  AGE  CONTAINERS  IMAGES  SELECTOR",
        "one  0  0  0  AGE  main  nginx:1  app=one",
        "Replicas: 0 current / 0 desired",
        "Image: nginx:1",
    ),
    look(
        "pv",
        "NAME  CAPACITY  ACCESS MODES  RECLAIM POLICY  STATUS  CLAIM  STORAGECLASS  VOLUMEATTRIBUTESCLASS"
        "  REASON  AGE  VOLUMEMODE",
        "one  5Gi  RWO,ROX  Retain  Available    one  <unset>    AGE  Filesystem",
        "Capacity: 5Gi",
        "Type: HostPath",
    ),
    look(
        "pvc",
        "NAME  STATUS  VOLUME  CAPACITY  ACCESS MODES  STORAGECLASS  VOLUMEATTRIBUTESCLASS  AGE  VOLUMEMODE",
        "one  Pending        one  <unset>  AGE  Filesystem",
        "StorageClass: one",
        "Used By: <none>",
    ),
    look(
        "service",
        "NAME  TYPE  CLUSTER-IP  EXTERNAL-IP  PORT(S)  AGE  SELECTOR",
        "one  ClusterIP  IP  <none>  80/TCP  AGE  app=one",
        "Selector: app=one",
        "TargetPort: 8080/TCP",
    ),
    look(
        "deployment",
        "NAME  READY  UP-TO-DATE  AVAILABLE  AGE  CONTAINERS  IMAGES  SELECTOR",
        "one  0/0  0  0  AGE  main  nginx:1  app=one",
        "StrategyType: RollingUpdate",
        "25% max unavailable, 25% max surge",
        "OldReplicaSets: <none>",
        "NewReplicaSet: one-",
    ),
    look(
        "replicaset",
        "NAME  DESIRED  CURRENT  READY  AGE  CONTAINERS  IMAGES  SELECTOR",
        "one  0  0  0  AGE  main  nginx:1  app=other",
        "Pods Status: 0 Running / 0 Waiting / 0 Succeeded / 0 Failed",
    ),
    look(
        "statefulset",
        "NAME  READY  AGE  CONTAINERS  IMAGES",
        "one  0/0  AGE  main  nginx:1",
        "Update Strategy: RollingUpdate",
        "Partition: 0",
        "Volume Claims: <none>",
    ),
    look(
        "daemonset",
        "NAME  DESIRED  CURRENT  READY  UP-TO-DATE  AVAILABLE  NODE SELECTOR  AGE  CONTAINERS  IMAGES  SELECTOR",
        "one  0  0  0  0  0  disk=none  AGE  main  nginx:1  app=one",
        "Node-Selector: disk=none",
        "Desired Number of Nodes Scheduled: 0",
    ),
    look("controllerrevision", "NAME  CONTROLLER  REVISION  AGE", "one  <none>  7  AGE", "Revision: 7"),
    look(
        "job",
        "NAME  STATUS  COMPLETIONS  DURATION  AGE  CONTAINERS  IMAGES  SELECTOR",
        "one  Suspended  0/3    AGE  main  nginx:1  UID",
        "Parallelism: 1",
        "Completions: 3",
        "Suspend: true",
    ),
    look(
        "cronjob",
        "NAME  SCHEDULE  TIMEZONE  SUSPEND  ACTIVE  LAST SCHEDULE  AGE  CONTAINERS  IMAGES  SELECTOR",
        "one  0 0 1 1 *  Etc/UTC  True  0  <none>  AGE  main  nginx:1  <none>",
        "Concurrency Policy: Allow",
        "Successful Job History Limit: 3",
        "Failed Job History Limit: 1",
    ),
    look(
        "hpa",
        "NAME  REFERENCE  TARGETS  MINPODS  MAXPODS  REPLICAS  AGE",
        "one  Deployment/one  cpu: <unknown>/80%  2  5  0  AGE",
        "resource cpu on pods (as a percentage of request): <unknown> / 80%",
        "Min replicas: 2",
        "Max replicas: 5",
    ),
    look(
        "pdb",
        "NAME  MIN AVAILABLE  MAX UNAVAILABLE  ALLOWED DISRUPTIONS  AGE",
        "one  50%  N/A  0  AGE",
        "Min available: 50%",
        "Selector: app=one",
        "Allowed disruptions: 0",
    ),
    look(
        "ingress",
        "NAME  CLASS  HOSTS  ADDRESS  PORTS  AGE",
        "one  one  one.example.com    80, 443  AGE",
        "Ingress Class: one",
        "one terminates one.example.com",
        "/a one:80",
    ),
    look(
        "ingressclass",
        "NAME  CONTROLLER  PARAMETERS  AGE",
        "one  example.com/entry  <none>  AGE",
        "Controller: example.com/entry",
    ),
    look(
        "networkpolicy",
        "NAME  POD-SELECTOR  AGE",
        "one  app=one  AGE",
        "PodSelector: app=one",
        "To Port: 80/TCP",
        "From: PodSelector: app=two",
        "Policy Types: Ingress, Egress",
    ),
    look(
        "endpointslice",
        "NAME  ADDRESSTYPE  PORTS  ENDPOINTS  AGE",
        "one  IPv4  8080  10.0.0.7,10.0.0.8  AGE",
        "AddressType: IPv4",
        "http 8080 TCP",
        "Addresses: 10.0.0.8",
    ),
    look("role", "NAME  CREATED AT", "one  CREATED", "pods [] [] [get list]"),
    look(
        "rolebinding",
        "NAME  ROLE  AGE  USERS  GROUPS  SERVICEACCOUNTS",
        "one  Role/one  AGE  jane  devs  default/one",
        "Kind: Role",
        "User jane",
        "Group devs",
        "ServiceAccount one default",
    ),
    look("clusterrole", "NAME  CREATED AT", "one  CREATED", "[/metrics] [] [get]"),
    look(
        "clusterrolebinding",
        "NAME  ROLE  AGE  USERS  GROUPS  SERVICEACCOUNTS",
        "one  ClusterRole/one  AGE  jane",
        "Kind: ClusterRole",
        "User jane",
    ),
    look(
        "storageclass",
        "NAME  PROVISIONER  RECLAIMPOLICY  VOLUMEBINDINGMODE  ALLOWVOLUMEEXPANSION  AGE",
        "one  example.com/disks  Delete  WaitForFirstConsumer  true  AGE",
        "IsDefaultClass: No",
        "Provisioner: example.com/disks",
        "AllowVolumeExpansion: True",
    ),
    look(
        "csidriver",
        "NAME  ATTACHREQUIRED  PODINFOONMOUNT  STORAGECAPACITY  TOKENREQUESTS  REQUIRESREPUBLISH  MODES  AGE",
        "one  false  false  false  <unset>  false  Persistent  AGE",
        "Attach Required: false",
    ),
    look(
        "volumeattachment",
        "NAME  ATTACHER  PV  NODE  ATTACHED  AGE",
        "one  example.com  one  kopf-node  false  AGE",
        "Attacher: example.com",
    ),
    look(
        "priorityclass",
        "NAME  VALUE  GLOBAL-DEFAULT  AGE  PREEMPTIONPOLICY",
        "one  1000  false  AGE  Never",
        "Value: 1000",
        "PreemptionPolicy: Never",
        "Description: Rather important",
    ),
    look("runtimeclass", "NAME  HANDLER  AGE", "one  gvisor  AGE", "Handler: gvisor"),
    look("lease", "NAME  HOLDER  AGE", "one  me  AGE", "Holder Identity: me", "Lease Duration Seconds: 15"),
    look(
        "validatingwebhookconfiguration",
        "NAME  WEBHOOKS  AGE",
        "one  1  AGE",
        "Failure Policy: Fail",
        "Match Policy: Equivalent",
        "Timeout Seconds: 10",
    ),
    look("mutatingwebhookconfiguration", "NAME  WEBHOOKS  AGE", "one  0  AGE", "Kind: MutatingWebhookConfiguration"),
    look(
        "validatingadmissionpolicy",
        "NAME  VALIDATIONS  PARAMKIND  AGE",
        "one  2  <unset>  AGE",
        "Failure Policy: Fail",
        "Expression: 1 > 0",
    ),
    look(
        "validatingadmissionpolicybinding",
        "NAME  POLICYNAME  PARAMREF  AGE",
        "one  one  <unset>  AGE",
        "Policy Name: one",
        "Deny",
    ),
    look(
        "prioritylevelconfiguration",
        "NAME  TYPE  NOMINALCONCURRENCYSHARES  QUEUES  HANDSIZE  QUEUELENGTHLIMIT  AGE",
        "one  Limited  7  <none>  <none>  <none>  AGE",
        "Nominal Concurrency Shares: 7",
    ),
    look(
        "flowschema",
        "NAME  PRIORITYLEVEL  MATCHINGPRECEDENCE  DISTINGUISHERMETHOD  AGE  MISSINGPL",
        "one  one  500  ByUser  AGE  ?",
        "Type: ByUser",
        "Matching Precedence: 500",
    ),
)

_EVENT = look(
    "event",
    "LAST SEEN  TYPE  REASON  OBJECT  SUBOBJECT  SOURCE  MESSAGE  FIRST SEEN  COUNT  NAME",
    "<unknown>  Warning  Faded  configmap/one    painter  The color is not so bright any more  <unknown>  3  one",
    "Count: 3",
    "Reason: Faded",
)

STEPS = [
    run("apply -f zoo.yaml", "configmap/one created", "event/one created", absent=["unchanged", "rror"]),
    run("get quota one", line("NAME +REQUEST +LIMIT +AGE")),
    run("describe quota one", re.compile(r"^Resource +Used +Hard$", re.MULTILINE)),
    *see_all(*_LOOKS),
    *see_all(_EVENT),
    run(
        "events --for configmap/one",
        line("LAST SEEN +TYPE +REASON +OBJECT +MESSAGE"),
        line(r"<unknown> \(x3 over <unknown>\) +Warning +Faded +ConfigMap/one +The color is not so bright any more"),
    ),
    run(
        "get node kopf-node -o wide",
        line(
            "NAME +STATUS +ROLES +AGE +VERSION +INTERNAL-IP +EXTERNAL-IP +OS-IMAGE +KERNEL-VERSION +CONTAINER-RUNTIME"
        ),
    ),
    run("get namespace default -o wide", line("NAME +STATUS +AGE"), line(rf"default +Active +{_CELLS['AGE']}")),
    run(
        "describe namespace default",
        "Name:",
        re.compile(r"Resource Quotas\n +Name: +one\n +Resource +Used +Hard"),
        re.compile(r"Resource Limits\n +Type"),
    ),
    run(
        "get componentstatuses",
        "Warning: v1 ComponentStatus is deprecated in v1.19+",
        line("NAME +STATUS +MESSAGE +ERROR"),
        line("etcd-0 +Healthy +ok"),
    ),
    run(
        "get endpoints kubernetes",
        "Warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        line(rf"kubernetes +127.0.0.1:\d+ +{_CELLS['AGE']}"),
    ),
    run(
        "get -f zoo.yaml -o name",
        "configmap/one",
        "flowschema.flowcontrol.apiserver.k8s.io/one",
        "runtimeclass.node.k8s.io/one",
    ),
    run("get -f zoo.yaml -o custom-columns=K:.kind,N:.metadata.name", line("K +N"), line("RuntimeClass +one")),
    run("apply -f zoo.yaml", "configmap/one unchanged", "flowschema.flowcontrol.apiserver.k8s.io/one unchanged"),
    run(
        "apply -f zoo.yaml --server-side --force-conflicts",
        "configmap/one serverside-applied",
        "secret/one serverside-applied",
        "job.batch/one serverside-applied",
    ),
    run("delete -f zoo.yaml --wait=false", 'configmap "one" deleted', 'event "one" deleted'),
]
