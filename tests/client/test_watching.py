from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from kopf._client.auth.credentials import ConnectionInfo, LoginError
from kopf._client.auth.vault import Vault
from kopf._client.errors import APIForbiddenError, APINotFoundError
from kopf._client.http.api import APIClient
from kopf._client.resources.targets import Target
from kopf._client.resources.watch_failures import MAX_BACKOFF
from kopf._client.resources.watch_machine import LISTED, WatchEvent
from kopf._client.resources.watching import watch_batches
from kopf._settings.settings import OperatorSettings
from kopf._values.resources import Resource
from tests.client.scripted import Responder, ScriptedServer, drop, line, listing, never, obj, refuse, reply, stream

RESOURCE = Resource("kopf.dev", "v1", "kopfexamples", "KopfExample", namespaced=True)
PATH = "/apis/kopf.dev/v1/kopfexamples"
LIST, WATCH = f"GET {PATH}", f"WATCH {PATH}"

Take = Callable[[int], Awaitable[list[str]]]

SILENCE = stream(end="silent")
BOOKMARK = line("BOOKMARK", {"kind": "KopfExample", "metadata": {"resourceVersion": "20"}})
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (2)"}


def describe(event: WatchEvent) -> str:
    if event is LISTED:
        return "LISTED"
    return f"{event.type}:{event.object.head.name}:{event.object.head.resourceVersion}"


@pytest.fixture
async def take(api: APIClient, settings: OperatorSettings) -> AsyncIterator[Take]:
    """Get the next so many events of the watcher, in short form."""
    queue: asyncio.Queue[WatchEvent] = asyncio.Queue()

    async def watch() -> None:
        async with contextlib.aclosing(watch_batches(api, settings, Target(RESOURCE))) as batches:
            async for events in batches:
                for event in events:
                    queue.put_nowait(event)

    task = asyncio.create_task(watch())

    async def take(count: int) -> list[str]:
        events: list[str] = []
        for _ in range(count):
            getter = asyncio.create_task(queue.get())
            await asyncio.wait([getter, task], return_when=asyncio.FIRST_COMPLETED)
            if not getter.done():
                getter.cancel()
                task.result()  # raises
            events.append(describe(await getter))
        return events

    yield take
    task.cancel()
    await asyncio.wait([task])
    assert queue.empty()  # nothing but what was expected


def play(server: ScriptedServer, *streams: Responder) -> None:
    """Let there be nothing to be listed, and then these streams."""
    server.on(LIST, reply(listing(10)))
    server.on(WATCH, *streams)


def versions(server: ScriptedServer) -> list[str | None]:
    return [request.query.get("resourceVersion") for request in server.requests if "watch" in request.query]


async def test_listing_then_watching(server: ScriptedServer, take: Take) -> None:
    server.on(LIST, reply(listing(10, obj("a", 1), token="t")), reply(listing(10, obj("b", 2))))
    server.on(WATCH, stream(line("ADDED", obj("c", 11)) + line("DELETED", obj("a", 12)), end="silent"))
    assert await take(3) == ["None:a:1", "None:b:2", "LISTED"]
    assert await take(2) == ["ADDED:c:11", "DELETED:a:12"]
    assert dict(server.requests[-1].query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "10",
    }


@pytest.mark.parametrize(
    ("namespace", "path", "scope"),
    [(None, PATH, "cluster-wide"), ("ns", "/apis/kopf.dev/v1/namespaces/ns/kopfexamples", "in 'ns'")],
)
async def test_scopes_and_their_logs(
    server: ScriptedServer,
    api: APIClient,
    settings: OperatorSettings,
    caplog: pytest.LogCaptureFixture,
    namespace: str | None,
    path: str,
    scope: str,
) -> None:
    caplog.set_level(logging.DEBUG, "kopf._client")
    server.on(f"GET {path}", reply(listing(10)))
    server.on(f"WATCH {path}", stream(line("ADDED", obj("a", 11))))
    batches = watch_batches(api, settings, Target(RESOURCE, namespace))
    assert [describe(event) for event in await anext(batches)] == ["LISTED"]
    assert [describe(event) for event in await anext(batches)] == ["ADDED:a:11"]
    await batches.aclose()
    assert caplog.messages == [
        f"Starting the watch-stream for kopfexamples.v1.kopf.dev {scope}.",
        f"Stopping the watch-stream for kopfexamples.v1.kopf.dev {scope}.",
    ]


