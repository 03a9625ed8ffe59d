from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import pytest

from kopf._client.errors import APIGoneError
from kopf._client.http.api import APIClient
from kopf._client.resources.metadata_listing import list_metadata
from kopf._client.resources.targets import Target
from kopf._settings.settings import OperatorSettings
from kopf._values.resources import Resource
from tests.client.scripted import ScriptedServer, listing, obj, refuse, reply, stream

TARGET = Target(Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True))
PATH = "/apis/kopf.dev/v1/kopfexamples"


async def collect(api: APIClient, settings: OperatorSettings, mentioning: str = "") -> list[list[str]]:
    async with contextlib.aclosing(list_metadata(api, settings, TARGET, mentioning=mentioning)) as pages:
        return [[meta.name for meta in page] async for page in pages]


def blocked(name: str) -> dict[str, Any]:
    content = obj(name, 1)
    content["metadata"]["finalizers"] = ["example.com/x"]
    return content


async def test_pages(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    settings.watching.label_selectors = {"kopfexamples.kopf.dev": "a=b"}
    pages = [listing(10, obj("a", 1), obj("b", 1), token="next"), listing(10, obj("c", 1))]
    server.on(f"GET {PATH}", *map(reply, pages))
    assert await collect(api, settings) == [["a", "b"], ["c"]]
    assert [dict(request.query) for request in server.requests] == [
        {"limit": "500", "labelSelector": "a=b"},
        {"limit": "500", "labelSelector": "a=b", "continue": "next"},
    ]
    assert "as=PartialObjectMetadataList" in server.requests[0].headers["Accept"]


async def test_nothing(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    server.on(f"GET {PATH}", reply(listing(10)))
    assert await collect(api, settings) == []


async def test_only_pages_that_mention_something(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    server.on(
        f"GET {PATH}",
        reply(listing(10, obj("a", 1), token="next")),
        reply(listing(10, obj("b", 1), blocked("c"), token="last")),
        reply(listing(10, obj("d", 1))),
    )
    assert await collect(api, settings, "example.com/x") == [["b", "c"]]


async def test_malformed_metadata(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    wrong: list[Any] = [{"metadata": {"name": "w", "labels": [1]}}, {"metadata": {"name": 1}}, {"metadata": 1}, {}]
    server.on(f"GET {PATH}", reply(listing(10, obj("a", 1), *wrong, obj("b", 1))))
    assert await collect(api, settings) == [["a", "w", "b"]]


async def test_whole_objects_that_are_nested_too_deeply(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    """Servers can ignore what is accepted."""
    text = json.dumps(listing(10, obj("a", 1, spec="deep"), obj("b", 1), token="next"))
    content = text.replace('"deep"', "[" * 20_000 + "]" * 20_000).encode()
    server.on(f"GET {PATH}", *[stream(content), reply(listing(10, obj("c", 1)))] * 2)
    assert await collect(api, settings) == [["a", "b"], ["c"]]
    is_readable = sys.version_info >= (3, 14)  # values can be skipped at such depths: nothing there mentions something
    assert await collect(api, settings, "something") == ([] if is_readable else [["a", "b"]])


async def test_refusals(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    server.on(f"GET {PATH}", reply(listing(10, obj("a", 1), token="next")), refuse(410, "Expired"))
    with pytest.raises(APIGoneError):
        await collect(api, settings)


@pytest.mark.parametrize("content", [{}, {"kind": "Status"}, [], 1])
async def test_what_is_not_a_listing(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings, content: Any
) -> None:
    server.on(f"GET {PATH}", reply(content))
    with pytest.raises(ValueError, match=r"metadata|Expected"):
        await collect(api, settings)
