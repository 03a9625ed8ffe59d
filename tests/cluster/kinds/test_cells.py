from __future__ import annotations

import datetime
from typing import Any

import pytest

from kopf_cluster.builtin_kinds import read_kinds
from kopf_cluster.kinds import resources
from kopf_cluster.kinds.columns import make_columns

KINDS = sorted({resource.plural for resource in resources.read_resources() if resource.is_stored})


def show(plural: str, **obj: Any) -> dict[str, Any]:
    """Give the cells of an object by the titles of the columns."""
    made = {"metadata": {"name": "x", "creationTimestamp": ago(90), **obj.pop("metadata", {})}, **obj}
    return {column.name: column.cell(made) for column in make_columns(plural)}


def ago(seconds: int) -> str:
    return (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def titles(plural: str, *, wide: bool = False) -> str:
    columns = [column for column in make_columns(plural) if bool(column.priority) is wide]
    return " | ".join(column.name.upper() for column in columns)


@pytest.mark.parametrize(
    ("plural", "expected"),
    [
        ("pods", "NAME | READY | STATUS | RESTARTS | AGE"),
        ("deployments", "NAME | READY | UP-TO-DATE | AVAILABLE | AGE"),
        ("daemonsets", "NAME | DESIRED | CURRENT | READY | UP-TO-DATE | AVAILABLE | NODE SELECTOR | AGE"),
        ("statefulsets", "NAME | READY | AGE"),
        ("jobs", "NAME | STATUS | COMPLETIONS | DURATION | AGE"),
        ("cronjobs", "NAME | SCHEDULE | TIMEZONE | SUSPEND | ACTIVE | LAST SCHEDULE | AGE"),
        ("services", "NAME | TYPE | CLUSTER-IP | EXTERNAL-IP | PORT(S) | AGE"),
        ("ingresses", "NAME | CLASS | HOSTS | ADDRESS | PORTS | AGE"),
        ("nodes", "NAME | STATUS | ROLES | AGE | VERSION"),
        ("events", "LAST SEEN | TYPE | REASON | OBJECT | MESSAGE"),
        ("roles", "NAME | CREATED AT"),
        ("rolebindings", "NAME | ROLE | AGE"),
        ("horizontalpodautoscalers", "NAME | REFERENCE | TARGETS | MINPODS | MAXPODS | REPLICAS | AGE"),
        ("poddisruptionbudgets", "NAME | MIN AVAILABLE | MAX UNAVAILABLE | ALLOWED DISRUPTIONS | AGE"),
        (
            "persistentvolumes",
            "NAME | CAPACITY | ACCESS MODES | RECLAIM POLICY | STATUS | CLAIM | STORAGECLASS | "
            "VOLUMEATTRIBUTESCLASS | REASON | AGE",
        ),
        ("resourcequotas", "NAME | REQUEST | LIMIT | AGE"),
        ("podtemplates", "NAME | CONTAINERS | IMAGES | POD LABELS"),
        ("serviceaccounts", "NAME | AGE"),
        ("componentstatuses", "NAME | STATUS | MESSAGE | ERROR"),
        ("apiservices", "NAME | SERVICE | AVAILABLE | AGE"),
        ("flowschemas", "NAME | PRIORITYLEVEL | MATCHINGPRECEDENCE | DISTINGUISHERMETHOD | AGE | MISSINGPL"),
        (
            "prioritylevelconfigurations",
            "NAME | TYPE | NOMINALCONCURRENCYSHARES | QUEUES | HANDSIZE | QUEUELENGTHLIMIT | AGE",
        ),
        ("mutatingadmissionpolicies", "NAME | MUTATIONS | PARAMKIND | AGE"),
        ("mutatingadmissionpolicybindings", "NAME | POLICYNAME | PARAMREF | AGE"),
        ("servicecidrs", "NAME | CIDRS | AGE"),
        ("volumeattributesclasses", "NAME | DRIVERNAME | AGE"),
    ],
)
def test_titles(plural: str, expected: str) -> None:
    assert titles(plural) == expected


@pytest.mark.parametrize(
    ("plural", "expected"),
    [
        ("pods", "IP | NODE | NOMINATED NODE | READINESS GATES"),
        ("nodes", "INTERNAL-IP | EXTERNAL-IP | OS-IMAGE | KERNEL-VERSION | CONTAINER-RUNTIME"),
        ("events", "SUBOBJECT | SOURCE | FIRST SEEN | COUNT | NAME"),
        ("rolebindings", "USERS | GROUPS | SERVICEACCOUNTS"),
        ("secrets", ""),
    ],
)
def test_titles_of_the_wide_output(plural: str, expected: str) -> None:
    assert titles(plural, wide=True) == expected


@pytest.mark.parametrize("plural", KINDS)
def test_empty_objects_can_be_shown(plural: str) -> None:
    assert all(value is None or isinstance(value, (str, int)) for value in show(plural).values())


ROLES = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "", "x": "y"}
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
RPS = {"metric": {"name": "rps"}, "target": {"averageValue": "1k"}}
QUEUES = {"type": "Queue", "queuing": {"queues": 64, "handSize": 6}}
CELLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "nodes",
        {
            "metadata": {"labels": ROLES},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            },
        },
        {
            "Status": "Ready,SchedulingDisabled",
            "Roles": "control-plane,worker",
            "Internal-IP": "10.0.0.1",
            "External-IP": "<none>",
        },
    ),
    ("nodes", {}, {"Status": "Unknown", "Roles": "<none>"}),
    ("services", {"spec": {"type": "ClusterIP"}}, {"External-IP": "<none>"}),
    (
        "services",
        {"spec": {"type": "ClusterIP", "externalIPs": ["1.1.1.1", "2.2.2.2"]}},
        {"External-IP": "1.1.1.1,2.2.2.2"},
    ),
    ("services", {"spec": {"type": "ExternalName", "externalName": "example.com"}}, {"External-IP": "example.com"}),
    ("services", {"spec": {"type": "LoadBalancer"}}, {"External-IP": "<pending>"}),
    (
        "services",
        {
            "spec": {"type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}, {"hostname": "a.b"}]}},
        },
        {"External-IP": "1.1.1.1,a.b"},
    ),
    (
        "ingresses",
        {"spec": {"rules": [{"host": name} for name in "abcde"], "tls": [{"hosts": ["a"]}]}},
        {"Hosts": "a,b,c + 2 more...", "Ports": "80, 443", "Address": ""},
    ),
    ("ingresses", {}, {"Hosts": "*", "Ports": "80"}),
    ("jobs", {"spec": {"completions": 3}, "status": {"succeeded": 2}}, {"Completions": "2/3"}),
    ("jobs", {"spec": {}, "status": {}}, {"Completions": "0/1"}),
    ("jobs", {"spec": {"parallelism": 4}, "status": {"succeeded": 1}}, {"Completions": "1/1 of 4"}),
    ("cronjobs", {}, {"Last Schedule": "<none>"}),
    (
        "horizontalpodautoscalers",
        {
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "maxReplicas": 5,
                "metrics": [{"type": "Resource", "resource": CPU}, {"type": "Pods", "pods": RPS}],
            },
            "status": {
                "currentMetrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}
                ]
            },
        },
        {
            "Reference": "Deployment/web",
            "Targets": "cpu: 7%/80%, rps: <unknown>/1k",
            "MinPods": "<unset>",
            "MaxPods": "5",
            "Replicas": "0",
        },
    ),
    (
        "horizontalpodautoscalers",
        {"spec": {"targetCPUUtilizationPercentage": 50}},
        {"Targets": "cpu: <unknown>/50%"},
    ),
    (
        "resourcequotas",
        {"status": {"hard": {"pods": "10", "cpu": "2", "limits.cpu": "4"}, "used": {"pods": "1"}}},
        {"Request": "cpu: 0/2, pods: 1/10", "Limit": "limits.cpu: 0/4"},
    ),
    (
        "persistentvolumes",
        {
            "spec": {
                "claimRef": {"namespace": "ns", "name": "data"},
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            },
            "status": {"phase": "Bound"},
        },
        {"Claim": "ns/data", "Access Modes": "RWO,ROX", "VolumeAttributesClass": "<unset>"},
    ),
    # Claims tell what is granted.
    (
        "persistentvolumeclaims",
        {"spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Pending"}},
        {"Status": "Pending", "Access Modes": ""},
    ),
    (
        "persistentvolumeclaims",
        {
            "spec": {"accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce", "ReadWriteMany"]},
        },
        {"Status": "Bound", "Access Modes": "RWO,RWX"},
    ),
    (
        "rolebindings",
        {
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "User", "name": "jane"},
                {"kind": "User", "name": "joe"},
                {"kind": "Group", "name": "devs"},
                {"kind": "ServiceAccount", "name": "robot", "namespace": "ns"},
            ],
        },
        {"Role": "Role/r", "Users": "jane,joe", "Groups": "devs", "ServiceAccounts": "ns/robot"},
    ),
    ("certificatesigningrequests", {"status": {}}, {"Condition": "Pending"}),
    ("certificatesigningrequests", {"status": {"conditions": [{"type": "Approved"}]}}, {"Condition": "Approved"}),
    (
        "certificatesigningrequests",
        {"status": {"conditions": [{"type": "Approved"}], "certificate": "x"}},
        {"Condition": "Approved,Issued"},
    ),
    ("certificatesigningrequests", {"status": {"conditions": [{"type": "Denied"}]}}, {"Condition": "Denied"}),
    (
        "componentstatuses",
        {"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]},
        {"Status": "Healthy", "Message": "ok", "Error": ""},
    ),
    (
        "componentstatuses",
        {"conditions": [{"type": "Healthy", "status": "False", "error": "refused"}]},
        {"Status": "Unhealthy", "Message": "", "Error": "refused"},
    ),
    ("componentstatuses", {"conditions": []}, {"Status": "Unknown", "Message": "", "Error": ""}),
    (
        "prioritylevelconfigurations",
        {"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 7, "limitResponse": QUEUES}}},
        {
            "Type": "Limited",
            "NominalConcurrencyShares": "7",
            "Queues": "64",
            "HandSize": "6",
            "QueueLengthLimit": "<none>",
        },
    ),
    (
        "flowschemas",
        {
            "spec": {"priorityLevelConfiguration": {"name": "low"}, "matchingPrecedence": 500},
            "status": {"conditions": [{"type": "Dangling", "status": "False"}]},
        },
        {
            "PriorityLevel": "low",
            "MatchingPrecedence": "500",
            "DistinguisherMethod": "<none>",
            "MissingPL": "False",
        },
    ),
    ("flowschemas", {}, {"MissingPL": "?"}),
    (
        "apiservices",
        {
            "spec": {"service": {"namespace": "kube-system", "name": "metrics"}},
            "status": {"conditions": [{"type": "Available", "status": "True"}]},
        },
        {"Service": "kube-system/metrics", "Available": "True"},
    ),
    ("apiservices", {}, {"Service": "Local"}),
    ("csidrivers", {"spec": {"tokenRequests": None}}, {"TokenRequests": "<unset>"}),
    ("csidrivers", {"spec": {"tokenRequests": [{"audience": "a"}, {"audience": "b"}]}}, {"TokenRequests": "a,b"}),
    ("csidrivers", {"spec": {"tokenRequests": [{"audience": ""}]}}, {"TokenRequests": ""}),
    (
        "controllerrevisions",
        {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "X", "name": "no"},
                    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True},
                ]
            }
        },
        {"Controller": "statefulset.apps/db"},
    ),
    ("controllerrevisions", {}, {"Controller": "<none>"}),
]


