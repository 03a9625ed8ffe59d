from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from kopf_cluster.control.loops import WorkQueue
from tests.cluster.conftest import CONFIG_MAPS, NAMESPACES, Client, make_config_map, make_kex


def owner(obj: Any, **extra: Any) -> dict[str, Any]:
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        **extra,
    }


async def make_family(client: Client, kexes: str, **extra: Any) -> Any:
    """Make an object, its two dependents, and a dependent of one of those."""
    parent = await client.create(kexes, make_kex("parent"))
    for name in ("child1", "child2"):
        child = await client.create(
            CONFIG_MAPS, make_config_map(name, metadata={"ownerReferences": [owner(parent, **extra)]})
        )
    await client.create(
        CONFIG_MAPS, make_config_map("grandchild", metadata={"ownerReferences": [owner(child, **extra)]})
    )
    return parent


async def test_dependents_go_after_their_owners(client: Client, kexes: str) -> None:
    await make_family(client, kexes)
    await client.delete(f"{kexes}/parent")
    await client.wait_gone(*(f"{CONFIG_MAPS}/{name}" for name in ("child1", "child2", "grandchild")))


async def test_dependents_with_finalizers_are_only_marked(client: Client, kexes: str) -> None:
    parent = await client.create(kexes, make_kex("parent"))
    await client.create(
        CONFIG_MAPS, make_config_map(metadata={"ownerReferences": [owner(parent)], "finalizers": ["a/b"]})
    )
    await client.delete(f"{kexes}/parent")
    await client.wait(f"{CONFIG_MAPS}/one", lambda obj: "deletionTimestamp" in obj["metadata"])


async def test_dependents_stay_while_any_owner_is_there(client: Client, kexes: str) -> None:
    first, second = [await client.create(kexes, make_kex(name)) for name in ("first", "second")]
    references = [owner(first), owner(second)]
    await client.create(CONFIG_MAPS, make_config_map(metadata={"ownerReferences": references}))
    await client.delete(f"{kexes}/first")
    await client.wait(f"{CONFIG_MAPS}/one", lambda obj: obj["metadata"]["ownerReferences"] == [owner(second)])
    await client.delete(f"{kexes}/second")
    await client.wait_gone(f"{CONFIG_MAPS}/one")


async def test_dependents_of_nobody_are_collected(client: Client) -> None:
    """Owners in other namespaces do not count."""
    nobody = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "nosuch"}
    other = await client.create("/api/v1/namespaces/kube-system/configmaps", make_config_map("other"))
    for name, reference in (("one", nobody), ("two", owner(other))):
        await client.create(CONFIG_MAPS, make_config_map(name, metadata={"ownerReferences": [reference]}))
        await client.wait_gone(f"{CONFIG_MAPS}/{name}")


