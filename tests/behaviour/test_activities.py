"""The life of the operator: startup, login, cleanup; in which order, and what if they fail."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator, do_nothing, now


async def test_the_order_of_everything(operator: Operator, kex: Objects, calls: Calls) -> None:
    registry = operator.registry = kopf.OperatorRegistry()

    kopf.on.startup(registry=registry, id="startup_1")(lambda **_: calls.append("startup 1"))
    kopf.on.startup(registry=registry, id="startup_2")(calls.noting("startup 2"))

    @kopf.on.login(registry=registry, id="login")
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        calls.append("login")
        return kopf.login_with_kubeconfig(**kwargs)

    kopf.on.create("kopfexamples", registry=registry, id="create_fn")(calls.noting("create"))
    kopf.on.cleanup(registry=registry, id="cleanup_1")(calls.noting("cleanup 1"))
    kopf.on.cleanup(registry=registry, id="cleanup_2")(lambda **_: calls.append("cleanup 2"))
    await operator.find_and_handle(kex)
    await operator.stop()
    assert calls == ["startup 1", "startup 2", "login", "create", "cleanup 1", "cleanup 2"]


async def test_nothing_is_requested_before_the_startup_is_over(operator: Operator, calls: Calls) -> None:
    kopf.on.startup()(calls.noting(lambda **_: dict(operator.cluster.counters)))
    kopf.on.event("kopfexamples")(lambda **_: None)
    operator.cluster.reset_counters()
    await operator.start()
    assert calls == [{}]
    assert operator.cluster.counters


async def test_a_failed_startup_is_the_error_of_the_operator(operator: Operator, logs: Logs, calls: Calls) -> None:
    kopf.on.startup(id="good")(calls.noting("good"))

    @kopf.on.startup(id="bad")
    async def bad(**_: Any) -> None:
        raise kopf.PermanentError("it is broken")

    kopf.on.cleanup(id="cleanup")(calls.noting("cleanup"))
    kopf.on.event("kopfexamples")(lambda **_: None)
    operator.cluster.reset_counters()
    await operator.launch_in_vain(Exception, "'bad'.*it is broken")
    assert operator.cluster.counters == {}
    assert calls[0] == "good"
    assert logs.find("Activity 'bad' failed permanently: it is broken")


@pytest.mark.fastforward
async def test_startup_handlers_are_retried(operator: Operator, calls: Calls) -> None:
    started = now()
    kopf.on.startup(id="arbitrary")(
        calls.noting(lambda retry, **_: ("arbitrary", retry, round(now() - started)), error=ValueError("boom"), times=2)
    )

    kopf.on.startup(id="temporary")(
        calls.noting(lambda retry, **_: ("temporary", retry), error=kopf.TemporaryError("not yet", delay=10), times=2)
    )
    await operator.launch()
    assert [call for call in calls if call[0] == "arbitrary"] == [
        ("arbitrary", 0, 0),
        ("arbitrary", 1, 60),
        ("arbitrary", 2, 120),
    ]
    assert [call for call in calls if call[0] == "temporary"] == [("temporary", i) for i in range(3)]


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        ({"retries": 3}, 3),
        ({"errors": kopf.ErrorsMode.PERMANENT}, 1),
        ({"timeout": 100}, 2),
    ],
    ids=str,
)
async def test_limits_of_startup_handlers(
    operator: Operator,
    calls: Calls,
    options: dict[str, Any],
    attempts: int,
) -> None:
    kopf.on.startup(**options, id="bad")(calls.noting("called", error=ValueError("boom")))
    await operator.launch_in_vain(Exception, "'bad'.*boom")
    assert len(calls) == attempts


async def test_ignored_errors_of_startup_handlers(operator: Operator) -> None:
    @kopf.on.startup(errors=kopf.ErrorsMode.IGNORED, id="bad")
    async def bad(**_: Any) -> None:
        raise ValueError("boom")

    await operator.launch()
    await operator.stop()


async def test_settings_of_startup_handlers_are_in_effect(operator: Operator, kex: Objects) -> None:
    @kopf.on.startup()
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.persistence.finalizer = "example.com/mine"
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="example.com", key="last")
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="example.com")

    kopf.on.create("kopfexamples")(do_nothing)
    kopf.on.delete("kopfexamples")(do_nothing)
    await operator.start_and_create(kex)
    obj = await kex.wait(lambda obj: "example.com/last" in obj["metadata"].get("annotations", {}))
    assert obj["metadata"]["finalizers"] == ["example.com/mine"]
    assert obj["metadata"]["annotations"] == {
        "example.com/last": '{"spec":{"field":"value"}}\n',
        "example.com/kopf-managed": "yes",
    }


@pytest.mark.parametrize("way", ["stop", "cancel"])
async def test_cleanup_happens_however_it_ends(operator: Operator, calls: Calls, way: str) -> None:
    @kopf.on.cleanup()
    async def cleanup_fn(**_: Any) -> None:
        calls.append("entered")
        await asyncio.sleep(0.01)
        calls.append("left")

    await operator.launch()
    if way == "stop":
        await operator.stop()
    else:
        await operator.cancel()
    assert calls == ["entered", "left"]


async def test_cleanup_happens_after_a_fatal_failure(operator: Operator, calls: Calls, logs: Logs) -> None:
    registry = operator.registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, id="login")
    async def login(**_: Any) -> None:
        raise kopf.PermanentError("no way in")

    kopf.on.cleanup(registry=registry)(calls.noting("cleaned"))
    logs.expected.append("no way in")
    await operator.launch_in_vain(kopf.LoginError, "no way in")
    assert calls == ["cleaned"]


@pytest.mark.parametrize("way", ["stop", "cancel"])
async def test_an_exit_after_a_failure_is_not_interrupted(
    operator: Operator, calls: Calls, logs: Logs, way: str
) -> None:
    """E.g. by the signal of the kubelet: the cleanup is finished, and the error is told."""
    registry = operator.registry = kopf.OperatorRegistry()
    going_on = asyncio.Event()

    @kopf.on.startup(registry=registry)
    async def fail(**_: Any) -> None:
        raise kopf.PermanentError("no database")

    @kopf.on.cleanup(registry=registry)
    async def clean(**_: Any) -> None:
        calls.append("entered")
        await going_on.wait()
        calls.append("left")

    logs.expected.append("no database")
    launching = asyncio.create_task(operator.launch())
    await calls.wait_length(1)
    ending = asyncio.create_task(operator.stop() if way == "stop" else operator.cancel())
    await asyncio.sleep(0.1)
    going_on.set()
    with pytest.raises(kopf.ActivityError, match="no database") if way == "stop" else contextlib.nullcontext():
        await ending
    await launching
    assert calls == ["entered", "left"]


@pytest.mark.fastforward
async def test_failures_of_cleanup_are_retried_and_reported(operator: Operator, logs: Logs, calls: Calls) -> None:
    kopf.on.cleanup(id="retried")(
        calls.noting(lambda retry, **_: ("retried", retry), error=kopf.TemporaryError("not yet", delay=5), times=2)
    )

    @kopf.on.cleanup(id="bad")
    async def bad(**_: Any) -> None:
        raise kopf.PermanentError("never")

    kopf.on.cleanup(id="good")(calls.noting("good"))
    await operator.launch()
    with pytest.raises(Exception, match="'bad'.*never"):
        await operator.stop()
    assert calls == [("retried", 0), ("retried", 1), ("retried", 2), "good"]
    assert logs.find("Activity 'bad' failed permanently: never")


async def test_background_threads_from_startup_to_cleanup(operator: Operator, kex: Objects, calls: Calls) -> None:
    import queue

    def work(jobs: queue.Queue[Any]) -> None:
        while (item := jobs.get()) is not None:
            calls.append(item)

    @kopf.on.startup()
    def start(memo: kopf.Memo, **_: Any) -> None:
        memo.jobs = queue.Queue()
        memo.thread = threading.Thread(target=work, args=(memo.jobs,))
        memo.thread.start()

    @kopf.on.cleanup(id="stop")
    def stop(memo: kopf.Memo, **_: Any) -> None:
        memo["jobs"].put(None)
        memo["thread"].join()

    @kopf.on.event("kopfexamples")
    def pinged(memo: kopf.Memo, namespace: str, name: str, **_: Any) -> None:
        if not memo.get("is_seen"):
            memo.jobs.put(f"{namespace}/{name}")
            memo.is_seen = True

    await operator.start_and_create(kex)
    await kex.merge({"spec": {"field": "new"}})
    await kex.create("another")
    await calls.wait_length(2)
    await operator.stop()
    assert sorted(calls) == ["default/another", "default/obj"]  # different objects are handled in parallel
