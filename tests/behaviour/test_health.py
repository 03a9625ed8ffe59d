"""The health of the operator, as told to those who ask by HTTP."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import json
import logging
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import pytest

import kopf
from kopf._controller import supervision
from tests.behaviour.objects import API, Objects, get_patience
from tests.behaviour.peerings import create_peering
from tests.behaviour.running import Calls, Logs, Operator, do_nothing
from tests.patience import PATIENCE
from tests.ports import find_free_port

pytestmark = pytest.mark.usefixtures("by_network")

Answer = tuple[int, Any]

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="of nobody")


@pytest.fixture(autouse=True)
def _standalone(operator: Operator) -> None:
    """For a moment after the start, operators are paused to look for the other ones, and the answers say so."""
    operator.set("peering.standalone", True)


@pytest.fixture
def url() -> str:
    """Where to serve the health: any free port."""
    return f"http://127.0.0.1:{find_free_port()}/healthz"


@pytest.fixture
async def ask(url: str) -> AsyncIterator[Callable[[], Any]]:
    """Ask for the health."""
    async with aiohttp.ClientSession() as session:

        async def ask() -> Answer:
            async with session.get(url) as response:
                assert response.content_type == "application/json"
                return response.status, await response.json()

        yield ask


@pytest.fixture
def executor() -> Iterator[concurrent.futures.Executor]:
    """For those who ask while the event loop of the test is blocked."""
    with concurrent.futures.ThreadPoolExecutor() as executor:
        yield executor


def ask_from_a_thread(url: str) -> Answer:
    """Ask until it is unhealthy."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url) as response:
                answer = response.status, json.load(response)
        except urllib.error.HTTPError as e:
            return e.code, json.load(e)
        time.sleep(0.02)
    raise AssertionError(f"It never became unhealthy: {answer}")


async def wait_for(ask: Callable[[], Any], condition: Callable[[int, Any], object]) -> Answer:
    async with asyncio.timeout(get_patience()):
        while not condition(*(answer := await ask())):
            await asyncio.sleep(0.02)
    return answer  # type: ignore[no-any-return]  # checked by the fixture


async def test_it_is_not_served_by_default(operator: Operator, url: str) -> None:
    kopf.on.probe()(lambda **_: 1)
    await operator.launch()
    assert {thread.name for thread in threading.enumerate() if "health" in thread.name} == set()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", int(re.findall(r":(\d+)", url)[0]))


async def test_results_of_probes(operator: Operator, url: str, ask: Callable[[], Any]) -> None:
    kopf.on.probe(id="now")(lambda **_: "today")

    @kopf.on.probe(param={"a": [1, None]}, id="async_fn")
    async def async_fn(param: Any, **_: Any) -> Any:
        return param

    kopf.on.probe()(do_nothing)
    await operator.launch(liveness_endpoint=url)
    assert await ask() == (200, {"now": "today", "async_fn": {"a": [1, None]}})


async def test_the_text_of_the_answer_is_byte_by_byte_as_of_the_original_framework(
    operator: Operator,
    url: str,
) -> None:
    kopf.on.probe(id="now")(lambda **_: "today")
    kopf.on.probe(id="all")(lambda **_: {"a": [1, None], "ü": True})
    await operator.launch(liveness_endpoint=url)
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert await response.read() == b'{"now": "today", "all": {"a": [1, null], "\\u00fc": true}}'
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"


async def test_kwargs_of_probes(operator: Operator, url: str, ask: Callable[[], Any], kex: Objects) -> None:
    seen: dict[str, Any] = {}

    kopf.index("kopfexamples", id="names")(lambda name, **_: {name: name})

    @kopf.on.startup()
    def startup_fn(memo: kopf.Memo, **_: Any) -> None:
        memo.greeting = "hello"

    @kopf.on.probe(id="fn")
    def fn(**kwargs: Any) -> list[str]:
        seen.update(kwargs)
        return [*kwargs["names"], kwargs["memo"].greeting]

    await kex.create()
    await operator.start(liveness_endpoint=url)
    assert await ask() == (200, {"fn": ["obj", "hello"]})
    assert seen.keys() == {"activity", "settings", "memo", "logger", "param", "retry", "started", "runtime", "names"}
    assert seen["activity"] == "probe"


