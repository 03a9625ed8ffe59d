"""The settings of watch-streams: how long the connecting may take, how soon they are reopened."""
from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.errors import APINetworkError
from kopf._client.http.api import APIClient
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_machine import LISTED
from kopf._client.resources.watching import watch_batches
from kopf._settings.settings import OperatorSettings
from kopf._values.resources import Resource
from tests.client.scripted import ScriptedServer, line, listing, obj, reply, stream

PATH = "/apis/kopf.dev/v1/kopfexamples"


@pytest.mark.fastforward
@pytest.mark.parametrize(("watching", "connecting", "requests", "expected"), [
    (5, 50, 500, 5),  # the most specific one
    (50, 5, 500, 50),
    (None, 5, 500, 5),  # that of regular requests, if there is none of streams
    (None, None, 5, 5),  # the overall time of regular requests, if there are none for connecting
    (None, None, 40, 40),
])
async def test_connect_timeout(
    api: APIClient, vault: Vault, settings: OperatorSettings,
    watching: float | None, connecting: float | None, requests: float, expected: float,
) -> None:
    settings.watching.connect_timeout = watching
    settings.networking.connect_timeout = connecting
    settings.networking.request_timeout = requests
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as mute:  # it never accepts, so the TLS handshake hangs
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        vault.populate([ConnectionInfo(server=url, insecure=True, priority=1)])
        started = loop.time()
        with pytest.raises(APINetworkError, match=r"onnection timeout"):
            await anext(api.stream(PATH))
        assert expected <= loop.time() - started < expected * 1.1 + 1


@pytest.mark.fastforward
@pytest.mark.parametrize("backoff", [0.1, 10.0, 1000.0])
async def test_reconnect_backoff(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings, backoff: float
) -> None:
    """Streams end normally from time to time; the next one is not requested at once."""
    settings.watching.reconnect_backoff = backoff
    server.on(f"GET {PATH}", reply(listing(10)))
    server.on(f"WATCH {PATH}", *[stream(line("ADDED", obj("x", version))) for version in range(11, 15)])
    times: list[float] = []
    target = Target(Resource("kopf.dev", "v1", "kopfexamples"))
    async with contextlib.aclosing(watch_batches(api, settings, target)) as batches:
        assert await anext(batches) == [LISTED]
        for _ in range(4):
            await anext(batches)
            times.append(asyncio.get_running_loop().time())
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses == pytest.approx([backoff] * 3, rel=0.2, abs=0.2)
