from __future__ import annotations

import asyncio
import concurrent.futures
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kopf_cluster import APIStatus, LocalCluster
from tests.cluster.conftest import connect, make_config_map, make_definition, make_kex
from tests.cluster.webhooks import Hooks, add, allow, deny, patch
from tests.patience import PATIENCE

KIND = "configmaps"


@pytest.fixture
def threaded() -> Iterator[LocalCluster]:
    """A cluster in a thread of its own."""
    with LocalCluster(bare=True) as cluster:
        yield cluster


def configure(config: dict[str, Any], *, mutating: bool = False, name: str = "hooks") -> dict[str, Any]:
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [KIND]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": name},
        "kind": "MutatingWebhookConfiguration" if mutating else "ValidatingWebhookConfiguration",
        "webhooks": [
            {
                "name": "x.example.com",
                "clientConfig": config,
                "rules": [rule],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


# ------------------------------------------------------------------------------------------ the verbs


def test_a_life_from_another_thread(threaded: LocalCluster) -> None:
    created = threaded.create(make_config_map(data={"a": "1"}, metadata={"labels": {"x": "y"}}))
    assert created["metadata"]["namespace"] == "default"
    assert threaded.get("cm", "one") == created
    assert threaded.list("ConfigMap") == threaded.list(KIND, namespace="default") == [created]
    assert threaded.list(KIND, labels="x!=y") == threaded.list(KIND, namespace="kube-system") == []
    assert threaded.list(KIND, labels="x=y", fields="metadata.name=one") == [created]
    assert threaded.patch(KIND, "one", {"data": {"b": "2"}})["data"] == {"a": "1", "b": "2"}
    operations = [{"op": "remove", "path": "/data/a"}]
    assert threaded.patch(KIND, "one", operations)["data"] == {"b": "2"}
    threaded.delete(KIND, "one")
    with pytest.raises(APIStatus, match='^configmaps "one" not found$') as refused:
        threaded.get(KIND, "one")
    assert (refused.value.code, refused.value.reason) == (404, "NotFound")


async def test_a_life_in_the_event_loop(cluster: LocalCluster) -> None:
    client = cluster.aio
    created = await client.create(make_config_map(data={"a": "1"}))
    assert await client.get(KIND, "one") == cluster.get(KIND, "one") == created
    assert await client.list(KIND) == cluster.list(KIND) == [created]
    assert (await client.patch(KIND, "one", {"data": {"a": "2"}}))["data"] == {"a": "2"}
    [applied] = await client.apply(make_config_map(data={"a": "3"}))
    assert applied["data"] == {"a": "3"}
    await client.delete(KIND, "one", propagation="Foreground")
    await client.wait_for(KIND, "one", "delete")
    with pytest.raises(APIStatus, match="not found"):
        await client.get(KIND, "one")


async def test_a_life_from_another_event_loop(threaded: LocalCluster) -> None:
    created = await threaded.aio.create(make_config_map())
    waiting = asyncio.create_task(threaded.aio.wait_for(KIND, "one", lambda obj: obj["data"]["a"] == "1"))
    await threaded.aio.patch(KIND, "one", {"data": {"a": "1"}})
    assert (await waiting)["metadata"]["uid"] == created["metadata"]["uid"]


async def test_custom_objects_and_their_subresources(cluster: LocalCluster) -> None:
    cluster.apply(make_definition())
    cluster.create(make_kex())
    assert "status" not in cluster.patch("kex", "one", {"status": {"x": 1}})
    assert cluster.patch("kex", "one", {"status": {"x": 1}}, subresource="status")["status"] == {"x": 1}
    assert cluster.get("kexes.example.com", "one") == cluster.list("kex")[0]


async def test_cluster_wide_kinds_have_no_namespace(cluster: LocalCluster) -> None:
    assert cluster.get("ns", "kube-system")["kind"] == "Namespace"
    assert "default" in [obj["metadata"]["name"] for obj in cluster.list("namespaces")]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"kind": "ConfigMap"}, "the manifest has no apiVersion"),
        ({"apiVersion": "v1", "kind": "Nosuch"}, 'no matches for kind "Nosuch" in version "v1"'),
        (make_config_map("A"), 'ConfigMap "A" is invalid: metadata.name'),
        (make_config_map(metadata={"namespace": "nosuch"}), 'namespaces "nosuch" not found'),
    ],
)
async def test_refusals_have_the_message_of_the_server(
    cluster: LocalCluster,
    manifest: dict[str, Any],
    message: str,
) -> None:
    for refuse in (cluster.create, cluster.apply):
        with pytest.raises(APIStatus, match=message):
            refuse(manifest)


