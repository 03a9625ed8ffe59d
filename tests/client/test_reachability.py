"""A server that does not answer: it is said once for all, then once a minute, and when it is over."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.errors import APINetworkError
from kopf._client.http.api import APIClient
from tests.client.scripted import ScriptedServer, drop, reply


@pytest.mark.fastforward
async def test_many_requests_to_nowhere(
    vault: Vault,
    api: APIClient,
    port: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    vault.populate([ConnectionInfo(server=f"http://user:secret@127.0.0.1:{port}", priority=1)])
    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(fail(api, f"/x{number}"))
    lines = [record for record in caplog.records if record.levelno > logging.DEBUG]
    assert re.fullmatch(
        rf"The server http://\S+127\.0\.0\.1:{port} is unreachable, and Kopf keeps trying: GET .+",
        lines[0].getMessage(),
    )
    expected = r"The server \S+ has been unreachable for \d+ (seconds|minutes); \d+ requests have failed\. The last .*"
    assert all(re.fullmatch(expected, record.getMessage()) for record in lines[1:])
    assert 3 <= len(lines[1:]) <= 4
    assert {record.levelname for record in lines} == {"WARNING"}
    assert "secret" not in caplog.text


async def fail(api: APIClient, path: str) -> None:
    with pytest.raises(APINetworkError) as info:
        await api.get(path, backoffs=[10] * 24)  # four minutes in total
    assert info.value.is_told


@pytest.mark.fastforward
async def test_the_end(
    vault: Vault,
    api: APIClient,
    server: ScriptedServer,
    port: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    vault.populate([ConnectionInfo(server=f"http://127.0.0.1:{port}", priority=1)])
    request = asyncio.create_task(api.get("/x", backoffs=[30] * 4))
    await asyncio.sleep(100)
    listener = await asyncio.start_server(answer, "127.0.0.1", port)
    async with listener:
        assert await request == b"{}"
        assert re.fullmatch(
            r"The server \S+ is reachable again after 2 minutes; \d requests have failed\.", caplog.messages[-1]
        )
        count = len(caplog.messages)
        await api.get("/x")
        assert len(caplog.messages) == count


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
    await writer.drain()
    writer.close()


@pytest.mark.fastforward
async def test_single_disconnects_are_not_taken_for_that(
    server: ScriptedServer,
    api: APIClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.on("PATCH /x", drop, reply({}))
    await api.patch("/x", payload={})
    [message] = caplog.messages
    assert message.startswith("A request has failed and will be repeated in ")
