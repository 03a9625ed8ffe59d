"""The record of the operator in one peering object: how it is put, renewed, and withdrawn; with a scripted server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._coordination.peering_keepalive import AnnouncementCallbacks, Announcer
from kopf._coordination.peers import Peers
from kopf._coordination.records import Site
from kopf._settings.settings import OperatorSettings
from kopf._values.objects import KubeObject
from kopf._values.resources import Resource
from tests.client.scripted import ScriptedServer, refuse, reply
from tests.runtimes import make_runtime

pytestmark = pytest.mark.fastforward

RESOURCE = Resource("kopf.dev", "v1", "kopfpeerings", "KopfPeering", namespaced=True)
PATCH = "PATCH /apis/kopf.dev/v1/namespaces/ns/kopfpeerings/default"


class Member:
    """The announcer, and what it has told to those who decide."""

    def __init__(self, server: ScriptedServer) -> None:
        settings = OperatorSettings()
        self.vault = Vault(settings)
        self.vault.populate([ConnectionInfo(server=server.url)])
        self.peers = Peers("us")
        self.told: list[object] = []
        self.can_wait = False
        runtime = make_runtime(api=APIClient(self.vault, settings))
        callbacks = AnnouncementCallbacks(self._accept, self.told.append, lambda: self.can_wait)
        self.announcer = Announcer(Site(runtime, "us", "ns"), RESOURCE, self.peers, callbacks)

    def _accept(self, obj: KubeObject | None) -> None:
        self.told.append(obj)
        runtime = self.announcer._site.runtime
        self.peers.take(obj and obj.get("status"), now=runtime.clock.now(), time=asyncio.get_running_loop().time())


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def member(server: ScriptedServer) -> AsyncIterator[Member]:
    member = Member(server)
    running = asyncio.create_task(member.announcer.run())
    yield member
    running.cancel()
    await asyncio.wait([running])
    await member.vault.close()


def make_peering(*identities: str) -> dict[str, object]:
    record = {"priority": 0, "lifetime": 60, "lastseen": "2020-01-01T00:00:00Z"}
    return {"metadata": {"name": "default"}, "status": dict.fromkeys(identities, record)}


async def test_it_ends_also_when_something_happens_at_that_very_moment(server: ScriptedServer, member: Member) -> None:
    server.on(PATCH, *[reply(make_peering("us"))] * 3)
    running = asyncio.create_task(member.announcer.run())
    await server.until(PATCH, 2)
    await asyncio.sleep(1)
    member.announcer.hurry()
    running.cancel()
    await asyncio.wait([running], timeout=10)
    assert running.cancelled()


async def test_absent_objects(server: ScriptedServer, member: Member) -> None:
    member.can_wait = True
    server.on(PATCH, refuse(404), reply(make_peering("us")))
    await member.announcer.tried.wait()
    assert member.told == [None]
    assert not member.announcer.state.is_announced
    await asyncio.sleep(1000)
    assert server.count(PATCH) == 1  # it waits to be told that the object is there
    await member.announcer.withdraw()
    assert server.count(PATCH) == 1  # there is nothing to be withdrawn


async def test_dropped_records_are_warned_of_once(
    server: ScriptedServer,
    member: Member,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.on(PATCH, *[reply(make_peering())] * 3)
    await server.until(PATCH, 3)
    [message] = [message for message in caplog.messages if "The API drops the records" in message]
    assert "x-kubernetes-preserve-unknown-fields" in message


@pytest.mark.parametrize(
    ("response", "is_told"), [(reply(make_peering()), False), (refuse(404), False), (refuse(403), True)]
)
async def test_withdrawals(
    server: ScriptedServer,
    member: Member,
    caplog: pytest.LogCaptureFixture,
    response: object,
    is_told: bool,
) -> None:
    server.on(PATCH, reply(make_peering("us")), response)  # type: ignore[arg-type]
    await member.announcer.tried.wait()
    await member.announcer.withdraw()
    assert json.loads(server.bodies[1]) == {"status": {"us": None}}
    assert ("Could not withdraw" in caplog.text) is is_told