async def test_what_comes_in_is_not_shared(cluster: LocalCluster) -> None:
    data = {"a": "1"}
    cluster.create(make_config_map(data=data))
    data["a"] = "2"
    assert cluster.get(KIND, "one")["data"] == {"a": "1"}


# ------------------------------------------------------------------------------------------ waiting


def test_waiting_from_another_thread(threaded: LocalCluster) -> None:
    def change() -> None:
        threaded.create(make_config_map())
        threaded.patch(KIND, "one", {"data": {"a": "1"}})

    thread = threading.Thread(target=change)
    thread.start()
    assert threaded.wait_for(KIND, "one", lambda obj: obj["data"]["a"] == "1")["data"] == {"a": "1"}
    thread.join()
    threaded.delete(KIND, "one")
    assert threaded.wait_for(KIND, "one", "delete") == {}


@pytest.mark.fastforward
async def test_waiting_for_what_kubectl_waits_for(cluster: LocalCluster) -> None:
    cluster.apply(make_definition())

    async def live() -> None:
        await asyncio.sleep(1)
        cluster.create(make_kex(metadata={"finalizers": ["example.com/x"]}))
        for status in ("False", "True"):
            await asyncio.sleep(1)
            conditions = [{"type": "Ready", "status": status}]
            cluster.patch("kex", "one", {"status": {"conditions": conditions}}, subresource="status")
        await asyncio.sleep(1)
        cluster.delete("kex", "one")
        await asyncio.sleep(1)
        cluster.patch("kex", "one", {"metadata": {"finalizers": None}})

    living = asyncio.create_task(live())
    assert "status" not in await cluster.aio.wait_for("kex", "one")
    await cluster.aio.wait_for("kex", "one", "condition=ready=False")
    ready = await cluster.aio.wait_for("kex", "one", "condition=Ready")
    assert ready["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
    last = await cluster.aio.wait_for("kex", "one", "delete")
    assert "deletionTimestamp" in last["metadata"]
    await living


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("manifests", "message"),
    [
        ([], "configmaps 'one' in the namespace 'default' is not there after 3 seconds"),
        ([make_config_map(data={"a": "1"})], 'is not as wanted after 3 seconds, but: {.*"data":{"a":"1"}'),
    ],
)
async def test_waiting_in_vain(cluster: LocalCluster, manifests: list[dict[str, Any]], message: str) -> None:
    for manifest in manifests:
        cluster.create(manifest)
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError, match=message):
        await cluster.aio.wait_for(KIND, "one", lambda obj: obj["data"]["b"], timeout=3)
    assert 3 <= asyncio.get_running_loop().time() - began < 4


@pytest.mark.parametrize("until", ["", "deleted", "condition", "condition="])
async def test_unknown_words_are_refused(cluster: LocalCluster, until: str) -> None:
    with pytest.raises(ValueError, match="cannot wait for"):
        await cluster.aio.wait_for(KIND, "one", until)


async def test_errors_of_conditions_are_raised(cluster: LocalCluster) -> None:
    cluster.create(make_config_map())
    with pytest.raises(ZeroDivisionError):
        await cluster.aio.wait_for(KIND, "one", lambda obj: 1 / 0)
    with pytest.raises(APIStatus, match="the server doesn't have a resource type"):
        await cluster.aio.wait_for("nosuch", "one")


