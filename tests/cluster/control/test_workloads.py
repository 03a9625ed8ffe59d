"""
The simulation of workloads: on a loop that jumps to the next timer, so that minutes take no time.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.conftest import Client, Obj
from tests.patience import PATIENCE

pytestmark = pytest.mark.fastforward

APPS = "/apis/apps/v1/namespaces/default"
BATCH = "/apis/batch/v1/namespaces/default"
CORE = "/api/v1/namespaces/default"


CLUSTER = {"simulate": True}


async def wait_for(client: Client, path: str, check: Callable[[Any], object], limit: float = 600) -> Any:
    """Wait until the object (or the list) is as expected; the limit is in the seconds of the fast clock."""
    async with asyncio.timeout(limit):
        while True:
            reply = await client.call("GET", path)
            if reply.status == 200 and check(reply.body):
                return reply.body
            await asyncio.sleep(0.05)


def template(image: str = "nginx:1", **spec: Any) -> Obj:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}], **spec}}


def workload(kind: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template(), **spec},
    }


def job(**spec: Any) -> Obj:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"template": template(restartPolicy="Never"), **spec},
    }


async def pods(client: Client) -> list[Obj]:
    """Give the pods that are not ending: nobody waits for these."""
    return [pod for pod in (await client.get(f"{CORE}/pods"))["items"] if "deletionTimestamp" not in pod["metadata"]]


def is_rolled_out(obj: Obj) -> bool:
    """Whether `kubectl rollout status` is content."""
    status, wanted = obj.get("status") or {}, obj["spec"]["replicas"]
    return bool(
        status.get("observedGeneration") == obj["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == wanted == status.get("replicas", 0)
        and status.get("availableReplicas", 0) == wanted
    )


async def roll_out(client: Client, kind: str, **spec: Any) -> Any:
    """Create the workload, and wait until its pods are there."""
    await client.create(f"{APPS}/{kind.lower()}s", workload(kind, **spec))
    return await wait_for(client, f"{APPS}/{kind.lower()}s/web", is_rolled_out)


async def test_the_node_is_ready_and_its_heartbeats_go_on(client: Client) -> None:
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/kopf-node"
    node = await wait_for(client, "/api/v1/nodes/kopf-node", lambda node: node["status"].get("conditions"))
    assert {item["type"]: item["status"] for item in node["status"]["conditions"]}["Ready"] == "True"
    first = await wait_for(client, lease, lambda lease: lease["spec"]["renewTime"])
    await asyncio.sleep(11)
    second = await client.get(lease)
    assert second["spec"]["renewTime"] > first["spec"]["renewTime"]
    assert second["spec"]["holderIdentity"] == "kopf-node"


async def test_pods_are_scheduled_started_and_ready(client: Client) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": template()["spec"]}
    created = await client.create(f"{CORE}/pods", pod)
    assert created["status"]["phase"] == "Pending"
    running = await wait_for(client, f"{CORE}/pods/one", lambda pod: pod["status"]["phase"] == "Running")
    assert running["spec"]["nodeName"] == "kopf-node"
    assert running["status"]["podIP"].startswith("10.")
    assert running["status"]["containerStatuses"][0]["ready"] is True
    assert {item["type"] for item in running["status"]["conditions"] if item["status"] == "True"} >= {
        "Ready",
        "ContainersReady",
        "Initialized",
        "PodScheduled",
    }


async def test_pods_wait_for_a_node_with_wanted_labels(client: Client) -> None:
    spec = {**template()["spec"], "nodeSelector": {"disk": "fast"}}
    await client.create(f"{CORE}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec})
    pod = await wait_for(client, f"{CORE}/pods/one", lambda pod: pod["status"].get("conditions"))
    assert pod["status"]["phase"] == "Pending"
    assert pod["status"]["conditions"][0]["reason"] == "Unschedulable"
    await client.create(
        "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other", "labels": {"disk": "fast"}}}
    )
    pod = await wait_for(client, f"{CORE}/pods/one", lambda pod: pod["status"]["phase"] == "Running")
    assert pod["spec"]["nodeName"] == "other"


async def test_pods_are_ready_only_when_their_gates_are_open(client: Client) -> None:
    spec = {**template()["spec"], "readinessGates": [{"conditionType": "example.com/gate"}]}
    await client.create(f"{CORE}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec})

    def ready(pod: Obj) -> str:
        return str({item["type"]: item["status"] for item in pod["status"].get("conditions") or ()}.get("Ready"))

    await wait_for(client, f"{CORE}/pods/one", lambda pod: ready(pod) == "False")
    await client.patch(
        f"{CORE}/pods/one/status",
        {"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}},
        "application/strategic-merge-patch+json",
    )
    await wait_for(client, f"{CORE}/pods/one", lambda pod: ready(pod) == "True")


async def test_deployments_become_available(client: Client) -> None:
    deployment = await roll_out(client, "Deployment", replicas=3)
    conditions = {item["type"]: (item["status"], item["reason"]) for item in deployment["status"]["conditions"]}
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    sets = (await client.get(f"{APPS}/replicasets"))["items"]
    assert [item["spec"]["replicas"] for item in sets] == [3]
    assert all(pod["metadata"]["name"].startswith(sets[0]["metadata"]["name"]) for pod in await pods(client))


async def test_deployments_roll_out_with_no_loss_of_availability(client: Client) -> None:
    await roll_out(client, "Deployment", replicas=4)
    async with client.watch(f"{APPS}/deployments") as stream:
        await stream.next()
        await client.patch(f"{APPS}/deployments/web", {"spec": {"template": template("nginx:2")}})
        async with asyncio.timeout(600):
            while event := await stream.next():
                status = event["object"]["status"]
                assert status.get("availableReplicas", 0) >= 3, "25% of 4 may be unavailable"
                assert status.get("replicas", 0) <= 5, "25% of 4 may be in excess"
                if event["object"]["metadata"]["generation"] == 2 and is_rolled_out(event["object"]):
                    break
    sets = {
        item["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: item["spec"]["replicas"]
        for item in (await client.get(f"{APPS}/replicasets"))["items"]
    }
    assert sets == {"1": 0, "2": 4}
    assert {pod["spec"]["containers"][0]["image"] for pod in await pods(client)} == {"nginx:2"}


async def test_deployments_return_to_the_old_replica_set_with_a_new_revision(client: Client) -> None:
    await roll_out(client, "Deployment", replicas=1)
    for image in ("nginx:2", "nginx:1"):
        await client.patch(f"{APPS}/deployments/web", {"spec": {"template": template(image)}})
        await wait_for(client, f"{APPS}/deployments/web", is_rolled_out)
    sets = (await client.get(f"{APPS}/replicasets"))["items"]
    assert sorted(
        (item["metadata"]["annotations"]["deployment.kubernetes.io/revision"], item["spec"]["replicas"])
        for item in sets
    ) == [("2", 0), ("3", 1)]


async def test_deployments_that_recreate_never_mix_revisions(client: Client) -> None:
    await roll_out(client, "Deployment", replicas=2, strategy={"type": "Recreate"})
    async with client.watch(f"{CORE}/pods") as stream:
        present = {}
        await client.patch(f"{APPS}/deployments/web", {"spec": {"template": template("nginx:2")}})
        async with asyncio.timeout(600):
            while event := await stream.next():
                obj = event["object"]
                present[obj["metadata"]["name"]] = obj["spec"]["containers"][0]["image"]
                if event["type"] == "DELETED":
                    del present[obj["metadata"]["name"]]
                assert len(set(present.values())) < 2
                if list(present.values()) == ["nginx:2", "nginx:2"]:
                    break


async def test_paused_deployments_are_scaled_but_do_not_roll_out(client: Client) -> None:
    await roll_out(client, "Deployment", replicas=2)
    paused = {"paused": True, "replicas": 4, "template": template("nginx:2")}
    changed = await client.patch(f"{APPS}/deployments/web", {"spec": paused})
    await wait_for(
        client,
        f"{APPS}/deployments/web",
        lambda obj: (
            obj["status"]["observedGeneration"] == changed["metadata"]["generation"]
            and obj["status"].get("availableReplicas") == 4
        ),
    )
    assert len((await client.get(f"{APPS}/replicasets"))["items"]) == 1


async def test_deployments_are_scaled(client: Client) -> None:
    await roll_out(client, "Deployment", replicas=3)
    for replicas in (5, 1, 0):
        await client.patch(f"{APPS}/deployments/web", {"spec": {"replicas": replicas}})
        await wait_for(client, f"{APPS}/deployments/web", is_rolled_out)
        assert len(await pods(client)) == replicas


async def scale_in_the_middle(client: Client, replicas: int, **spec: Any) -> list[tuple[int, str]]:
    """Scale while new pods cannot be ready; give the sizes of the replica sets, the oldest first, and their limits."""
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    await client.create(f"{APPS}/deployments", workload("Deployment", replicas=10, strategy=rolling))
    await wait_for(client, f"{APPS}/deployments/web", lambda body: body["status"].get("availableReplicas") == 10)
    gates = template("nginx:2", readinessGates=[{"conditionType": "example.com/never"}])
    await client.patch(f"{APPS}/deployments/web", {"spec": {"template": gates}})
    path = f"{APPS}/replicasets"
    await wait_for(client, path, lambda body: sorted(item["spec"]["replicas"] for item in body["items"]) == [5, 8])
    await client.patch(f"{APPS}/deployments/web", {"spec": {"replicas": replicas, **spec}})
    desired = "deployment.kubernetes.io/desired-replicas"
    listed = await wait_for(
        client,
        path,
        lambda body: all(item["metadata"]["annotations"][desired] == str(replicas) for item in body["items"]),
    )
    prefix = "deployment.kubernetes.io"
    found = [(item["metadata"]["annotations"], item["spec"]["replicas"]) for item in listed["items"]]
    found.sort(key=lambda pair: str(pair[0][f"{prefix}/revision"]))
    return [(size, annotations[f"{prefix}/max-replicas"]) for annotations, size in found]


@pytest.mark.parametrize(
    ("replicas", "spec", "expected"),
    [
        (15, {}, [(11, "18"), (7, "18")]),  # the example of the documentation ("Proportional scaling")
        (15, {"paused": True}, [(11, "18"), (7, "18")]),
        (5, {"paused": True}, [(5, "8"), (3, "8")]),
    ],
)
async def test_deployments_are_scaled_proportionally_in_the_middle_of_a_rollout(
    client: Client, replicas: int, spec: Obj, expected: list[tuple[int, str]]
) -> None:
    assert await scale_in_the_middle(client, replicas, **spec) == expected


async def test_lost_pods_are_replaced(client: Client) -> None:
    await roll_out(client, "Deployment", replicas=2)
    lost = (await pods(client))[0]["metadata"]["name"]
    await client.delete(f"{CORE}/pods/{lost}")
    await wait_for(
        client,
        f"{CORE}/pods",
        lambda body: (
            len(body["items"]) == 2
            and all(pod["status"]["phase"] == "Running" and pod["metadata"]["name"] != lost for pod in body["items"])
        ),
    )


async def test_stateful_sets_make_their_pods_and_claims_in_order(client: Client) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    async with client.watch(f"{CORE}/pods") as stream:
        await client.create(
            f"{APPS}/statefulsets", workload("StatefulSet", replicas=3, serviceName="web", volumeClaimTemplates=[claim])
        )
        order: list[tuple[str, bool]] = []
        while len(order) < 6:
            event = await stream.next()
            name, ready = (
                event["object"]["metadata"]["name"],
                any(
                    item["type"] == "Ready" and item["status"] == "True"
                    for item in event["object"]["status"].get("conditions") or ()
                ),
            )
            if event["type"] == "ADDED" or (ready and (name, True) not in order):
                order.append((name, ready))
    assert order == [(f"web-{number}", ready) for number in range(3) for ready in (False, True)]
    claims = (await client.get(f"{CORE}/persistentvolumeclaims"))["items"]
    assert [claim["metadata"]["name"] for claim in claims] == ["data-web-0", "data-web-1", "data-web-2"]
    pod = await client.get(f"{CORE}/pods/web-1")
    assert pod["spec"]["volumes"][0] == {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}


async def test_stateful_sets_are_updated_from_the_last_pod(client: Client) -> None:
    await roll_out(client, "StatefulSet", replicas=2, serviceName="web")
    async with client.watch(f"{CORE}/pods") as stream:
        await client.patch(f"{APPS}/statefulsets/web", {"spec": {"template": template("nginx:2")}})
        gone: list[str] = []
        while len(gone) < 2:
            event = await stream.next()
            if event["type"] == "DELETED":
                gone.append(event["object"]["metadata"]["name"])
    assert gone == ["web-1", "web-0"]
    done = await wait_for(
        client,
        f"{APPS}/statefulsets/web",
        lambda obj: is_rolled_out(obj) and (obj["status"]["currentRevision"] == obj["status"]["updateRevision"]),
    )
    assert done["status"]["currentReplicas"] == 2
    assert len((await client.get(f"{APPS}/controllerrevisions"))["items"]) == 2


async def test_stateful_sets_keep_the_pods_below_the_partition(client: Client) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    await client.create(
        f"{APPS}/statefulsets", workload("StatefulSet", replicas=2, serviceName="web", updateStrategy=strategy)
    )
    await wait_for(client, f"{APPS}/statefulsets/web", is_rolled_out)
    await client.patch(f"{APPS}/statefulsets/web", {"spec": {"template": template("nginx:2")}})
    await wait_for(
        client,
        f"{APPS}/statefulsets/web",
        lambda obj: obj["status"].get("updatedReplicas") == 1 and obj["status"].get("readyReplicas") == 2,
    )
    assert [pod["spec"]["containers"][0]["image"] for pod in await pods(client)] == ["nginx:1", "nginx:2"]


async def test_daemon_sets_have_a_pod_on_each_node(client: Client) -> None:
    await client.create(f"{APPS}/daemonsets", workload("DaemonSet"))
    await client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})
    done = await wait_for(client, f"{APPS}/daemonsets/web", lambda obj: obj["status"].get("numberAvailable") == 2)
    assert done["status"]["desiredNumberScheduled"] == done["status"]["updatedNumberScheduled"] == 2
    assert sorted(pod["spec"]["nodeName"] for pod in await pods(client)) == ["kopf-node", "other"]
    await client.delete("/api/v1/nodes/other")
    await wait_for(client, f"{CORE}/pods", lambda body: len(body["items"]) == 1)


async def test_daemon_sets_replace_outdated_pods(client: Client) -> None:
    await client.create(f"{APPS}/daemonsets", workload("DaemonSet"))
    await wait_for(client, f"{APPS}/daemonsets/web", lambda obj: obj["status"].get("numberAvailable") == 1)
    await client.patch(f"{APPS}/daemonsets/web", {"spec": {"template": template("nginx:2")}})
    await wait_for(
        client,
        f"{CORE}/pods",
        lambda body: (
            [(pod["spec"]["containers"][0]["image"], pod["status"]["phase"]) for pod in body["items"]]
            == [("nginx:2", "Running")]
        ),
    )


@pytest.mark.parametrize("kind", ["DaemonSet", "StatefulSet"])
async def test_histories_are_limited(client: Client, kind: str) -> None:
    path = f"{APPS}/{kind.lower()}s"
    await client.create(path, workload(kind, revisionHistoryLimit=1))
    for number in range(2, 6):
        image = f"nginx:{number}"

        def is_updated(body: Any, image: str = image) -> bool:
            return {pod["spec"]["containers"][0]["image"] for pod in body["items"]} == {image}

        await client.patch(f"{path}/web", {"spec": {"template": template(image)}})
        await wait_for(client, f"{CORE}/pods", is_updated)
    kept = await wait_for(client, f"{APPS}/controllerrevisions", lambda body: len(body["items"]) <= 2)
    assert sorted(item["revision"] for item in kept["items"]) == [4, 5]
    assert {item["metadata"]["ownerReferences"][0]["kind"] for item in kept["items"]} == {kind}
    assert all(item["metadata"]["labels"]["app"] == "web" for item in kept["items"])


async def test_jobs_complete(client: Client) -> None:
    await client.create(f"{BATCH}/jobs", job(completions=3, parallelism=2))
    done = await wait_for(client, f"{BATCH}/jobs/job", lambda obj: obj["status"].get("completionTime"))
    assert done["status"]["succeeded"] == 3
    assert {item["type"] for item in done["status"]["conditions"]} == {"SuccessCriteriaMet", "Complete"}
    assert {pod["status"]["phase"] for pod in await pods(client)} == {"Succeeded"}


def _has_items(count: int, body: Any) -> bool:
    return len(body["items"]) == count


async def test_jobs_fail_when_their_pods_fail_too_often(client: Client) -> None:
    await client.create(f"{BATCH}/jobs", job(backoffLimit=1))
    for count in (1, 2):
        body = await wait_for(client, f"{CORE}/pods", functools.partial(_has_items, count))
        for pod in body["items"]:
            await client.patch(f"{CORE}/pods/{pod['metadata']['name']}/status", {"status": {"phase": "Failed"}})
    done = await wait_for(client, f"{BATCH}/jobs/job", lambda obj: obj["status"].get("conditions"))
    assert [item["reason"] for item in done["status"]["conditions"]] == ["BackoffLimitExceeded"] * 2


async def test_finished_jobs_go_after_their_time_to_live(client: Client) -> None:
    await client.create(f"{BATCH}/jobs", job(ttlSecondsAfterFinished=60))
    await wait_for(client, f"{BATCH}/jobs/job", lambda obj: obj["status"].get("completionTime"))
    await wait_for(client, f"{BATCH}/jobs", lambda body: not body["items"])
    await wait_for(client, f"{CORE}/pods", lambda body: not body["items"])


async def test_cron_jobs_create_jobs_by_the_schedule_and_forget_old_ones(client: Client) -> None:
    await client.create(
        f"{BATCH}/cronjobs",
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "cron"},
            "spec": {
                "schedule": "*/5 * * * *",
                "successfulJobsHistoryLimit": 2,
                "jobTemplate": {"spec": job()["spec"]},
            },
        },
    )
    seen: set[str] = set()
    while len(seen) < 4:
        await asyncio.sleep(30)
        seen |= {item["metadata"]["name"] for item in (await client.get(f"{BATCH}/jobs"))["items"]}
    numbers = sorted(int(name.rpartition("-")[2]) for name in seen)
    assert {later - earlier for earlier, later in itertools.pairwise(numbers)} == {5}
    await wait_for(client, f"{BATCH}/jobs", lambda body: len(body["items"]) <= 2)
    assert (await client.get(f"{BATCH}/cronjobs/cron"))["status"]["lastScheduleTime"]


async def test_claims_are_bound_to_new_volumes_that_go_with_them(client: Client) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
    }
    await client.create(f"{CORE}/persistentvolumeclaims", claim)
    bound = await wait_for(client, f"{CORE}/persistentvolumeclaims/data", lambda obj: obj["status"]["phase"] == "Bound")
    assert bound["status"]["capacity"] == {"storage": "2Gi"}
    path = f"/api/v1/persistentvolumes/{bound['spec']['volumeName']}"
    volume = await client.get(path)
    assert volume["status"]["phase"] == "Bound"
    assert volume["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    await client.delete(f"{CORE}/persistentvolumeclaims/data")
    await client.wait_gone(path)


async def test_services_have_addresses_and_endpoints(client: Client) -> None:
    await client.create(
        f"{CORE}/services",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    )
    await client.create(f"{APPS}/deployments", workload("Deployment", replicas=2))
    endpoints = await wait_for(
        client, f"{CORE}/endpoints/web", lambda obj: len(((obj.get("subsets") or [{}])[0]).get("addresses") or ()) == 2
    )
    assert endpoints["subsets"][0]["ports"] == [{"port": 8080, "protocol": "TCP"}]
    assert {item["ip"] for item in endpoints["subsets"][0]["addresses"]} == {
        pod["status"]["podIP"] for pod in await pods(client)
    }
    slices = (
        await client.get(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=web"
        )
    )["items"]
    assert [item["conditions"]["ready"] for item in slices[0]["endpoints"]] == [True, True]
    assert (await client.get(f"{CORE}/services/web"))["spec"]["clusterIP"].startswith("10.")
    await client.delete(f"{CORE}/services/web")
    await client.wait_gone(f"{CORE}/endpoints/web")


async def test_a_simulated_namespace_goes_with_everything(client: Client) -> None:
    await client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    await client.create("/apis/apps/v1/namespaces/ns/deployments", workload("Deployment", replicas=3))
    await wait_for(client, "/apis/apps/v1/namespaces/ns/deployments/web", is_rolled_out)
    await client.delete("/api/v1/namespaces/ns")
    async with asyncio.timeout(PATIENCE):
        await client.wait_gone("/api/v1/namespaces/ns")
