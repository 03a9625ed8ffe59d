"""Listings as the beginnings of streams: for servers that can do it, and those that cannot."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator

import pytest

from kopf._client.auth.credentials import ConnectionInfo
from kopf._client.auth.vault import Vault
from kopf._client.errors import APIForbiddenError
from kopf._client.http.api import APIClient
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_machine import WatchEvent
from kopf._client.resources.watching import watch_batches
from kopf._settings.settings import OperatorSettings
from kopf._values.resources import Resource
from kopf_cluster import LocalCluster
from tests.client.scripted import ScriptedServer, line, listing, obj, refuse, reply, stream
from tests.client.test_watching import GONE, LIST, RESOURCE, SILENCE, WATCH, describe

END = line(
    "BOOKMARK",
    {"metadata": {"resourceVersion": "10", "annotations": {"k8s.io/initial-events-end": "true"}}},
)
PLAIN_BOOKMARK = line("BOOKMARK", {"metadata": {"resourceVersion": "10"}})


@pytest.fixture(autouse=True)
def _streaming(settings: OperatorSettings) -> None:
    settings.watching.initial_streaming = True


async def take(api: APIClient, settings: OperatorSettings, count: int) -> list[str]:
    """Get the first so many events of a new watcher, in short form."""
    events: list[WatchEvent] = []
    async with contextlib.aclosing(watch_batches(api, settings, Target(RESOURCE))) as batches:
        async for batch in batches:
            events.extend(batch)
            if len(events) >= count:
                break
    return [describe(event) for event in events]


async def test_one_request_for_everything(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    initial = line("ADDED", obj("a", 1)) + line("ADDED", obj("b", 2)) + END
    server.on(WATCH, stream(initial, line("MODIFIED", obj("a", 11)), line("DELETED", obj("b", 12)), end="silent"))
    assert await take(api, settings, 5) == ["None:a:1", "None:b:2", "LISTED", "MODIFIED:a:11", "DELETED:b:12"]
    assert [dict(request.query) for request in server.requests] == [
        {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
        }
    ]


async def test_empty_listings(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    server.on(WATCH, stream(END, line("ADDED", obj("a", 11)), end="silent"))
    assert await take(api, settings, 2) == ["LISTED", "ADDED:a:11"]


async def test_changes_while_listing(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    """Nobody promises that there are none."""
    lines = [
        line("ADDED", obj("a", 1)),
        line("ADDED", obj("b", 2)),
        line("MODIFIED", obj("a", 3)),
        line("DELETED", obj("b", 4)),
        END,
    ]
    server.on(WATCH, stream(b"".join(lines), end="silent"))
    assert await take(api, settings, 5) == ["None:a:1", "None:b:2", "None:a:3", "DELETED:b:4", "LISTED"]


@pytest.mark.fastforward
async def test_continuation_of_the_stream(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    server.on(WATCH, stream(line("ADDED", obj("a", 1)) + END), stream(line("MODIFIED", obj("a", 11)), end="silent"))
    assert await take(api, settings, 3) == ["None:a:1", "LISTED", "MODIFIED:a:11"]
    assert "sendInitialEvents" not in server.requests[1].query
    assert server.requests[1].query["resourceVersion"] == "10"


@pytest.mark.fastforward
async def test_interrupted_listings_begin_anew(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    server.on(
        WATCH,
        stream(line("ADDED", obj("a", 1)), end="abort"),
        stream(line("ADDED", obj("a", 1)) + line("ADDED", obj("b", 2))),
        stream(line("ADDED", obj("b", 2)) + END, end="silent"),
    )
    assert await take(api, settings, 4) == ["None:a:1", "None:b:2", "DELETED:a:1", "LISTED"]


@pytest.mark.fastforward
async def test_expired_versions_lead_to_another_streamed_listing(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    server.on(
        WATCH,
        stream(line("ADDED", obj("a", 1)) + END + line("ERROR", GONE)),
        stream(line("ADDED", obj("b", 2)) + END, end="silent"),
    )
    assert await take(api, settings, 5) == ["None:a:1", "LISTED", "ADDED:b:2", "DELETED:a:1", "LISTED"]
    assert all(request.query["sendInitialEvents"] == "true" for request in server.requests)


@pytest.mark.parametrize("status", [400, 422])
async def test_servers_that_refuse(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.INFO)
    server.on(WATCH, refuse(status, "Invalid", "sendInitialEvents is forbidden"), SILENCE)
    server.on(LIST, reply(listing(10, obj("a", 1))))
    assert await take(api, settings, 2) == ["None:a:1", "LISTED"]
    assert "are listed by pages, not streamed: " in caplog.text


async def test_servers_that_do_not_know(server: ScriptedServer, api: APIClient, settings: OperatorSettings) -> None:
    """Older ones ignore the parameters: they send all objects too, but do not tell where the end is."""
    server.on(WATCH, stream(line("ADDED", obj("a", 1)) + PLAIN_BOOKMARK, end="silent"), SILENCE)
    server.on(LIST, reply(listing(10, obj("a", 1), obj("b", 2))))
    assert await take(api, settings, 3) == ["None:a:1", "None:b:2", "LISTED"]


async def test_refused_permissions_are_not_about_streaming(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    server.on(WATCH, refuse(403, "Forbidden"))
    with pytest.raises(APIForbiddenError):
        await take(api, settings, 1)


class TestWithCluster:
    @pytest.fixture
    async def api(self, settings: OperatorSettings) -> AsyncIterator[APIClient]:
        async with LocalCluster() as cluster:
            vault = Vault(settings)
            vault.populate([ConnectionInfo(server=cluster.url, ca_data=cluster.ca_data, token=cluster.token)])
            yield APIClient(vault, settings)
            await vault.close()

    async def test_with_the_real_protocol(self, api: APIClient, settings: OperatorSettings) -> None:
        namespaces = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
        names: list[str] = []
        async with contextlib.aclosing(watch_batches(api, settings, Target(namespaces))) as batches:
            async for events in batches:
                names.extend(describe(event).rpartition(":")[0] for event in events)
                if "ADDED:new" in names:
                    break
                if "" in names and "ADDED:new" not in names and names[-1] == "":
                    payload = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}
                    await api.post("/api/v1/namespaces", payload=payload)
        assert names.index("") < names.index("ADDED:new")
        assert "None:default" in names[: names.index("")]
