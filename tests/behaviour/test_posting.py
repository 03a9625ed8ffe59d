"""Kubernetes events: posted explicitly by handlers, or made of the log messages about the objects."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, Obj, Objects
from tests.behaviour.running import Calls, Logs, Operator
from tests.patience import PATIENCE


@pytest.fixture(autouse=True)
def _posting(operator: Operator) -> None:
    """Events are posted by default; other tests switch that off."""
    operator.set("posting.enabled", True)
    operator.set("posting.loggers", False)


async def wait_for_events(api: API, number: int) -> list[Obj]:
    async with asyncio.timeout(PATIENCE):
        while len(events := await api.list_events()) < number:
            await asyncio.sleep(0.01)
        return events


def brief(events: list[Obj]) -> list[tuple[str, str, str]]:
    return sorted((event["type"], event["reason"], event["message"]) for event in events)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_explicit_events(operator: Operator, kex: Objects, api: API, is_async: bool) -> None:
    def post(body: kopf.Body) -> None:
        kopf.event(body, type="SomeType", reason="SomeReason", message="Some message")
        kopf.info(body, reason="SomeReason", message="Some info")
        kopf.warn(body, reason="SomeReason", message="Some warning")
        try:
            raise RuntimeError("Exception text.")
        except RuntimeError:
            kopf.exception(body, reason="SomeReason", message="Some exception:")
        kopf.exception(body, exc=ValueError("Another text."))

    async def async_fn(body: kopf.Body, **_: Any) -> None:
        post(body)

    def sync_fn(body: kopf.Body, **_: Any) -> None:
        post(body)

    kopf.on.create("kopfexamples")(async_fn if is_async else sync_fn)
    obj = await operator.start_and_create(kex)
    events = await wait_for_events(api, 5)
    assert brief(events) == [
        ("Error", "SomeReason", "Some exception: Exception text."),
        ("Error", "ValueError", "Another text."),
        ("Normal", "SomeReason", "Some info"),
        ("SomeType", "SomeReason", "Some message"),
        ("Warning", "SomeReason", "Some warning"),
    ]
    for event in events:
        assert event["metadata"]["name"].startswith("kopf-event-")
        assert event["metadata"]["namespace"] == "default"
        assert event["reportingComponent"] == "kopf"
        assert event["reportingInstance"] == "dev"
        assert event["source"]["component"] == "kopf"
        assert event["involvedObject"] == {
            "apiVersion": "kopf.dev/v1",
            "kind": "KopfExample",
            "name": "obj",
            "namespace": "default",
            "uid": obj["metadata"]["uid"],
        }


async def test_events_about_other_objects(operator: Operator, kex: Objects, api: API) -> None:
    # One of them is as the models of the official clients are converted by themselves: with names of their own.
    pods = [
        {version: "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}}
        for version, name in (("apiVersion", "pod1"), ("api_version", "pod2"))
    ]
    kopf.on.create("kopfexamples")(lambda **_: kopf.info(pods, reason="SomeReason", message="Some message"))
    await operator.start_and_create(kex)
    events = await wait_for_events(api, 2)
    assert sorted((event["involvedObject"] for event in events), key=lambda ref: ref["name"]) == [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": "default", "uid": f"uid-{name}"}
        for name in ("pod1", "pod2")
    ]


async def test_events_without_a_reason(operator: Operator, kex: Objects, api: API) -> None:
    """The server refuses such ones."""
    kopf.on.create("kopfexamples")(lambda body, **_: kopf.warn(body, reason="", message="m"))
    await operator.start_and_create(kex)
    assert brief(await wait_for_events(api, 1)) == [("Warning", "Warning", "m")]


async def test_events_about_cluster_scoped_objects(operator: Operator, kex: Objects, api: API) -> None:
    """With the exact time, servers up to 1.21 take them in another namespace only."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "uid": "uid"}}
    kopf.on.create("kopfexamples")(lambda body, **_: kopf.info([node, body], reason="R", message="m"))
    await operator.start_and_create(kex)
    events = await wait_for_events(api, 2)
    times = {event["involvedObject"]["kind"]: event.get("eventTime") for event in events}
    assert {event["metadata"]["namespace"] for event in events} == {"default"}
    assert times["Node"] is None
    assert times["KopfExample"] is not None


async def test_events_about_events_are_skipped(operator: Operator, kex: Objects, api: API) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    def fn(body: kopf.Body, **_: Any) -> None:
        kopf.info(
            {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}}, reason="Skipped"
        )
        kopf.info(body, reason="Posted", message="x")

    await operator.start_and_create(kex)
    assert brief(await wait_for_events(api, 1)) == [("Normal", "Posted", "x")]


