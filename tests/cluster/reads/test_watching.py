from __future__ import annotations

import asyncio

import pytest

from kopf_cluster import LocalCluster
from tests.cluster.conftest import (
    CONFIG_MAPS,
    CRDS,
    Client,
    make_config_map,
    make_kex,
)
from tests.patience import PATIENCE


async def version_of(client: Client, path: str = CONFIG_MAPS) -> str:
    return str((await client.get(path))["metadata"]["resourceVersion"])


async def test_the_life_of_an_object(client: Client, kexes: str) -> None:
    version = await version_of(client, kexes)
    async with client.watch(kexes, resourceVersion=version) as stream:
        made = await client.create(kexes, make_kex())
        patched = await client.patch(f"{kexes}/one", {"spec": {"a": 1}})
        await client.delete(f"{kexes}/one")
        assert await stream.next() == {"type": "ADDED", "object": made}
        assert await stream.next() == {"type": "MODIFIED", "object": patched}
        last = await stream.next()
        assert last["type"] == "DELETED"
        assert last["object"]["spec"] == {"a": 1}
        assert int(last["object"]["metadata"]["resourceVersion"]) > int(patched["metadata"]["resourceVersion"])


@pytest.mark.parametrize("params", [{}, {"resourceVersion": "0"}, {"resourceVersion": ""}])
async def test_without_a_version_the_current_state_comes_first(client: Client, params: dict[str, str]) -> None:
    await client.create(CONFIG_MAPS, make_config_map("a"))
    await client.create(CONFIG_MAPS, make_config_map("b"))
    async with client.watch(CONFIG_MAPS, **params) as stream:
        assert await stream.take(2) == [("ADDED", "a"), ("ADDED", "b")]
        await client.create(CONFIG_MAPS, make_config_map("c"))
        assert await stream.take(1) == [("ADDED", "c")]


@pytest.mark.parametrize("flag", ["", "True", "yes"])
async def test_watches_are_asked_for_by_any_value_even_by_none(client: Client, flag: str) -> None:
    """As in ``curl .../configmaps?watch``. Single objects are not watched: they are got."""
    made = await client.create(CONFIG_MAPS, make_config_map("a"))
    async with client.watch(CONFIG_MAPS, watch=flag) as stream:
        assert await stream.next() == {"type": "ADDED", "object": made}
    async with asyncio.timeout(PATIENCE):  # not a stream
        assert await client.get(f"{CONFIG_MAPS}/a", params={"watch": flag}) == made


async def test_watches_go_on_from_any_version(client: Client) -> None:
    versions = [await version_of(client)]
    for name in "abc":
        obj = await client.create(CONFIG_MAPS, make_config_map(name))
        versions.append(obj["metadata"]["resourceVersion"])
    for index, version in enumerate(versions[:-1]):
        async with client.watch(CONFIG_MAPS, resourceVersion=version) as stream:
            assert await stream.take(3 - index) == [("ADDED", name) for name in "abc"[index:]]


async def test_forgotten_versions_are_expired(client: Client, cluster: LocalCluster) -> None:
    version = await version_of(client)
    await client.create(CONFIG_MAPS, make_config_map())
    cluster.faults.compact()
    async with client.watch(CONFIG_MAPS, resourceVersion=version) as stream:
        event = await stream.next()
        assert event["type"] == "ERROR"
        assert event["object"]["code"] == 410
        assert event["object"]["reason"] == "Expired"
        assert event["object"]["message"].startswith(f"too old resource version: {version} (")
        assert await stream.next() is None


async def test_current_watches_survive_the_compaction(client: Client, cluster: LocalCluster) -> None:
    async with client.watch(CONFIG_MAPS) as stream:
        cluster.faults.compact()
        await client.create(CONFIG_MAPS, make_config_map())
        assert await stream.take(1) == [("ADDED", "one")]