async def test_probes_can_do_what_other_handlers_can(operator: Operator, url: str, ask: Callable[[], Any]) -> None:
    """They run in the context of the operator, though the requests come to another thread."""
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"}}
    token = variable.set("of the application")

    @kopf.on.probe(id="fn")
    def fn(**_: Any) -> str:
        return f"{kopf.apply(settings, is_owned=False).metadata.name} {variable.get()}"

    @kopf.on.probe(id="async_fn")
    async def async_fn(**_: Any) -> str:
        return f"{(await kopf.apply(settings, is_owned=False)).metadata.name} {variable.get()}"

    await operator.launch(liveness_endpoint=url)
    variable.reset(token)
    expected = "settings of the application"
    assert await ask() == (200, {"fn": expected, "async_fn": expected})


async def test_mass_requests_call_the_probes_once(
    operator: Operator,
    url: str,
    ask: Callable[[], Any],
    calls: Calls,
) -> None:
    released = asyncio.Event()

    @kopf.on.probe(id="fn")
    async def fn(**_: Any) -> int:
        calls.append("called")
        await released.wait()
        return len(calls)

    await operator.launch(liveness_endpoint=url)
    requests = [asyncio.create_task(ask()) for _ in range(20)]
    await calls.wait_length(1)
    released.set()
    assert await asyncio.gather(*requests) == [(200, {"fn": 1})] * 20
    assert await ask() == (200, {"fn": 1})


async def test_results_are_cached_for_a_limited_time(
    operator: Operator,
    url: str,
    ask: Callable[[], Any],
    calls: Calls,
) -> None:
    @kopf.on.startup()
    def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.health.probe_lifetime = 0.05

    @kopf.on.probe(id="fn")
    def fn(**_: Any) -> int:
        calls.append("called")
        return len(calls)

    await operator.launch(liveness_endpoint=url)
    assert await ask() == (200, {"fn": 1})
    await wait_for(ask, lambda _, content: content["fn"] > 1)


async def test_failed_probes_are_unhealthy_but_others_are_seen(
    operator: Operator,
    url: str,
    ask: Callable[[], Any],
    calls: Calls,
) -> None:
    @kopf.on.probe(id="bad")
    def bad(**_: Any) -> None:
        calls.append("called")
        raise ConnectionError("the database is away")

    @kopf.on.probe(errors=kopf.ErrorsMode.IGNORED)
    def ignored(**_: Any) -> None:
        raise ValueError("boom")

    @kopf.on.probe(errors=kopf.ErrorsMode.TEMPORARY, backoff=0.01, id="retried")
    def retried(retry: int, **_: Any) -> int:
        if retry < 2:
            raise ValueError("boom")
        return retry

    kopf.on.probe(id="good")(lambda **_: 123)
    await operator.launch(liveness_endpoint=url)
    problems = ["The probe 'bad' has failed: see the log of the operator."]
    assert await ask() == (503, {"good": 123, "retried": 2, "kopf": {"problems": problems}})
    assert calls == ["called"]


async def test_only_failures_of_probes_are_logged(
    operator: Operator,
    url: str,
    ask: Callable[[], Any],
    logs: Logs,
) -> None:
    kopf.on.probe(id="good")(lambda **_: 1)
    kopf.on.probe(id="bad")(lambda **_: 1 / 0)
    await operator.launch(liveness_endpoint=url)
    await ask()
    assert not logs.find(".*'good'.*")
    [record] = logs.find(".*'bad'.*")
    assert record.name == "kopf.activities.probe"
    assert record.exc_info is not None


async def test_startup_handlers_come_first(operator: Operator, url: str, ask: Callable[[], Any], calls: Calls) -> None:
    released = asyncio.Event()

    @kopf.on.startup()
    async def startup_fn(**_: Any) -> None:
        calls.append("called")
        await released.wait()

    task = asyncio.create_task(operator.launch(liveness_endpoint=url))
    await calls.wait_length(1)
    with pytest.raises(aiohttp.ClientConnectionError):
        await ask()
    released.set()
    await task
    assert await ask() == (200, {})


