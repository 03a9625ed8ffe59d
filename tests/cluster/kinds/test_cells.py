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


def test_nodes() -> None:
    ready = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }
    made = show(
        "nodes",
        status=ready,
        spec={"unschedulable": True},
        metadata={
            "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "", "x": "y"}
        },
    )
    assert made["Status"] == "Ready,SchedulingDisabled"
    assert made["Roles"] == "control-plane,worker"
    assert (made["Internal-IP"], made["External-IP"]) == ("10.0.0.1", "<none>")
    assert show("nodes")["Status"] == "Unknown"
    assert show("nodes")["Roles"] == "<none>"


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"type": "ClusterIP"}, {}, "<none>"),
        ({"type": "ClusterIP", "externalIPs": ["1.1.1.1", "2.2.2.2"]}, {}, "1.1.1.1,2.2.2.2"),
        ({"type": "ExternalName", "externalName": "example.com"}, {}, "example.com"),
        ({"type": "LoadBalancer"}, {}, "<pending>"),
        (
            {"type": "LoadBalancer"},
            {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}, {"hostname": "a.b"}]}},
            "1.1.1.1,a.b",
        ),
    ],
)
def test_addresses_of_services(spec: Any, status: Any, expected: str) -> None:
    assert show("services", spec=spec, status=status)["External-IP"] == expected


def test_ingresses() -> None:
    made = show("ingresses", spec={"rules": [{"host": name} for name in "abcde"], "tls": [{"hosts": ["a"]}]})
    assert (made["Hosts"], made["Ports"], made["Address"]) == ("a,b,c + 2 more...", "80, 443", "")
    assert (show("ingresses")["Hosts"], show("ingresses")["Ports"]) == ("*", "80")


@pytest.mark.parametrize(
    ("spec", "status", "completions"),
    [
        ({"completions": 3}, {"succeeded": 2}, "2/3"),
        ({}, {}, "0/1"),
        ({"parallelism": 4}, {"succeeded": 1}, "1/1 of 4"),
    ],
)
def test_completions_of_jobs(spec: Any, status: Any, completions: str) -> None:
    assert show("jobs", spec=spec, status=status)["Completions"] == completions


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
    assert show("cronjobs")["Last Schedule"] == "<none>"


def test_autoscalers() -> None:
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        "maxReplicas": 5,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            },
            {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"averageValue": "1k"}}},
        ],
    }
    status = {
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}]
    }
    made = show("horizontalpodautoscalers", spec=spec, status=status)
    assert (made["Reference"], made["Targets"]) == ("Deployment/web", "cpu: 7%/80%, rps: <unknown>/1k")
    assert (made["MinPods"], made["MaxPods"], made["Replicas"]) == ("<unset>", "5", "0")
    old = {"spec": {"targetCPUUtilizationPercentage": 50}}
    assert show("horizontalpodautoscalers", **old)["Targets"] == "cpu: <unknown>/50%"


def test_quotas() -> None:
    made = show("resourcequotas", status={"hard": {"pods": "10", "cpu": "2", "limits.cpu": "4"}, "used": {"pods": "1"}})
    assert (made["Request"], made["Limit"]) == ("cpu: 0/2, pods: 1/10", "limits.cpu: 0/4")


def test_volumes() -> None:
    made = show(
        "persistentvolumes",
        spec={"claimRef": {"namespace": "ns", "name": "data"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"]},
        status={"phase": "Bound"},
    )
    assert (made["Claim"], made["Access Modes"], made["VolumeAttributesClass"]) == ("ns/data", "RWO,ROX", "<unset>")


def test_claims_tell_what_is_granted() -> None:
    pending = show("persistentvolumeclaims", spec={"accessModes": ["ReadWriteOnce"]}, status={"phase": "Pending"})
    assert (pending["Status"], pending["Access Modes"]) == ("Pending", "")
    bound = show(
        "persistentvolumeclaims",
        spec={"accessModes": ["ReadWriteOnce"]},
        status={"phase": "Bound", "accessModes": ["ReadWriteOnce", "ReadWriteMany"]},
    )
    assert (bound["Status"], bound["Access Modes"]) == ("Bound", "RWO,RWX")


def test_subjects_of_bindings() -> None:
    made = show(
        "rolebindings",
        roleRef={"kind": "Role", "name": "r"},
        subjects=[
            {"kind": "User", "name": "jane"},
            {"kind": "User", "name": "joe"},
            {"kind": "Group", "name": "devs"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "ns"},
        ],
    )
    assert (made["Role"], made["Users"], made["Groups"], made["ServiceAccounts"]) == (
        "Role/r",
        "jane,joe",
        "devs",
        "ns/robot",
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, "Pending"),
        ({"conditions": [{"type": "Approved"}]}, "Approved"),
        ({"conditions": [{"type": "Approved"}], "certificate": "x"}, "Approved,Issued"),
        ({"conditions": [{"type": "Denied"}]}, "Denied"),
    ],
)
def test_conditions_of_certificate_requests(status: Any, expected: str) -> None:
    assert show("certificatesigningrequests", status=status)["Condition"] == expected


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


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([{"type": "Healthy", "status": "True", "message": "ok"}], ["Healthy", "ok", ""]),
        ([{"type": "Healthy", "status": "False", "error": "refused"}], ["Unhealthy", "", "refused"]),
        ([], ["Unknown", "", ""]),
    ],
)
def test_components(conditions: Any, expected: list[str]) -> None:
    cells = show("componentstatuses", conditions=conditions)
    assert [cells[title] for title in ("Status", "Message", "Error")] == expected


def test_flow_control() -> None:
    level = show(
        "prioritylevelconfigurations",
        spec={
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 7,
                "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 6}},
            },
        },
    )
    assert list(level.values())[1:6] == ["Limited", "7", "64", "6", "<none>"]
    schema = show(
        "flowschemas",
        spec={"priorityLevelConfiguration": {"name": "low"}, "matchingPrecedence": 500},
        status={"conditions": [{"type": "Dangling", "status": "False"}]},
    )
    assert list(schema.values())[1:4] == ["low", "500", "<none>"]
    assert (schema["MissingPL"], show("flowschemas")["MissingPL"]) == ("False", "?")


def test_services_of_apis() -> None:
    remote = show(
        "apiservices",
        spec={"service": {"namespace": "kube-system", "name": "metrics"}},
        status={"conditions": [{"type": "Available", "status": "True"}]},
    )
    assert (remote["Service"], remote["Available"]) == ("kube-system/metrics", "True")
    assert show("apiservices")["Service"] == "Local"


@pytest.mark.parametrize(
    ("requests", "expected"),
    [(None, "<unset>"), ([{"audience": "a"}, {"audience": "b"}], "a,b"), ([{"audience": ""}], "")],
)
def test_drivers(requests: Any, expected: str) -> None:
    assert show("csidrivers", spec={"tokenRequests": requests})["TokenRequests"] == expected


def test_controllers() -> None:
    owners = [
        {"apiVersion": "v1", "kind": "X", "name": "no"},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True},
    ]
    assert show("controllerrevisions", metadata={"ownerReferences": owners})["Controller"] == "statefulset.apps/db"
    assert show("controllerrevisions")["Controller"] == "<none>"


def test_everything_can_be_shown_of_nothing() -> None:
    """Bookmarks of watches in tables are rows of empty objects."""
    for kind in read_kinds():
        for column in kind.columns:
            column.cell({"metadata": {"resourceVersion": "1", "creationTimestamp": None}})