async def test_settings_of_streams(server: ScriptedServer, settings: OperatorSettings, take: Take) -> None:
    settings.watching.server_timeout = 123.4
    settings.watching.label_selectors = {"kopfexamples.kopf.dev": "a=b"}
    play(server, SILENCE)
    assert await take(1) == ["LISTED"]
    await server.until(WATCH, 1)
    assert server.requests[-1].query["timeoutSeconds"] == "124"
    assert server.requests[-1].query["labelSelector"] == "a=b"


@pytest.mark.fastforward
async def test_resuming_after_the_end_of_the_stream(server: ScriptedServer, take: Take) -> None:
    play(server, stream(line("ADDED", obj("a", 11))), stream(), stream(BOOKMARK), SILENCE)
    assert await take(2) == ["LISTED", "ADDED:a:11"]
    await server.until(WATCH, 4)
    assert versions(server) == ["10", "11", "11", "20"]
    assert server.count(LIST) == 1


@pytest.mark.fastforward
@pytest.mark.parametrize("backoff", [0.1, 10.0, 1000.0])
async def test_reconnect_backoff(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings, backoff: float
) -> None:
    """Streams end normally from time to time; the next one is not requested at once."""
    settings.watching.reconnect_backoff = backoff
    play(server, *[stream(line("ADDED", obj("x", version))) for version in range(11, 15)])
    times: list[float] = []
    async with contextlib.aclosing(watch_batches(api, settings, Target(RESOURCE))) as batches:
        assert await anext(batches) == [LISTED]
        for _ in range(4):
            await anext(batches)
            times.append(asyncio.get_running_loop().time())
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses == pytest.approx([backoff] * 3, rel=0.2, abs=0.2)


@pytest.mark.fastforward
@pytest.mark.parametrize("cut", [1, 20, -1])
async def test_line_cut_in_the_middle(server: ScriptedServer, take: Take, cut: int) -> None:
    second = line("MODIFIED", obj("a", 12))
    play(server, stream(line("ADDED", obj("a", 11)) + second[:cut], end="abort"), stream(second, end="silent"))
    assert await take(3) == ["LISTED", "ADDED:a:11", "MODIFIED:a:12"]
    assert versions(server) == ["10", "11"]