async def test_objects_come_and_go_with_selectors(client: Client) -> None:
    version = await version_of(client)
    await client.create(CONFIG_MAPS, make_config_map(metadata={"labels": {"l": "x"}}))
    await client.patch(f"{CONFIG_MAPS}/one", {"data": {"a": "1"}})
    await client.patch(f"{CONFIG_MAPS}/one", {"metadata": {"labels": {"l": "y"}}, "data": {"a": "2"}})
    await client.patch(f"{CONFIG_MAPS}/one", {"data": {"a": "3"}})
    back = await client.patch(f"{CONFIG_MAPS}/one", {"metadata": {"labels": {"l": "x"}}})
    await client.delete(f"{CONFIG_MAPS}/one")
    async with client.watch(CONFIG_MAPS, resourceVersion=version, labelSelector="l=x") as stream:
        events = [await stream.next() for _ in range(5)]
    shown = [(event["type"], event["object"].get("data")) for event in events]
    assert shown == [
        ("ADDED", None),
        ("MODIFIED", {"a": "1"}),
        ("DELETED", {"a": "1"}),
        ("ADDED", {"a": "3"}),
        ("DELETED", {"a": "3"}),
    ]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[2] == versions[1] + 1  # the state is the old one, but the version is of the change
    assert versions[3] == int(back["metadata"]["resourceVersion"])


async def test_watches_of_one_object_and_of_one_namespace(client: Client) -> None:
    system = "/api/v1/namespaces/kube-system/configmaps"
    async with (
        client.watch(CONFIG_MAPS, fieldSelector="metadata.name=one") as by_field,
        client.watch(CONFIG_MAPS) as by_namespace,
        client.watch("/api/v1/configmaps") as everywhere,
    ):
        await client.create(system, make_config_map("one"))
        await client.create(CONFIG_MAPS, make_config_map("two"))
        await client.create(CONFIG_MAPS, make_config_map("one"))
        assert await by_field.take(1) == [("ADDED", "one")]
        assert await by_namespace.take(2) == [("ADDED", "two"), ("ADDED", "one")]
        assert await everywhere.take(3) == [("ADDED", "one"), ("ADDED", "two"), ("ADDED", "one")]


async def test_future_versions_are_waited_for(client: Client) -> None:
    version = int(await version_of(client)) + 1
    async with client.watch(CONFIG_MAPS, resourceVersion=str(version)) as stream:
        await client.create(CONFIG_MAPS, make_config_map("a"))
        await client.create(CONFIG_MAPS, make_config_map("b"))
        assert await stream.take(1) == [("ADDED", "b")]


@pytest.mark.fastforward
async def test_bookmarks_come_regularly_and_at_the_end(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map())
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with client.watch("/api/v1/secrets", allowWatchBookmarks="true", timeoutSeconds="150") as stream:
        events = [await stream.next() for _ in range(3)]
        assert await stream.next() is None
    assert 149 < loop.time() - started < 160
    metadata = {"resourceVersion": await version_of(client), "creationTimestamp": None}
    bookmark = {"kind": "Secret", "apiVersion": "v1", "metadata": metadata}
    assert events == [{"type": "BOOKMARK", "object": bookmark}] * 3
    async with client.watch("/api/v1/secrets", timeoutSeconds="150") as stream:  # with no demand for them
        assert await stream.next() is None


@pytest.mark.fastforward
async def test_watches_end_in_time_by_themselves(client: Client) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with client.watch(CONFIG_MAPS) as stream:
        assert await stream.next() is None
    assert 1800 <= loop.time() - started < 3700


async def test_streamed_lists_end_with_a_bookmark(client: Client) -> None:
    await client.create(CONFIG_MAPS, make_config_map("a"))
    params = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    async with client.watch(CONFIG_MAPS, **params) as stream:
        assert await stream.take(1) == [("ADDED", "a")]
        bookmark = await stream.next()
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert bookmark["object"]["metadata"]["resourceVersion"] == await version_of(client)
        await client.create(CONFIG_MAPS, make_config_map("b"))
        assert await stream.take(1) == [("ADDED", "b")]
    await client.call("GET", f"{CONFIG_MAPS}?watch=1&sendInitialEvents=true", expected=422)


async def test_watches_end_when_their_kind_is_gone(client: Client, kexes: str) -> None:
    async with client.watch(kexes) as stream:
        await client.create(kexes, make_kex())
        await client.delete(f"{CRDS}/kexes.example.com")
        assert await stream.take(2) == [("ADDED", "one"), ("DELETED", "one")]
        assert await stream.next() is None