async def test_owners_in_the_foreground_wait_for_their_dependents(client: Client, kexes: str) -> None:
    await make_family(client, kexes, blockOwnerDeletion=True)
    await client.patch(f"{CONFIG_MAPS}/child1", {"metadata": {"finalizers": ["a/b"]}})
    marked = await client.delete(f"{kexes}/parent", propagationPolicy="Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    await client.wait_gone(f"{CONFIG_MAPS}/child2", f"{CONFIG_MAPS}/grandchild")
    assert (await client.get(f"{kexes}/parent"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    await client.patch(f"{CONFIG_MAPS}/child1", {"metadata": {"finalizers": None}})
    await client.wait_gone(f"{CONFIG_MAPS}/child1", f"{kexes}/parent")


async def make_circle(client: Client, size: int) -> list[str]:
    """Make objects that own one another in a circle, and give their paths."""
    made = [await client.create(CONFIG_MAPS, make_config_map(f"cm{index}")) for index in range(size)]
    paths = [f"{CONFIG_MAPS}/{obj['metadata']['name']}" for obj in made]
    for index, path in enumerate(paths):
        reference = owner(made[index - 1], blockOwnerDeletion=True)
        await client.patch(path, {"metadata": {"ownerReferences": [reference]}})
    return paths


@pytest.mark.parametrize("size", [2, 3, 5])
async def test_cycles_of_owners_end_in_the_foreground(client: Client, size: int) -> None:
    """As the conformance test of garbage collectors: "should not be blocked by dependency circle"."""
    paths = await make_circle(client, size)
    await client.delete(paths[0], propagationPolicy="Foreground")
    await client.wait_gone(*paths)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
async def test_cycles_of_owners_end_when_all_of_them_are_deleted_at_once(client: Client, size: int) -> None:
    paths = await make_circle(client, size)
    await client.delete(CONFIG_MAPS, propagationPolicy="Foreground")
    await client.wait_gone(*paths)


async def test_cycles_of_owners_end_but_for_what_is_held_by_other_finalizers(client: Client) -> None:
    paths = await make_circle(client, 2)
    await client.patch(paths[1], {"metadata": {"finalizers": ["a/b"]}})
    await client.delete(CONFIG_MAPS, propagationPolicy="Foreground")
    await client.wait_gone(paths[0])
    held = await client.get(paths[1])
    assert held["metadata"]["finalizers"] == ["a/b"]
    await client.patch(paths[1], {"metadata": {"finalizers": []}})
    await client.wait_gone(paths[1])


async def test_dependents_with_other_owners_are_left_to_them(client: Client, kexes: str) -> None:
    first, second = [await client.create(kexes, make_kex(name)) for name in ("first", "second")]
    references = [owner(first, blockOwnerDeletion=True), owner(second)]
    await client.create(CONFIG_MAPS, make_config_map(metadata={"ownerReferences": references}))
    await client.delete(f"{kexes}/first", propagationPolicy="Foreground")
    await client.wait_gone(f"{kexes}/first")
    left = await client.get(f"{CONFIG_MAPS}/one")
    assert left["metadata"]["ownerReferences"] == [owner(second)]
    assert "deletionTimestamp" not in left["metadata"]


async def test_orphans_are_left_alone(client: Client, kexes: str) -> None:
    await make_family(client, kexes)
    await client.delete(f"{kexes}/parent", propagationPolicy="Orphan")
    await client.wait_gone(f"{kexes}/parent")
    for name in ("child1", "child2"):
        assert "ownerReferences" not in (await client.get(f"{CONFIG_MAPS}/{name}"))["metadata"]
    await client.get(f"{CONFIG_MAPS}/grandchild")


async def test_deleted_namespaces_take_their_contents(client: Client, kexes: str) -> None:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1"}})
    mine, held = kexes.replace("default", "ns1"), CONFIG_MAPS.replace("default", "ns1")
    await client.create(mine, make_kex())
    await client.create(held, make_config_map(metadata={"finalizers": ["a/b"]}))
    marked = await client.delete(f"{NAMESPACES}/ns1")
    assert marked["status"]["phase"] == "Terminating"
    assert marked["metadata"]["deletionTimestamp"]

    reply = await client.call("POST", mine, json=make_kex("two"), expected=403)
    assert reply.body["reason"] == "Forbidden"
    assert reply.body["message"] == (
        'kexes.example.com "two" is forbidden: unable to create new content in '
        "namespace ns1 because it is being terminated"
    )
    assert reply.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"

    await client.wait_gone(f"{mine}/one")
    await client.get(f"{NAMESPACES}/ns1")
    await client.patch(f"{held}/one", {"metadata": {"finalizers": []}})
    await client.wait_gone(f"{NAMESPACES}/ns1")
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1"}})
    assert (await client.get(mine))["items"] == []


@pytest.mark.fastforward
async def test_new_namespaces_are_not_emptied_as_the_old_ones_of_their_names(client: Client) -> None:
    """Some time after a deletion, the namespace is looked through: it can be another one by then, of the same name."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1"}}
    maps = CONFIG_MAPS.replace("default", "ns1")
    await client.create(NAMESPACES, namespace)
    await client.create(maps, make_config_map())
    await client.delete(f"{NAMESPACES}/ns1")
    await client.wait_gone(f"{NAMESPACES}/ns1")
    await client.create(NAMESPACES, namespace)
    await client.create(maps, make_config_map())
    await asyncio.sleep(10)
    await client.get(f"{maps}/one")


GOOD_CONDITIONS = [
    ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "False", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
]


def get_conditions(obj: Any) -> list[tuple[str, str, str, str]]:
    return [
        (item["type"], item["status"], item["reason"], item["message"])
        for item in (obj.get("status") or {}).get("conditions") or ()
    ]


async def test_terminating_namespaces_tell_what_remains(cluster: LocalCluster, client: Client, kexes: str) -> None:
    """The messages are those that people search for, e.g. "pods. has 1 resource instances"."""
    await client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1", "finalizers": ["a/end"]}}
    )
    mine, maps = kexes.replace("default", "ns1"), CONFIG_MAPS.replace("default", "ns1")
    for name, finalizers in (("one", ["a/b"]), ("two", ["a/b", "a/c"])):
        await client.create(mine, make_kex(name, metadata={"finalizers": finalizers}))
    await client.create(maps, make_config_map("held", metadata={"finalizers": ["a/b"]}))
    await client.create(maps, make_config_map("free"))
    await client.delete(f"{NAMESPACES}/ns1")
    told = await cluster.aio.wait_for(
        "ns",
        "ns1",
        lambda obj: (
            get_conditions(obj)
            == [
                *GOOD_CONDITIONS[:3],
                (
                    "NamespaceContentRemaining",
                    "True",
                    "SomeResourcesRemain",
                    "Some resources are remaining: configmaps. has 1 resource instances, "
                    "kexes.example.com has 2 resource instances",
                ),
                (
                    "NamespaceFinalizersRemaining",
                    "True",
                    "SomeFinalizersRemain",
                    "Some content in the namespace has finalizers remaining: a/b in 3 resource instances, "
                    "a/c in 1 resource instances",
                ),
            ]
        ),
    )
    assert told["status"]["phase"] == "Terminating"
    times = {item["lastTransitionTime"] for item in told["status"]["conditions"]}
    assert len(times) == 1

    # It follows what happens to the objects, even if they do not go.
    await client.patch(f"{mine}/two", {"metadata": {"finalizers": ["a/b"]}})
    await cluster.aio.wait_for(
        "ns",
        "ns1",
        lambda obj: obj["status"]["conditions"][4]["message"].endswith("remaining: a/b in 3 resource instances"),
    )
    for path in (f"{mine}/one", f"{mine}/two", f"{maps}/held"):
        await client.patch(path, {"metadata": {"finalizers": None}})
    await cluster.aio.wait_for("ns", "ns1", lambda obj: get_conditions(obj) == GOOD_CONDITIONS)
    await client.patch(f"{NAMESPACES}/ns1", {"metadata": {"finalizers": None}})
    await client.wait_gone(f"{NAMESPACES}/ns1")


async def test_pods_go_before_the_rest_of_their_namespace(cluster: LocalCluster, client: Client) -> None:
    """As since 1.33, so that network policies, e.g., protect them to the end."""
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns1"}})
    pods, maps = f"{NAMESPACES}/ns1/pods", f"{NAMESPACES}/ns1/configmaps"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "finalizers": ["a/b"]},
        "spec": {"containers": [{"name": "main", "image": "main"}]},
    }
    await client.create(pods, pod)
    await client.create(maps, make_config_map())
    await client.delete(f"{NAMESPACES}/ns1")
    told = await cluster.aio.wait_for("ns", "ns1", lambda obj: get_conditions(obj))
    assert get_conditions(told)[3][3] == "Some resources are remaining: pods. has 1 resource instances"
    assert "deletionTimestamp" not in (await client.get(f"{maps}/one"))["metadata"]
    await client.patch(f"{pods}/one", {"metadata": {"finalizers": None}})
    await client.wait_gone(f"{NAMESPACES}/ns1")


async def test_big_families_are_collected_completely(client: Client, kexes: str) -> None:
    parent = await client.create(kexes, make_kex("parent"))
    for number in range(300):
        await client.create(
            CONFIG_MAPS, make_config_map(f"child-{number}", metadata={"ownerReferences": [owner(parent)]})
        )
    await client.delete(f"{kexes}/parent")
    await client.wait(CONFIG_MAPS, lambda found: not found["items"])


@pytest.mark.fastforward
async def test_failed_work_is_tried_again_and_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    queue, times = WorkQueue(), list[int]()
    loop = asyncio.get_running_loop()
    began = loop.time()
    done = asyncio.Event()

    def fail_thrice() -> None:
        times.append(round(loop.time() - began))
        if len(times) <= 4:
            raise KeyError("type")
        done.set()

    queue.add(fail_thrice)
    queue.add(times.append, -1)
    worker = asyncio.create_task(queue.run())
    await done.wait()
    worker.cancel()
    await queue.close()
    assert times == [0, -1, 1, 3, 7]
    assert caplog.text.count("fail_thrice(), and tries again in ") == 3