async def test_waiting_survives_a_forgotten_history(cluster: LocalCluster) -> None:
    cluster.create(make_config_map())
    waiting = asyncio.create_task(cluster.aio.wait_for(KIND, "one", lambda obj: obj["data"]["a"] == "9"))
    await asyncio.sleep(0)
    for value in range(10):
        cluster.patch(KIND, "one", {"data": {"a": str(value)}})
        cluster.faults.compact()
    assert (await waiting)["data"] == {"a": "9"}


async def start_waiting(cluster: LocalCluster, until: Any) -> asyncio.Task[Any]:
    """Begin to wait, and let it come to the watching."""
    waiting = asyncio.create_task(cluster.aio.wait_for(KIND, "one", until))
    for _ in range(10):
        await asyncio.sleep(0)
    return waiting


async def test_waiting_survives_a_restart(cluster: LocalCluster) -> None:
    cluster.create(make_config_map())
    waiting = await start_waiting(cluster, lambda obj: obj["data"]["a"] == "1")
    await cluster.restart_async()
    cluster.patch(KIND, "one", {"data": {"a": "1"}})
    assert (await waiting)["data"] == {"a": "1"}


async def test_waiting_survives_a_restart_with_no_data(cluster: LocalCluster) -> None:
    created = cluster.create(make_config_map(data={"a": "1"}))
    deletion = await start_waiting(cluster, "delete")
    creation = await start_waiting(cluster, lambda obj: obj["data"]["a"] == "2")
    await cluster.restart_async(keep_data=False)
    assert await deletion == created
    cluster.create(make_config_map(data={"a": "2"}))
    assert (await creation)["data"] == {"a": "2"}


def test_waiting_survives_a_restart_from_another_thread(threaded: LocalCluster) -> None:
    threaded.create(make_config_map())
    with concurrent.futures.ThreadPoolExecutor() as executor:
        waiting = executor.submit(threaded.wait_for, KIND, "one", lambda obj: obj["data"]["a"] == "1")
        while not any(record.verb == "watch" for record in threaded.audit):
            time.sleep(0.001)
        threaded.restart()
        threaded.patch(KIND, "one", {"data": {"a": "1"}})
        assert waiting.result(PATIENCE)["data"] == {"a": "1"}


async def test_waiting_ends_with_the_cluster() -> None:
    async with LocalCluster(bare=True) as cluster:
        waiting = await start_waiting(cluster, "create")
    with pytest.raises(RuntimeError, match="^this local cluster is not running$"):
        await waiting


async def test_the_event_loop_of_the_cluster_is_not_blocked(cluster: LocalCluster) -> None:
    with pytest.raises(RuntimeError, match=r"call the same method of `cluster\.aio` and await it"):
        cluster.wait_for(KIND, "one")


# ------------------------------------------------------------------------------------------ admission


async def test_applied_objects_are_admitted(cluster: LocalCluster, hooks: Hooks) -> None:
    cluster.apply(configure(hooks.on("/", patch(add("/data", {"a": "b"}))), mutating=True))
    [applied] = await cluster.aio.apply(make_config_map())
    assert applied["data"] == {"a": "b"}
    cluster.apply(configure(hooks.on("/no", deny("not like this")), name="others"))
    for refuse in (cluster.aio.create, cluster.aio.apply):
        with pytest.raises(APIStatus, match=r'admission webhook "x.example.com" denied the request: not like this'):
            await refuse(make_config_map("two"))
    with pytest.raises(RuntimeError, match=r"`cluster\.aio` and await it, or apply with `admission=False`"):
        cluster.apply(make_config_map("two"))
    assert cluster.apply(make_config_map("two"), admission=False)
    assert (await cluster.aio.apply(make_config_map("three"), admission=False))[0]["metadata"]["name"] == "three"
    assert [call.name for call in cluster.admission_calls if not call.mutating] == ["two", "two"]


