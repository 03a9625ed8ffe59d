from __future__ import annotations

import asyncio
import gc

import pytest

from kopf._client.errors import APIGoneError, APIServerError
from kopf._client.http.api import APIClient
from kopf._client.resources.listing import ListPage, ShardingError, list_pages
from kopf._client.resources.targets import Target
from kopf._settings.settings import OperatorSettings
from kopf._values.resources import Resource
from tests.client.scripted import ScriptedServer, listing, obj, refuse, reply

RESOURCE = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)
PATH = "/apis/kopf.dev/v1/kopfexamples"


async def collect(api: APIClient, settings: OperatorSettings, namespace: str | None = None) -> list[ListPage]:
    return [page async for page in list_pages(api, settings, Target(RESOURCE, namespace))]


def names(pages: list[ListPage]) -> list[list[str]]:
    return [[item.head.name for item in page.objects] for page in pages]


async def test_one_page(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    server.on(f"GET {PATH}", reply(listing(10, obj("a", 1, spec={"x": 1}), obj("b", 2))))
    [page] = await collect(api, settings)
    assert page.version == "10"
    assert page.objects[0] == {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a", "resourceVersion": "1"},
        "spec": {"x": 1},
    }
    assert dict(server.requests[0].query) == {"limit": "500"}
    assert server.requests[0].headers["Accept-Encoding"] == "gzip"


async def test_nothing_to_list(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    server.on(f"GET {PATH}", reply(listing(10)), reply({**listing(11), "items": None}))
    assert names(await collect(api, settings)) == [[]]
    assert names(await collect(api, settings)) == [[]]


async def test_several_pages(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    settings.watching.chunk_size = 2
    server.on(
        f"GET {PATH}",
        reply(listing(10, obj("a", 1), obj("b", 2), token="one")),
        reply(listing(10, obj("c", 3), obj("d", 4), token="two/+=")),
        reply(listing(10, obj("e", 5))),
    )
    assert names(await collect(api, settings)) == [["a", "b"], ["c", "d"], ["e"]]
    assert [dict(request.query) for request in server.requests] == [
        {"limit": "2"},
        {"limit": "2", "continue": "one"},
        {"limit": "2", "continue": "two/+="},
    ]


@pytest.mark.parametrize(("size", "least", "most"), [(1000, 1_500, 2_097), (100_000, 500, 500)])
async def test_pages_are_of_reasonable_size(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings, size: int, least: int, most: int
) -> None:
    """Small objects come by thousands at once, large ones do not."""
    large = {**obj("a", 1), "data": "x" * size}
    server.on(f"GET {PATH}", reply(listing(10, large, token="one")), reply(listing(10, obj("b", 2))))
    assert names(await collect(api, settings)) == [["a"], ["b"]]
    first, second = (int(request.query["limit"]) for request in server.requests)
    assert first == 500
    assert least <= second <= most


async def test_pages_are_requested_one_by_one(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    server.on(f"GET {PATH}", reply(listing(10, obj("a", 1), token="one")))
    pages = list_pages(api, settings, Target(RESOURCE))
    assert names([await anext(pages)]) == [["a"]]
    await asyncio.sleep(0.01)
    assert len(server.requests) == 1
    await pages.aclose()


async def test_namespaces(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    path = "/apis/kopf.dev/v1/namespaces/ns1/kopfexamples"
    server.on(f"GET {path}", reply(listing(10)))
    await collect(api, settings, "ns1")


async def test_server_side_selectors(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    settings.watching.label_selectors = {"kopfexamples.kopf.dev": "a=b,!c", "pods": "x=y"}
    settings.watching.field_selectors = {"kopfexamples.kopf.dev": "metadata.name=x"}
    settings.watching.shard_selectors = {"kopfexamples.kopf.dev": "shardRange(object.metadata.uid, '0x0', '0x8')"}
    content = listing(10)
    content["metadata"]["shardInfo"] = {"selector": "shardRange(object.metadata.uid, '0x0', '0x8')"}
    server.on(f"GET {PATH}", reply(content))
    await collect(api, settings)
    assert dict(server.requests[0].query) == {
        "limit": "500",
        "labelSelector": "a=b,!c",
        "fieldSelector": "metadata.name=x",
        "shardSelector": "shardRange(object.metadata.uid, '0x0', '0x8')",
    }


async def test_servers_that_ignore_shards(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    """Every shard would handle all objects."""
    settings.watching.shard_selectors = {"kopfexamples.kopf.dev": "shardRange(object.metadata.uid, '0x0', '0x8')"}
    server.on(f"GET {PATH}", reply(listing(10, obj("a", 1))), reply(listing(10, obj("a", 1))))
    with pytest.raises(ShardingError, match="ignores settings.watching.shard_selectors for 'kopfexamples.kopf.dev'"):
        await collect(api, settings)


@pytest.mark.parametrize("status", [400, 500])
async def test_servers_that_select_but_do_not_tell(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings, status: int
) -> None:
    """Custom resources have no ``shardInfo``; a wrong selector is refused nevertheless."""
    settings.watching.shard_selectors = {"kopfexamples.kopf.dev": "shardRange(object.metadata.uid, '0x0', '0x8')"}
    pages = [reply(listing(10, obj("a", 1), token="one")), reply(listing(10, obj("b", 1)))]
    server.on(f"GET {PATH}", pages[0], refuse(status, "BadRequest", "invalid shard selector: none"), pages[1])
    assert names(await collect(api, settings)) == [["a"], ["b"]]
    assert dict(server.requests[1].query) == {"limit": "1", "shardSelector": "none"}


async def test_shards_are_not_doubted_if_the_server_fails(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    settings.watching.shard_selectors = {"kopfexamples.kopf.dev": "shardRange(object.metadata.uid, '0x0', '0x8')"}
    server.on(f"GET {PATH}", reply(listing(10)), refuse(500, "InternalError", "etcd is away"))
    with pytest.raises(APIServerError, match="etcd is away"):
        await collect(api, settings)


async def test_all_at_once(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    server.on(f"GET {PATH}", reply(listing(10, obj("a", 1))))
    assert [page async for page in list_pages(api, settings, Target(RESOURCE), paged=False)]
    assert dict(server.requests[0].query) == {}


async def test_expired_continuation(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    server.on(f"GET {PATH}", reply(listing(10, obj("a", 1), token="one")), refuse(410, "Expired"))
    with pytest.raises(APIGoneError):
        await collect(api, settings)


async def test_response_that_is_not_a_listing(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    server.on(f"GET {PATH}", reply([]))
    with pytest.raises(ValueError, match="Expected `object`"):
        await collect(api, settings)


async def test_kept_objects_do_not_keep_their_pages(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    server.on(f"GET {PATH}", reply(listing(10, *[obj(f"x{i}", i, data="x" * 1000) for i in range(100)])))
    [page] = await collect(api, settings)
    kept = page.objects[50]
    del page
    assert len(kept.raw) < 2000
    sizes = [len(item) for item in gc.get_referents(kept) if isinstance(item, bytes | memoryview)]
    assert sizes == [len(kept.raw)]