async def test_log_messages_become_events(operator: Operator, kex: Objects, api: API) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    def create_fn(logger: kopf.Logger, **_: Any) -> None:
        logger.debug("a debug message")
        logger.info("an info message")
        logger.warning("a warning message")
        logger.error("an error message")

    operator.set("posting.loggers", True)
    await operator.start_and_create(kex)
    events = await wait_for_events(api, 5)
    assert brief(events) == [
        ("Error", "Logging", "an error message"),
        ("Normal", "Logging", "Creation is processed: 1 succeeded; 0 failed."),
        ("Normal", "Logging", "Handler 'create_fn' succeeded."),
        ("Normal", "Logging", "an info message"),
        ("Warning", "Logging", "a warning message"),
    ]


async def test_debug_messages_become_normal_events(
    operator: Operator,
    kex: Objects,
    api: API,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @kopf.on.create("kopfexamples")
    def create_fn(logger: kopf.Logger, **_: Any) -> None:
        logger.debug("a debug message")

    caplog.set_level(logging.DEBUG, "kopf.objects")
    operator.set("posting.loggers", True)
    operator.set("posting.level", logging.DEBUG)
    await operator.start_and_handle(kex)
    await operator.stop()
    assert ("Normal", "Logging", "a debug message") in brief(await api.list_events())


async def test_log_messages_are_posted_by_default(operator: Operator, kex: Objects, api: API) -> None:
    kopf.on.create("kopfexamples", id="fn")(lambda **_: None)
    await operator.start(settings=kopf.OperatorSettings())
    await kex.create()
    events = await wait_for_events(api, 2)
    assert ("Normal", "Logging", "Handler 'fn' succeeded.") in brief(events)


async def test_what_is_not_logged_is_not_posted(
    operator: Operator,
    kex: Objects,
    api: API,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The explicit events do not depend on the levels of the logging."""

    @kopf.on.create("kopfexamples", id="create_fn")
    def create_fn(logger: kopf.Logger, body: kopf.Body, **_: Any) -> None:
        logger.info("not posted")
        logger.warning("a warning message")
        kopf.info(body, reason="Posted", message="x")

    caplog.set_level(logging.WARNING, "kopf.objects")
    operator.set("posting.loggers", True)
    await operator.start_and_handle(kex)
    await operator.stop()
    assert brief(await api.list_events()) == [("Normal", "Posted", "x"), ("Warning", "Logging", "a warning message")]


async def test_raw_event_handlers_do_not_flood_with_their_logs(operator: Operator, kex: Objects, api: API) -> None:
    """Nothing is put to or around the objects for raw events; explicit events are posted nevertheless."""

    @kopf.on.event("kopfexamples", id="fn")
    def fn(logger: kopf.Logger, body: kopf.Body, event: kopf.RawEvent, **_: Any) -> None:
        logger.error("not posted")
        if event["type"] == "ADDED":
            kopf.info(body, reason="Posted", message="x")

    operator.set("posting.loggers", True)
    await operator.start_and_create(kex)
    await wait_for_events(api, 1)
    await operator.stop()
    assert brief(await api.list_events()) == [("Normal", "Posted", "x")]


async def test_messages_that_cannot_be_formatted_do_not_fail_their_handlers(
    operator: Operator, kex: Objects, api: API, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.set("posting.loggers", True)
    monkeypatch.setattr(logging.getLogger("kopf.objects"), "propagate", False)  # the test framework would fail them

    @kopf.on.create("kopfexamples")
    def create_fn(logger: kopf.Logger, **_: Any) -> None:
        logger.info("%s and %s", "one")
        logger.info("All is well.")

    await operator.start_and_create(kex)
    assert ("Normal", "Logging", "All is well.") in brief(await wait_for_events(api, 1))


@pytest.mark.parametrize(
    ("filling", "end"), [("x", "xxxend"), ("\N{SNOWMAN}", "\N{SNOWMAN}éend")], ids=["characters", "bytes"]
)
async def test_long_texts_are_cut_in_bytes(operator: Operator, kex: Objects, api: API, filling: str, end: str) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    def create_fn(body: kopf.Body, **_: Any) -> None:
        last = end.replace("é", "é\udc00").removeprefix(filling)
        kopf.info(body, reason="é" * 100, message="begin" + filling * 5000 + last)

    await operator.start_and_create(kex)
    (event,) = await wait_for_events(api, 1)
    assert event["reason"] == "é" * 64
    assert 1000 < len(event["message"].encode()) <= 1024
    assert event["message"].startswith(f"begin{filling}")
    assert event["message"].endswith(end)


async def test_the_identity_is_configurable(operator: Operator, kex: Objects, api: API) -> None:
    kopf.on.create("kopfexamples")(lambda body, **_: kopf.info(body, reason="R", message="m"))
    operator.set("posting.reporting_component", "my-operator")
    operator.set("posting.reporting_instance", "my-pod")
    operator.set("posting.event_name_prefix", "my-event-")
    await operator.start_and_create(kex)
    (event,) = await wait_for_events(api, 1)
    assert event["reportingComponent"] == event["source"]["component"] == "my-operator"
    assert event["reportingInstance"] == "my-pod"
    assert event["metadata"]["name"].startswith("my-event-")


@pytest.mark.fastforward
@pytest.mark.parametrize("status", [403, 404, 409, 422, 500])
async def test_failures_of_posting_do_not_affect_the_handling(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    status: int,
) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(body: kopf.Body, **_: Any) -> None:
        calls.append("called")
        kopf.info(body, reason="R", message="m")

    operator.cluster.faults.inject(status, resource="events")
    await operator.start()
    for i in range(3):
        await kex.create_and_wait(f"obj{i}")
    await operator.stop()
    assert len(calls) == 3
    assert not logs.get_messages(level=logging.ERROR)


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("explicit", "logging_", "expected"),
    [
        ((), (), 2),
        ((1, 1, 1), (), 5),
        ((), 10, 3),
        ([5] * 4, [5] * 2, 8),
    ],
    ids=str,
)
async def test_failed_requests_are_repeated_by_the_settings(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    explicit: Any,
    logging_: Any,
    expected: int,
) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(body: kopf.Body, logger: kopf.Logger, **_: Any) -> None:
        kopf.warn(body, reason="R", message="explicit")
        logger.warning("logged")

    operator.set("posting.default_backoffs", explicit)
    operator.set("posting.logging_backoffs", logging_)
    operator.set("posting.loggers", True)
    operator.set("posting.level", logging.WARNING)
    operator.cluster.faults.inject(500, resource="events", verb="create")
    await operator.start_and_create(kex)
    await logs.wait("Failed to post an event.*", times=2)
    assert operator.cluster.counters["create", "events", 500] == expected


@pytest.mark.fastforward
@pytest.mark.parametrize(("limit", "duration"), [(1, 100), (2, 50), (10, 10)])
async def test_how_many_requests_are_made_at_once(
    operator: Operator,
    kex: Objects,
    api: API,
    limit: int,
    duration: float,
) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(body: kopf.Body, **_: Any) -> None:
        for i in range(10):
            kopf.info(body, reason="R", message=f"message {i}")

    operator.set("posting.worker_limit", limit)
    operator.cluster.faults.inject(resource="events", verb="create", action="delay", latency=10)
    await operator.start()
    started = asyncio.get_running_loop().time()
    await kex.create()
    async with asyncio.timeout(1000):
        while len(await api.list_events()) < 10:
            await asyncio.sleep(1)
    assert duration - 0.1 < asyncio.get_running_loop().time() - started < duration + 10


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"enabled": False}, []),
        ({"level": logging.ERROR}, ["an error", "explicit error"]),
        ({"level": logging.ERROR, "loggers": False}, ["explicit error"]),
        ({"level": logging.CRITICAL}, []),
    ],
    ids=str,
)
async def test_settings_of_startup_handlers(
    operator: Operator,
    kex: Objects,
    api: API,
    options: dict[str, Any],
    expected: list[str],
) -> None:
    """Both the log messages and the explicit events are affected."""

    @kopf.on.startup()
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        for name, value in {"loggers": True, **options}.items():
            setattr(settings.posting, name, value)

    @kopf.on.create("kopfexamples")
    async def create_fn(body: kopf.Body, logger: kopf.Logger, **_: Any) -> None:
        logger.info("an information")
        logger.error("an error")
        kopf.info(body, reason="Information", message="explicit information")
        kopf.exception(body, reason="Failure", exc=ValueError("explicit error"))

    await operator.start_and_handle(kex)
    await operator.stop()
    assert sorted(event["message"] for event in await api.list_events()) == expected


async def test_outside_of_operators_it_is_a_clear_error() -> None:
    with pytest.raises(LookupError, match="operator"):
        kopf.event({"metadata": {"name": "x"}}, type="T", reason="R")