async def test_what_is_admitted_amid_a_restart_is_not_lost(cluster: LocalCluster, hooks: Hooks) -> None:
    """The restart breaks the first call, which is ignored; the second one ends when there is another server."""
    asked, restarted = asyncio.Event(), asyncio.Event()

    async def wait(review: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        await restarted.wait()
        return allow(review)

    for path in ("/one", "/two"):
        configuration = configure(hooks.on(path, wait), name=path[1:])
        configuration["webhooks"][0]["failurePolicy"] = "Ignore"
        cluster.apply(configuration)
    creating = asyncio.create_task(cluster.aio.create(make_config_map()))
    await asked.wait()
    await cluster.restart_async()
    restarted.set()
    assert await creating == cluster.get(KIND, "one")


def test_applied_objects_are_admitted_from_other_threads(threaded: LocalCluster) -> None:
    threaded.apply(configure({"url": "https://127.0.0.1:1/"}))
    with pytest.raises(APIStatus, match='failed calling webhook "x.example.com"'):
        threaded.apply(make_config_map())
    threaded.apply(make_config_map(), admission=False)


# ------------------------------------------------------------------------------------------ users

READER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects:
- {kind: Group, apiGroup: rbac.authorization.k8s.io, name: devs}
- {kind: ServiceAccount, namespace: default, name: operator}
"""


@pytest.mark.parametrize(("name", "groups"), [("jane", ["devs"]), ("system:serviceaccount:default:operator", [])])
async def test_others_may_do_only_what_they_may(name: str, groups: list[str]) -> None:
    async with LocalCluster(authorization="rbac", bare=True) as cluster:
        cluster.apply(READER)
        cluster.create(make_config_map())
        user = cluster.as_user(name, groups)
        assert user.get(KIND, "one") == (await user.aio.list(KIND))[0]
        for refuse in (user.aio.create, user.aio.apply):
            with pytest.raises(APIStatus, match=f'User "{name}" cannot create resource "configmaps"') as refused:
                await refuse(make_config_map("two"))
            assert refused.value.code == 403
        with pytest.raises(APIStatus, match=f'User "{name}" cannot watch'):
            await user.aio.wait_for(KIND, "two")
        with pytest.raises(APIStatus, match="cannot get"):
            cluster.as_user("john").get(KIND, "one")


async def test_kubeconfigs_of_others(kubectl: str) -> None:
    name = "system:serviceaccount:default:operator"
    async with LocalCluster(authorization="rbac") as cluster:
        cluster.apply(READER)
        users = cluster.as_user("jane", ["devs"]), cluster.as_user(name)
        for user, known in zip(users, ("jane", name), strict=True):
            assert user.kubeconfig == user.kubeconfig != cluster.kubeconfig
            assert user.kubeconfig.stat().st_mode & 0o777 == 0o600
            process = await asyncio.create_subprocess_exec(
                kubectl,
                f"--kubeconfig={user.kubeconfig}",
                "auth",
                "whoami",
                "-o",
                "jsonpath={.status.userInfo}",
                stdout=asyncio.subprocess.PIPE,
            )
            output = (await process.communicate())[0].decode()
            assert f'"username":"{known}"' in output
        assert '"system:serviceaccounts:default"' in output
    assert not any(user.kubeconfig.exists() for user in users)


async def test_kubeconfigs_of_others_beside_a_wanted_one(tmp_path: pathlib.Path) -> None:
    async with LocalCluster(kubeconfig=tmp_path / "admin.yaml") as cluster:
        path = cluster.as_user("jane").kubeconfig
        assert path.exists()
        assert cluster.kubeconfig == tmp_path / "admin.yaml"
    assert not path.exists()
    assert not list(tmp_path.iterdir())


async def test_what_is_done_by_hand_is_neither_disturbed_nor_counted(cluster: LocalCluster) -> None:
    cluster.faults.inject(500)
    cluster.apply(make_config_map())
    assert not cluster.counters
    async with connect(cluster) as client:
        assert (await client.call("GET", "/version")).status == 500


async def test_the_administrator_has_the_same_name_everywhere() -> None:
    async with LocalCluster(administrator="root", bare=True) as cluster, connect(cluster) as client:
        await client.get("/api/v1/namespaces")
        cluster.list("namespaces")
        assert [record.user for record in cluster.audit] == ["root", "root"]