@pytest.mark.fastforward
@pytest.mark.parametrize(
    "garbage",
    [b"{\n", b"42\n", b'{"type":"ADDED"}\n', b'{"type":"ADDED","object":"\xff"}\n'],
)
async def test_garbled_line(
    server: ScriptedServer, take: Take, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kopf._client")
    good, better = line("ADDED", obj("a", 11)), line("MODIFIED", obj("a", 12))
    play(server, stream(good + garbage + better, end="silent"), stream(better, end="silent"))
    assert await take(3) == ["LISTED", "ADDED:a:11", "MODIFIED:a:12"]
    assert versions(server) == ["10", "11"]
    assert server.count(LIST) == 1
    assert "cannot be decoded" in caplog.text


@pytest.mark.fastforward
@pytest.mark.parametrize("garbage", [b"{}", b"42", b'{"metadata":{}}', b'{"metadata":{"name":5}}'])
async def test_objects_of_unknown_names_are_skipped(
    server: ScriptedServer, take: Take, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kopf._client")
    good, better = line("ADDED", obj("a", 11)), line("MODIFIED", obj("a", 12))
    bad = b'{"type":"ADDED","object":' + garbage + b"}\n"
    play(server, stream(good + bad + bad + better, end="silent"))
    assert await take(3) == ["LISTED", "ADDED:a:11", "MODIFIED:a:12"]
    assert versions(server) == ["10"]
    assert caplog.text.count("no proper metadata") == 1


@pytest.mark.fastforward
async def test_garbled_line_again_and_again(server: ScriptedServer, take: Take) -> None:
    server.on(LIST, reply(listing(10, obj("a", 1))), reply(listing(20, obj("a", 15))))
    server.on(WATCH, *[stream(b"{\n", end="silent")] * 3, SILENCE)
    assert await take(4) == ["None:a:1", "LISTED", "MODIFIED:a:15", "LISTED"]
    await server.until(WATCH, 4)
    assert versions(server) == ["10", "10", "10", "20"]


async def test_line_of_megabytes(server: ScriptedServer, take: Take) -> None:
    play(server, stream(line("ADDED", obj("a", 11, data="x" * 3_000_000)), end="silent"))
    assert await take(2) == ["LISTED", "ADDED:a:11"]


@pytest.mark.fastforward
@pytest.mark.parametrize("gone", [stream(line("ERROR", GONE), end="silent"), refuse(410, "Expired")])
async def test_expired_version_leads_to_another_listing(server: ScriptedServer, take: Take, gone: Responder) -> None:
    before = [obj("same", 1), obj("changed", 2), obj("vanished", 3), obj("recreated", 4, "old")]
    after = [obj("same", 1), obj("changed", 12), obj("recreated", 14, "new"), obj("new", 13)]
    server.on(LIST, reply(listing(10, *before)), reply(listing(20, *after)))
    server.on(WATCH, gone, SILENCE)
    assert (await take(5))[-1] == "LISTED"
    assert await take(6) == [
        "MODIFIED:changed:12",
        "DELETED:recreated:4",
        "ADDED:recreated:14",
        "ADDED:new:13",
        "DELETED:vanished:3",
        "LISTED",
    ]
    await server.until(WATCH, 2)
    assert versions(server) == ["10", "20"]


@pytest.mark.fastforward
async def test_server_that_never_has_the_version_is_not_flooded(server: ScriptedServer, take: Take) -> None:
    server.on(LIST, *[reply(listing(10))] * 8)
    server.on(WATCH, *[stream(line("ERROR", GONE))] * 7, SILENCE)
    started = asyncio.get_running_loop().time()
    assert await take(8) == ["LISTED"] * 8
    assert asyncio.get_running_loop().time() - started > 20


@pytest.mark.fastforward
async def test_other_errors_in_the_stream(server: ScriptedServer, take: Take, caplog: pytest.LogCaptureFixture) -> None:
    error = line("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd is lost"})
    play(server, stream(error, end="silent"), stream(line("ADDED", obj("a", 11)), end="silent"))
    assert await take(2) == ["LISTED", "ADDED:a:11"]
    assert versions(server) == ["10", "10"]
    assert "500 InternalError: etcd is lost" in caplog.text


@pytest.mark.fastforward
async def test_unknown_events_are_skipped(server: ScriptedServer, take: Take, caplog: pytest.LogCaptureFixture) -> None:
    play(server, stream(line("STRANGE", {}) + line("ADDED", obj("a", 11)), end="silent"))
    assert await take(2) == ["LISTED", "ADDED:a:11"]
    assert "unknown event type 'STRANGE' is skipped" in caplog.text


@pytest.mark.fastforward
async def test_silent_stream_is_reopened(server: ScriptedServer, take: Take) -> None:
    play(server, stream(line("ADDED", obj("a", 11)), end="silent"), stream(line("ADDED", obj("b", 12)), end="silent"))
    assert await take(2) == ["LISTED", "ADDED:a:11"]
    started = asyncio.get_running_loop().time()
    assert await take(1) == ["ADDED:b:12"]
    assert 70 <= asyncio.get_running_loop().time() - started < 75
    assert versions(server) == ["10", "11"]


@pytest.mark.fastforward
async def test_quiet_streams_are_no_trouble(
    server: ScriptedServer, take: Take, caplog: pytest.LogCaptureFixture
) -> None:
    """Servers without bookmarks are asked to end the streams in order; then, one connection is enough for all."""
    connections: list[object] = []

    async def end_in_time(request: web.Request) -> web.StreamResponse:
        connections.append(request.transport)
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(int(request.query["timeoutSeconds"]))
        return response

    play(server, SILENCE, *[end_in_time] * 3, stream(BOOKMARK), SILENCE, SILENCE)
    caplog.set_level(logging.INFO, "kopf._client")
    assert await take(1) == ["LISTED"]
    await server.until(WATCH, 7)
    asked = [request.query.get("timeoutSeconds") for request in server.requests if "watch" in request.query]
    assert asked == [None, "63", "63", "63", "63", None, "63"]
    assert versions(server) == ["10"] * 5 + ["20"] * 2
    assert len(connections) == 3
    assert len({*map(id, connections)}) == 1
    assert not caplog.records


@pytest.mark.fastforward
async def test_servers_that_do_not_end_streams_as_asked_are_lost(
    server: ScriptedServer, take: Take, caplog: pytest.LogCaptureFixture
) -> None:
    play(server, *[SILENCE] * 3)
    caplog.set_level(logging.INFO, "kopf._client")
    assert await take(1) == ["LISTED"]
    await server.until(WATCH, 3)
    [record] = caplog.records
    assert "is interrupted and will continue" in record.getMessage()


@pytest.mark.fastforward
async def test_own_timeout_is_a_normal_end(
    server: ScriptedServer, settings: OperatorSettings, take: Take, caplog: pytest.LogCaptureFixture
) -> None:
    settings.watching.client_timeout = 30
    play(server, *[SILENCE] * 10)
    assert await take(1) == ["LISTED"]
    started = asyncio.get_running_loop().time()
    await server.until(WATCH, 10)
    assert asyncio.get_running_loop().time() - started < 10 * 31.5
    assert not caplog.records


@pytest.mark.fastforward
@pytest.mark.parametrize("failure", [refuse(500), refuse(503), refuse(429), never])
async def test_failures_to_watch_are_waited_out(
    server: ScriptedServer,
    settings: OperatorSettings,
    take: Take,
    failure: Responder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings.networking.error_backoffs = ()
    play(server, *[failure] * 20, stream(line("ADDED", obj("a", 11)), end="silent"))
    started = asyncio.get_running_loop().time()
    assert await take(2) == ["LISTED", "ADDED:a:11"]
    pauses = asyncio.get_running_loop().time() - started - 20 * (70 if failure is never else 0)
    assert 10 * MAX_BACKOFF < pauses < 20 * MAX_BACKOFF  # they grow, but not endlessly
    assert server.count(LIST) == 1
    warnings = [record for record in caplog.records if "is reachable again" not in record.getMessage()]
    assert len(warnings) == 20
    assert all(record.levelno == logging.WARNING and record.exc_info is None for record in warnings)


@pytest.mark.fastforward
async def test_broken_connections_are_waited_out(server: ScriptedServer, take: Take) -> None:
    play(server, *[drop] * 20, stream(line("ADDED", obj("a", 11)), end="silent"))
    assert await take(2) == ["LISTED", "ADDED:a:11"]


@pytest.mark.fastforward
async def test_pauses_are_short_again_after_success(server: ScriptedServer, take: Take) -> None:
    play(server, *[refuse(500)] * 10, stream(BOOKMARK), refuse(500), stream(line("ADDED", obj("a", 21)), end="silent"))
    await server.until(WATCH, 11)
    started = asyncio.get_running_loop().time()
    assert await take(2) == ["LISTED", "ADDED:a:21"]
    assert asyncio.get_running_loop().time() - started < 10


@pytest.mark.fastforward
async def test_server_that_closes_streams_at_once_is_not_flooded(server: ScriptedServer, take: Take) -> None:
    play(server, *[stream()] * 10, SILENCE)
    assert await take(1) == ["LISTED"]
    started = asyncio.get_running_loop().time()
    await server.until(WATCH, 11)
    assert asyncio.get_running_loop().time() - started > 60


@pytest.mark.fastforward
async def test_server_asks_to_come_later(server: ScriptedServer, take: Take) -> None:
    play(server, refuse(429, Retry_After="100"), stream(line("ADDED", obj("a", 11)), end="silent"))
    assert await take(1) == ["LISTED"]
    started = asyncio.get_running_loop().time()
    assert await take(1) == ["ADDED:a:11"]
    assert 100 <= asyncio.get_running_loop().time() - started < 102


@pytest.mark.fastforward
@pytest.mark.parametrize("failure", [refuse(500), refuse(429), drop, reply("what?")])
async def test_failures_to_list_are_waited_out(
    server: ScriptedServer, settings: OperatorSettings, take: Take, failure: Responder
) -> None:
    settings.networking.error_backoffs = ()
    server.on(LIST, *[failure] * 20, reply(listing(10, obj("a", 1))))
    server.on(WATCH, SILENCE)
    assert await take(2) == ["None:a:1", "LISTED"]


@pytest.mark.fastforward
async def test_listing_that_fails_half_way(server: ScriptedServer, settings: OperatorSettings, take: Take) -> None:
    settings.networking.error_backoffs = ()
    server.on(LIST, reply(listing(10, obj("a", 1), obj("b", 2), token="t")), refuse(500))
    server.on(LIST, reply(listing(20, obj("a", 1), obj("c", 12))))
    server.on(WATCH, SILENCE)
    assert await take(5) == ["None:a:1", "None:b:2", "None:c:12", "DELETED:b:2", "LISTED"]
    await server.until(WATCH, 1)
    assert versions(server) == ["20"]


@pytest.mark.fastforward
async def test_expired_continuation_leads_to_listing_at_once(server: ScriptedServer, take: Take) -> None:
    server.on(LIST, reply(listing(10, obj("a", 1), token="t")), refuse(410, "Expired"))
    server.on(LIST, reply(listing(20, obj("a", 1), obj("b", 2))), reply(listing(30)))
    server.on(WATCH, stream(line("ERROR", GONE)), SILENCE)
    assert await take(6) == ["None:a:1", "None:b:2", "LISTED", "DELETED:a:1", "DELETED:b:2", "LISTED"]
    listings = [request for request in server.requests if "watch" not in request.query]
    assert ["limit" in request.query for request in listings] == [True, True, False, True]


async def test_pages_that_never_end_lead_to_listing_at_once(server: ScriptedServer, take: Take) -> None:
    server.on(LIST, *[reply(listing(10, obj(name, 1), token=token)) for name, token in ("at", "bu", "at")])
    server.on(LIST, reply(listing(20, obj("a", 1), obj("b", 2))))
    server.on(WATCH, SILENCE)
    assert await take(4) == ["None:a:1", "None:b:1", "None:b:2", "LISTED"]
    assert ["limit" in request.query for request in server.requests[:4]] == [True, True, True, False]


@pytest.mark.parametrize("code", [True, 0, 200, 302, 10**30, -1, None, "410", {}])
async def test_errors_of_strange_codes(
    server: ScriptedServer, take: Take, caplog: pytest.LogCaptureFixture, code: object
) -> None:
    server.on(LIST, reply(listing(10)))
    error = {"kind": "Status", "code": code, "reason": "Odd", "message": "said"}
    server.on(WATCH, stream(line("ERROR", error)), stream(line("ADDED", obj("a", 11)), end="silent"))
    assert await take(2) == ["LISTED", "ADDED:a:11"]
    assert "Odd: said" in caplog.text
    assert "Redirects" not in caplog.text


@pytest.mark.parametrize(("status", "cls"), [(403, APIForbiddenError), (404, APINotFoundError)])
@pytest.mark.parametrize("endpoint", [LIST, WATCH])
async def test_what_does_not_pass_by_itself_is_raised(
    server: ScriptedServer, take: Take, endpoint: str, status: int, cls: type[Exception]
) -> None:
    if endpoint == WATCH:
        server.on(LIST, reply(listing(10)))
    server.on(endpoint, refuse(status))
    with pytest.raises(cls):
        await take(2)


@pytest.mark.fastforward
async def test_credentials_are_replaced_on_the_way(server: ScriptedServer, vault: Vault, take: Take) -> None:
    play(server, stream(line("ADDED", obj("a", 11))), refuse(401), stream(line("ADDED", obj("b", 12)), end="silent"))
    assert await take(2) == ["LISTED", "ADDED:a:11"]
    await vault.wait_until_depleted()
    vault.populate([ConnectionInfo(server=server.url, token="token-2")])
    assert await take(1) == ["ADDED:b:12"]
    assert versions(server) == ["10", "11", "11"]


@pytest.mark.fastforward
async def test_ran_out_of_credentials(server: ScriptedServer, vault: Vault, take: Take) -> None:
    play(server, refuse(401))
    await vault.wait_until_depleted()
    vault.fail(LoginError("no way"))
    assert await take(1) == ["LISTED"]
    with pytest.raises(LoginError, match="no way"):
        await take(1)


async def test_slow_consumers_slow_down_the_reading(
    server: ScriptedServer, api: APIClient, settings: OperatorSettings
) -> None:
    total, sent = 40, 0

    async def respond(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(total):
            await response.write(line("ADDED", obj(f"x{number}", 11 + number, data="x" * 1_000_000)))
            sent += 1
        return response

    play(server, respond)
    batches = watch_batches(api, settings, Target(RESOURCE))
    received = 0
    async for events in batches:
        received += len(events)
        if received == 2:
            break
    for _ in range(1000):
        await asyncio.sleep(0)
    assert sent < total  # the rest is not read ahead into the memory
    async for events in batches:
        received += len(events)
        if received == total + 1:
            break
    await batches.aclose()