@pytest.mark.parametrize(("plural", "obj", "expected"), CELLS)
def test_cells(plural: str, obj: dict[str, Any], expected: dict[str, Any]) -> None:
    cells = show(plural, **obj)
    assert {title: cells[title] for title in expected} == expected


def test_states_of_jobs() -> None:
    made = show(
        "jobs",
        spec={},
        status={
            "startTime": "2024-01-01T00:00:00Z",
            "completionTime": "2024-01-01T00:05:30Z",
            "conditions": [{"type": "Complete", "status": "True"}],
        },
    )
    assert (made["Status"], made["Duration"]) == ("Complete", "5m30s")
    assert show("jobs", status={"startTime": ago(0)})["Duration"] in ("0s", "1s")
    assert show("jobs")["Duration"] == ""
    assert show("jobs", metadata={"deletionTimestamp": ago(1)})["Status"] == "Terminating"


def test_cron_jobs() -> None:
    made = show(
        "cronjobs",
        spec={"schedule": "* * * * *", "suspend": True},
        status={"active": [{}, {}], "lastScheduleTime": ago(180)},
    )
    assert (made["TimeZone"], made["Suspend"], made["Active"], made["Last Schedule"]) == ("<none>", "True", 2, "3m")


def test_events_of_both_groups_look_the_same() -> None:
    core = show(
        "events",
        involvedObject={"kind": "Pod", "name": "p"},
        message="m",
        lastTimestamp=ago(3),
        count=4,
        source={"component": "kubelet", "host": "n"},
        firstTimestamp=ago(60),
        type="Normal",
        reason="R",
    )
    new = show(
        "events",
        regarding={"kind": "Pod", "name": "p"},
        note="m",
        deprecatedLastTimestamp=ago(3),
        deprecatedCount=4,
        deprecatedFirstTimestamp=ago(60),
        type="Normal",
        reason="R",
    )
    assert (core["Object"], core["Message"], core["Source"]) == ("pod/p", "m", "kubelet, n")
    for title in ("Object", "Message", "Type", "Reason", "Count"):
        assert core[title] == new[title]


def test_times_of_events() -> None:
    """The last one of a series counts; the time of the creation is not that of an event."""
    series = show("events", eventTime=ago(60), series={"count": 7, "lastObservedTime": ago(3)})
    assert (series["Last Seen"], series["First Seen"], series["Count"]) == ("3s", "60s", 7)
    single = show("events", eventTime=ago(60))
    assert (single["Last Seen"], single["First Seen"], single["Count"], single["Subobject"]) == ("60s", "60s", 1, "")
    assert show("events")["Last Seen"] == show("events")["First Seen"] == "<unknown>"


def test_everything_can_be_shown_of_nothing() -> None:
    """Bookmarks of watches in tables are rows of empty objects."""
    for kind in read_kinds():
        for column in kind.columns:
            column.cell({"metadata": {"resourceVersion": "1", "creationTimestamp": None}})