async def test_occupied_ports_are_the_error_of_the_operator(operator: Operator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        await operator.launch_in_vain(
            Exception, f"The health cannot be served at {url}: .*in use", liveness_endpoint=url
        )


async def test_bad_endpoints_are_errors_at_once(operator: Operator) -> None:
    await operator.launch_in_vain(ValueError, "must be of HTTP", liveness_endpoint="https://localhost/")


# ------------------------------------------------------------------------------------- of the operator itself


async def test_silent_streams_are_unhealthy_until_they_recover(
    operator: Operator,
    url: str,
    ask: Callable[[], Any],
    kex: Objects,
) -> None:
    operator.set("health.stream_timeout", 1.0)
    operator.set("watching.inactivity_timeout", 0.5)
    operator.set("scanning.disabled", True)
    kopf.on.event("kopfexamples")(lambda **_: None)
    await kex.create()
    await operator.start(liveness_endpoint=url)
    operator.cluster.faults.pause()  # neither the stream nor the attempts to reopen it bring anything
    operator.cluster.faults.silence_watches()
    status, content = await wait_for(ask, lambda status, _: status != 200)
    assert status == 503
    problems = "\n".join(content["kopf"]["problems"])
    assert re.search(
        r"The watch-stream for kopfexamples.v1.kopf.dev in the whole cluster is stale, with nothing for", problems
    )
    operator.cluster.faults.clear()
    async with asyncio.timeout(PATIENCE):
        while (await ask())[0] != 200:
            await kex.merge({"spec": {"field": str(time.monotonic())}})  # something must happen there


async def test_failing_reconnections_are_unhealthy(operator: Operator, url: str, ask: Callable[[], Any]) -> None:
    operator.set("health.stream_timeout", 1.0)
    operator.set("watching.inactivity_timeout", 0.5)
    operator.set("scanning.disabled", True)
    kopf.on.event("kopfexamples")(lambda **_: None)
    await operator.start(liveness_endpoint=url)
    operator.cluster.faults.inject(503, verb="watch")
    operator.cluster.faults.cut_watches()
    _, content = await wait_for(ask, lambda status, _: status == 503)
    assert "kopfexamples" in content["kopf"]["problems"][0]


async def test_tasks_that_keep_failing_are_unhealthy(
    operator: Operator,
    url: str,
    ask: Callable[[], Any],
    logs: Logs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "_BACKOFFS", (0.01, 0.01, 1000))
    logs.expected.append("The watcher of kopfexamples.v1.kopf.dev has failed")
    kopf.on.event("kopfexamples")(lambda **_: None)
    operator.cluster.faults.inject(400, resource="kopfexamples")  # it is not known what to do with it
    await operator.launch(liveness_endpoint=url)
    status, content = await wait_for(ask, lambda _, content: content)
    assert status == 503
    [problem] = content["kopf"]["problems"]
    text = "The watcher of kopfexamples.v1.kopf.dev has failed 3 times in a row"
    assert problem == f"{text}: see the log of the operator."


async def test_denied_streams_are_not_about_the_health(
    operator: Operator,
    url: str,
    ask: Callable[[], Any],
    logs: Logs,
) -> None:
    operator.set("health.stream_timeout", 0.2)
    operator.set("watching.inactivity_timeout", 0.1)
    operator.set("scanning.disabled", True)
    logs.expected.append("not permitted to list")
    kopf.on.event("kopfexamples")(lambda **_: None)
    operator.cluster.faults.inject(403, resource="kopfexamples")
    await operator.launch(liveness_endpoint=url)
    await logs.wait(".*not permitted to list.*")
    await asyncio.sleep(0.5)
    assert (await ask())[0] == 200


@pytest.mark.parametrize("has_probes", [False, True], ids=["bare", "with probes"])
async def test_blocked_loops_are_unhealthy_with_the_name_of_the_culprit(
    operator: Operator,
    url: str,
    ask: Callable[[], Any],
    kex: Objects,
    logs: Logs,
    executor: concurrent.futures.Executor,
    has_probes: bool,
) -> None:
    answers: list[Answer] = []

    @kopf.on.startup()
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.health.loop_timeout = 0.3

    @kopf.on.create("kopfexamples", id="blocking_fn")
    async def blocking_fn(**_: Any) -> None:
        answers.append(executor.submit(ask_from_a_thread, url).result())  # the bad thing

    if has_probes:
        kopf.on.probe(id="probe")(lambda **_: 1)
    logs.expected.append("The event loop is blocked")
    await operator.start(liveness_endpoint=url)
    await kex.create_and_wait()
    [(status, content)] = answers
    assert status == 503
    [problem] = content["kopf"]["problems"]
    assert problem.startswith(f"The event loop is blocked by the handler 'blocking_fn', blocking_fn() at {__file__}:")
    record = await logs.wait("The event loop is blocked for .* by the handler 'blocking_fn', .*")
    assert record.levelname == "ERROR"
    await wait_for(ask, lambda status, _: status == 200)
    await logs.wait("The event loop works again after being blocked for .* seconds.")


async def test_a_pause_is_shown_and_is_healthy(operator: Operator, url: str, ask: Callable[[], Any]) -> None:
    """The peering object is mandatory here, and it does not exist."""
    kopf.on.event("kopfexamples")(lambda **_: None)
    operator.set("peering.standalone", False)
    await operator.launch(liveness_endpoint=url, peering_name="nonexistent")
    status, content = await wait_for(ask, lambda _, content: "paused" in content.get("kopf", {}))
    assert status == 200
    assert "nonexistent" in content["kopf"]["paused"]
    assert "problems" not in content["kopf"]


async def test_those_who_pause_the_operator_are_shown_with_their_limited_lifetimes(
    operator: Operator,
    api: API,
    url: str,
    ask: Callable[[], Any],
) -> None:
    kopf.on.event("kopfexamples")(lambda **_: None)
    operator.set("peering.standalone", False)
    record = {"priority": 100, "lifetime": 10**9, "lastseen": "2100-01-01T00:00:00+00:00"}
    peering = await create_peering(api, status={"them": record})
    await operator.launch(liveness_endpoint=url, peering_name="default")
    status, content = await wait_for(ask, lambda _, content: "peers" in content.get("kopf", {}))
    assert status == 200
    [peer] = content["kopf"]["peers"]
    week = 7 * 24 * 3600
    assert week - 60 < peer.pop("remaining") <= week
    assert peer == {
        "peering": "'default' cluster-wide",
        "identity": "them",
        "priority": 100,
        "lifetime": week,
        "limited": True,
    }
    assert "them (priority 100, its lifetime is limited to 604800 s)" in content["kopf"]["paused"]
    await peering.remove("them")
    await wait_for(ask, lambda _, content: "kopf" not in content)


async def test_not_all_of_those_who_pause_the_operator_are_shown_if_there_are_many(
    operator: Operator,
    api: API,
    url: str,
    ask: Callable[[], Any],
    logs: Logs,
) -> None:
    kopf.on.event("kopfexamples")(lambda **_: None)
    operator.set("peering.standalone", False)
    record = {"priority": 100, "lifetime": 60, "lastseen": "2100-01-01T00:00:00+00:00", "message": "m" * 100}
    await create_peering(api, status={f"{index}-{'x' * 1000}": record for index in range(500)})
    await operator.launch(liveness_endpoint=url, peering_name="default")
    _, content = await wait_for(ask, lambda _, content: "peers" in content.get("kopf", {}))
    assert len(content["kopf"]["peers"]) == 10
    assert "and 490 more" in content["kopf"]["paused"]
    assert len(json.dumps(content)) < 20_000
    assert sum(map(len, logs.get_messages(level=logging.INFO))) < 20_000


async def test_slow_probes_do_not_hold_the_exit(
    operator: Operator,
    url: str,
    ask: Callable[[], Any],
    calls: Calls,
) -> None:
    @kopf.on.probe(id="fn")
    async def fn(**_: Any) -> None:
        calls.append("called")
        await asyncio.Event().wait()

    await operator.launch(liveness_endpoint=url)
    request = asyncio.create_task(ask())
    await calls.wait_length(1)
    async with asyncio.timeout(PATIENCE):
        await operator.stop()
    with pytest.raises(aiohttp.ClientError):
        await request
