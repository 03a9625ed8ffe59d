"""Which namespaces are served if they are looked at once; against a scripted server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.http.api import APIClient
from kopf._operator.namespaces import Namespaces
from kopf._settings.settings import OperatorSettings
from tests.client.scripted import ScriptedServer, refuse, reply
from tests.runtimes import make_runtime

LIST = "GET /api/v1/namespaces"
FOUND = reply({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": n}} for n in ("ns1", "ns2", "x")]})


class Served:
    """The namespaces of an operator with such patterns, and how many times they have changed."""

    def __init__(self, server: ScriptedServer) -> None:
        settings = OperatorSettings()
        self.server = server
        self.vault = Vault(settings)
        self.vault.populate([ConnectionInfo(server=server.url)])
        self.runtime = make_runtime(api=APIClient(self.vault, settings))
        self.runtime.settings.scanning.disabled = True
        self.changes = 0

    async def find(self, *patterns: str) -> set[str | None]:
        namespaces = Namespaces(self.runtime, patterns)
        namespaces.on_change = self._count_change
        async with asyncio.TaskGroup() as group:
            await namespaces.start(group)
        return {*namespaces.names}

    def _count_change(self) -> None:
        self.changes += 1


@pytest.fixture
async def served(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Served]:
    caplog.set_level(logging.INFO, "kopf._operator")
    server = ScriptedServer()
    await server.start()
    served = Served(server)
    yield served
    await served.vault.close()
    await server.stop()
    assert not server.unexpected


async def test_the_whole_cluster_and_exact_names_need_no_requests(served: Served) -> None:
    assert await served.find() == {None}
    assert served.changes == 0
    assert await served.find("ns1", "absent") == {"ns1", "absent"}
    assert served.changes == 1
    assert not served.server.requests


async def test_patterns(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.server.on(LIST, FOUND)
    assert await served.find("ns?", "exact", "none*") == {"ns1", "ns2", "exact"}
    assert served.changes == 1
    assert caplog.messages == ["No namespaces match none*. They will not be noticed until the restart."]


async def test_exact_names_are_served_if_nothing_is_permitted(
    served: Served,
    caplog: pytest.LogCaptureFixture,
) -> None:
    served.server.on(LIST, refuse(403))
    assert await served.find("ns?", "exact") == {"exact"}
    assert "The namespaces that match ns? are not served, only the exact names are." in caplog.text
    assert caplog.records[0].levelno == logging.ERROR
