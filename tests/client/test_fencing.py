"""The fence: what was begun for the objects does not change them when they can belong to another replica."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.fencing import Fence, FencedError
from kopf._client.http.api import APIClient
from kopf._settings.settings import OperatorSettings
from tests.client.scripted import ScriptedServer, refuse, reply


@pytest.fixture
async def fence(api: APIClient) -> Fence:
    api.fence = Fence()
    return api.fence


def behind(fence: Fence, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Work on an object, in a context of its own."""
    context = contextvars.copy_context()
    context.run(fence.enter)
    return asyncio.create_task(coro, context=context)


def write(api: APIClient) -> Coroutine[Any, Any, bytes]:
    return api.patch("/x", payload={"a": 1})


async def test_the_deadline_shuts_it_for_good() -> None:
    fence = Fence()
    assert fence.is_shut
    assert not fence.extend(fence.now() + 60)
    fence.open(fence.now() + 60)
    assert fence.extend(fence.now() - 1)  # a response that has come late, after a newer one
    assert fence.extend(fence.now() + 60)
    fence.shut()
    assert not fence.extend(fence.now() + 60)
    assert fence.is_shut


@pytest.mark.loops
async def test_the_clock_goes_on_while_the_loop_stands_still() -> None:
    fence = Fence()
    fence.open(fence.now() + 0.05)
    time.sleep(0.1)  # that is what it is about
    assert fence.is_shut


@pytest.mark.fastforward
async def test_the_clock_is_virtual_with_the_loop() -> None:
    fence = Fence()
    fence.open(fence.now() + 60)
    await asyncio.sleep(59)
    assert not fence.is_shut
    await asyncio.sleep(2)
    assert fence.is_shut


@pytest.mark.parametrize("method", ["post", "patch", "delete"])
async def test_nothing_is_changed_behind_it(server: ScriptedServer, api: APIClient, fence: Fence, method: str) -> None:
    make: Callable[..., Coroutine[Any, Any, bytes]] = getattr(api, method)
    with pytest.raises(FencedError):
        await behind(fence, make("/x", payload={}))
    assert not server.requests


async def test_it_lets_through_while_it_is_open(server: ScriptedServer, api: APIClient, fence: Fence) -> None:
    server.on("PATCH /x", reply())
    fence.open(fence.now() + 60)
    await behind(fence, write(api))


async def test_reading_goes_on_behind_it(server: ScriptedServer, api: APIClient, fence: Fence) -> None:
    server.on("GET /x", reply())
    await behind(fence, api.get("/x"))


async def test_what_is_not_for_objects_goes_on(server: ScriptedServer, api: APIClient, fence: Fence) -> None:
    server.on("PATCH /x", reply())
    await write(api)


async def test_what_was_begun_before_is_over_when_it_opens_again(api: APIClient, fence: Fence) -> None:
    fence.open(fence.now() + 60)
    context = contextvars.copy_context()
    context.run(fence.enter)
    fence.shut()
    fence.open(fence.now() + 60)
    with pytest.raises(FencedError):
        await asyncio.create_task(write(api), context=context)


async def test_other_operators_have_fences_of_their_own(server: ScriptedServer, api: APIClient, fence: Fence) -> None:
    server.on("PATCH /x", reply())
    await behind(Fence(), write(api))


async def test_attempts_are_not_repeated_behind_it(
    server: ScriptedServer, api: APIClient, fence: Fence, settings: OperatorSettings
) -> None:
    settings.networking.error_backoffs = (0.01, 0.01)

    async def fail(request: Any) -> Any:
        fence.shut()
        return await refuse(500)(request)

    server.on("PATCH /x", fail)
    fence.open(fence.now() + 60)
    with pytest.raises(FencedError):
        await behind(fence, write(api))


@pytest.mark.parametrize("client", ["direct", "aiohttp"])
async def test_waiting_for_credentials_is_behind_it(
    server: ScriptedServer, settings: OperatorSettings, client: Any
) -> None:
    settings.networking.client = client
    vault = Vault(settings)
    api = APIClient(vault, settings)
    api.fence = fence = Fence()
    fence.open(fence.now() + 60)
    task = behind(fence, write(api))
    await asyncio.sleep(0)
    fence.shut()
    vault.populate([ConnectionInfo(server=server.url, token="token-1")])
    with pytest.raises(FencedError):
        await task
    assert not server.requests
    await vault.close()


async def test_connecting_is_behind_it(
    server: ScriptedServer, api: APIClient, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kopf._client.http.connecting import Connector

    connect = Connector.connect

    async def connect_slowly(self: Connector, *args: Any) -> None:
        await connect(self, *args)
        fence.shut()  # e.g. the process was frozen until now

    monkeypatch.setattr(Connector, "connect", connect_slowly)
    fence.open(fence.now() + 60)
    with pytest.raises(FencedError):
        await behind(fence, write(api))
    assert not server.requests


async def test_threads_stand_behind_it_by_their_contexts(fence: Fence) -> None:
    context = contextvars.copy_context()
    context.run(fence.enter)
    errors: list[BaseException] = []

    def check() -> None:
        try:
            context.run(fence.check)
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
    assert [type(error) for error in errors] == [FencedError]
