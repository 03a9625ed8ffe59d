"""What a running operator tells of an object by HTTP: the truth, also if it is paused or blocked."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import functools
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kopf
from kopf._insight.inspecting import inspector
from tests.behaviour.objects import Objects, get_patience
from tests.behaviour.running import Calls, Operator, do_nothing
from tests.patience import PATIENCE
from tests.ports import find_free_port

Ask = Callable[..., Any]


@pytest.fixture
def url(operator: Operator) -> str:
    """Where the console is served: at any free port."""
    url = f"http://127.0.0.1:{find_free_port()}"
    operator.set("console.endpoint", url)
    operator.set("peering.standalone", True)
    return url


@pytest.fixture
def ask(url: str) -> Iterator[Ask]:
    """Ask about the object, from a thread: also when the event loop of the test is blocked."""
    with concurrent.futures.ThreadPoolExecutor() as executor:

        async def ask(resource: str = "kopfexamples", name: str = "obj", namespace: str = "default") -> Any:
            return await asyncio.get_running_loop().run_in_executor(executor, fetch, url, resource, name, namespace)

        yield ask


def fetch(url: str, resource: str = "kopfexamples", name: str = "obj", namespace: str = "default") -> Any:
    query = f"resource={resource}&name={name}&namespace={namespace}"
    try:
        with urllib.request.urlopen(f"{url}/api/explain?{query}", timeout=PATIENCE) as response:
            assert response.headers["Content-Type"] == "application/json; charset=utf-8"
            return json.load(response)
    except urllib.error.HTTPError as e:
        with e:
            return {"status": e.code, **json.load(e)}


async def ask_until(ask: Ask, condition: Callable[[Any], object]) -> Any:
    async with asyncio.timeout(get_patience()):
        while not condition(answer := await ask()):
            await asyncio.sleep(0.01)
    return answer


def get_handler(answer: Any, name: str) -> Any:
    [info] = [info for info in answer["handlers"] if info["id"] == name]
    return info


async def test_objects_that_wait_for_the_next_attempt(operator: Operator, kex: Objects, ask: Ask, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    def create_fn(name: str, spec: kopf.Spec, retry: int, **_: Any) -> None:
        calls.append((name, datetime.datetime.now(datetime.UTC)))
        if not retry:
            raise kopf.TemporaryError("not yet", delay=spec["delay"])

    kopf.on.create("kopfexamples", id="other_fn", labels={"app": "web"})(do_nothing)
    await operator.start(watching=("kopfexamples",))
    for delay in (1.5, 15, 60):  # until the machine is fast enough to see it wait
        name = f"obj{delay}"
        ask = functools.partial(ask, name=name)
        await kex.create(name, spec={"delay": delay})
        answer = await ask_until(ask, lambda answer: answer["state"]["name"] == "waiting" or len(calls) % 2 == 0)
        if answer["state"]["name"] == "waiting":
            break
    assert answer["source"] == "operator"
    assert answer["object"]["name"] == name
    assert answer["handled"]["known"] is False
    assert get_handler(answer, "other_fn")["rejections"][0]["filter"] == "labels"
    progress = get_handler(answer, "create_fn")["progress"]
    assert (progress["outcome"], progress["attempts"], progress["error"]) == ("retrying", 1, "TemporaryError: not yet")
    [attempt] = [attempt for decision in answer["decisions"] for attempt in decision["attempts"]]
    assert (attempt["handler"], attempt["outcome"], attempt["error"]) == (
        "create_fn",
        "retrying",
        "TemporaryError: not yet",
    )
    await calls.wait(lambda items: [called for called, _ in items].count(name) == 2)
    for time in progress["next"], answer["state"]["next"]:
        assert -1 < (calls[-1][1] - datetime.datetime.fromisoformat(time)).total_seconds() < PATIENCE
    answer = await ask_until(ask, lambda answer: answer["state"]["name"] == "idle")
    assert (answer["handled"]["known"], answer["handled"]["changes"]) == (True, [])
    assert get_handler(answer, "create_fn")["verdict"] == "later"


async def test_a_blocked_operator_tells_by_whom(
    operator: Operator,
    kex: Objects,
    url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspector, "PULSE_TIMEOUT", 0.2)
    monkeypatch.setattr(inspector, "_STEP", 0.1)
    begun, released, answers = threading.Event(), threading.Event(), []

    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(**_: Any) -> None:
        begun.set()
        released.wait(PATIENCE)  # it blocks the event loop

    def ask_and_release() -> None:
        begun.wait(PATIENCE)
        try:
            while "source" not in (answer := fetch(url)) or not answer["operator"]["blocked"]:
                pass
            answers.append(answer)
        finally:
            released.set()

    await operator.start()
    with concurrent.futures.ThreadPoolExecutor() as executor:
        asking = executor.submit(ask_and_release)
        await kex.create()
        await asyncio.wrap_future(asking)
    [answer] = answers
    assert "the handler 'create_fn'" in answer["operator"]["blocked"]
    assert "released.wait(PATIENCE)" in answer["operator"]["blocked"]
    assert (answer["state"]["name"], answer["state"]["handler"]) == ("handling", "create_fn")
    assert answer["decisions"][0]["text"] == "creation: calls create_fn"
    assert answer["handlers"] == []
    await kex.wait_handled()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_questions_with_no_answer(operator: Operator, kex: Objects, ask: Ask) -> None:
    kopf.on.create("kopfexamples")(do_nothing)
    await operator.start(clusterwide=False, namespaces=["default"])
    answer = await ask("nosuch")
    assert answer["status"] == 404
    assert answer["error"].endswith("The resources that it watches: kopfexamples.v1.kopf.dev.")
    answer = await ask(name="nosuch")
    assert (answer["status"], answer["error"]) == (
        404,
        "There is no 'nosuch' of kopfexamples.v1.kopf.dev in the namespace 'default'.",
    )
    answer = await ask(namespace="kube-system")
    assert (answer["status"], answer["error"]) == (403, "The operator does not serve the namespace 'kube-system'.")
    assert (await ask(namespace=""))["status"] == 400
    assert (await ask(name=""))["status"] == 400
    await kex.create()
    for name in ("kopfexample", "KopfExample", "kopfexamples.kopf.dev", "kopfexamples.v1.kopf.dev", "kopfEXAMPLE"):
        assert (await ask(name))["object"]["name"] == "obj"


async def test_the_truth_is_partial_if_the_cluster_does_not_answer(
    operator: Operator,
    kex: Objects,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspector, "ANSWER_TIMEOUT", 0.2)
    kopf.on.create("kopfexamples", id="create_fn")(do_nothing)
    await operator.start_and_handle(kex)
    operator.cluster.faults.inject(action="delay", verb="list", resource="kopfexamples", latency=2, times=1)
    answer = await ask()
    assert answer["notes"] == ["Not all can be told, as the operator has not got the object in 0.2 seconds."]
    assert answer["operator"]["blocked"] is None
    assert answer["decisions"][-1]["called"] == ["create_fn"]


async def test_nothing_is_written(operator: Operator, kex: Objects, ask: Ask) -> None:
    kopf.on.create("kopfexamples", when=lambda logger, patch, **_: logger.error("!") or patch.update(spec={}) or False)(
        do_nothing
    )
    await operator.start_and_create(kex)
    before = dict(operator.cluster.counters)
    for _ in range(3):
        await ask()
    written = {key: count for key, count in operator.cluster.counters.items() if before.get(key) != count}
    assert {verb for verb, *_ in written} <= {"get", "watch", "list"}, written
