"""Errors of handlers: temporary, permanent, and arbitrary ones; what is retried, and when."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, cast

import pytest

import kopf
from tests.behaviour.objects import Objects, get_progress
from tests.behaviour.running import Calls, Decorator, Logs, Operator, get_pauses, now

pytestmark = [pytest.mark.fastforward, pytest.mark.lagging]


DELAYS: dict[str, tuple[dict[str, Any], float]] = {
    "default": ({}, 60),
    "seconds": ({"delay": 12.5}, 12.5),
    "hour": ({"delay": 3600}, 3600),
    "zero": ({"delay": 0}, 0),
    "none": ({"delay": None}, 0),
}


async def test_temporary_errors_are_retried_after_their_delay(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    async def create_fn(name: str, retry: int, **_: Any) -> str:
        calls.append((name, now()))
        if retry < 3:
            raise kopf.TemporaryError("not yet", **DELAYS[name][0])
        return "done"

    await operator.start()
    await kex.create_all(DELAYS)
    for name, (_options, delay) in DELAYS.items():
        obj = await kex.wait_handled(name)
        assert obj["status"] == {"create_fn": "done"}
        assert get_pauses(time for who, time in calls if who == name) == pytest.approx([delay] * 3, abs=1)
        assert logs.get_messages(name).count("Handler 'create_fn' failed temporarily: not yet") == 3
        assert "Creation is processed: 1 succeeded; 0 failed." in logs.get_messages(name)


async def test_resuming_is_retried_after_errors_and_happens_once_otherwise(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.resume("kopfexamples")(
        calls.noting(lambda retry, **_: retry, error=kopf.TemporaryError("not yet", delay=100), times=2)
    )
    kopf.on.update("kopfexamples", id="update_fn")(lambda **_: None)
    await kex.create()
    await operator.start()
    await calls.wait_length(3)
    await kex.wait_handled()
    for field in ("new1", "new2"):
        await kex.change_and_wait(field=field)
    await asyncio.sleep(1000)
    assert calls == [0, 1, 2]


async def test_permanent_errors_are_not_retried(operator: Operator, kex: Objects, logs: Logs, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="perm")
    def perm(**_: Any) -> None:
        calls.append("called")
        raise kopf.PermanentError("never")

    kopf.on.create("kopfexamples", id="good")(lambda **_: "done")
    obj = await operator.start_and_handle(kex)
    assert obj["status"] == {"good": "done"}
    assert calls == ["called"]
    assert "Handler 'perm' failed permanently: never" in logs.get_messages("obj")
    assert "Creation is processed: 1 succeeded; 1 failed." in logs.get_messages("obj")


async def test_arbitrary_errors_are_retried_after_a_minute_by_default(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    modes: dict[str, dict[str, Any]] = {
        "default": {},
        "none": {"errors": None},
        "temporary": {"errors": kopf.ErrorsMode.TEMPORARY},
    }
    for id, options in modes.items():
        kopf.on.create("kopfexamples", **options, id=id, param=id)(
            calls.noting(lambda param, **_: (param, now()), error=ValueError("boom"), times=10)
        )
    await operator.start_and_handle(kex)
    for id in modes:
        assert get_pauses(time for who, time in calls if who == id) == pytest.approx([60] * 10, abs=1)
        found = logs.find(f"Handler '{id}' failed with an exception and will try again in 60 seconds: ValueError: boom")
        assert len(found) == 10
        assert found[0].exc_info
        assert isinstance(found[0].exc_info[1], ValueError)


async def test_arbitrary_errors_are_not_retried_in_other_modes(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    verdicts = {kopf.ErrorsMode.PERMANENT: "will stop now", kopf.ErrorsMode.IGNORED: "will be ignored"}
    for mode in verdicts:
        kopf.on.create("kopfexamples", errors=mode, id=mode.name, param=mode)(
            calls.noting(lambda param, **_: param, error=ValueError("boom"))
        )
    await operator.start_and_handle(kex)
    assert sorted(calls, key=str) == sorted(verdicts, key=str)
    for mode, verdict in verdicts.items():
        [record] = logs.find(f"Handler '{mode.name}' failed with an exception and {verdict}: ValueError: boom")
        assert record.exc_info
    assert logs.find("Creation is processed: 1 succeeded; 1 failed.")


class MyTemporaryError(kopf.TemporaryError):
    """It is of the kind of its parent."""


class MyPermanentError(kopf.PermanentError):
    """As above."""


async def test_the_modes_do_not_affect_temporary_and_permanent_errors(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    kinds: list[tuple[Any, Any, Any]] = [
        *((mode, kopf.TemporaryError, kopf.PermanentError) for mode in kopf.ErrorsMode),
        (None, MyTemporaryError, MyPermanentError),
    ]
    for id, (mode, temporary, permanent) in enumerate(kinds):

        @kopf.on.create("kopfexamples", errors=mode, id=str(id), param=(id, temporary, permanent))
        async def fn(param: tuple[int, Any, Any], retry: int, **_: Any) -> None:
            id, temporary, permanent = param
            calls.append((id, now()))
            raise permanent("never") if retry else temporary("not yet", delay=10)

    await operator.start_and_handle(kex)
    for id, _ in enumerate(kinds):
        assert get_pauses(time for who, time in calls if who == id) == pytest.approx([10], abs=1)
    assert logs.find(f"Creation is processed: 0 succeeded; {len(kinds)} failed.")


async def test_a_failing_handler_does_not_hold_the_others(operator: Operator, kex: Objects, calls: Calls) -> None:
    started: float
    kopf.on.create("kopfexamples", id="slow")(
        calls.noting(
            lambda retry, **_: ("slow", retry, now() - started), error=kopf.TemporaryError("later", delay=500), times=1
        )
    )

    kopf.on.create("kopfexamples", id="quick")(
        calls.noting(
            lambda retry, **_: ("quick", retry, now() - started), error=kopf.TemporaryError("soon", delay=100), times=2
        )
    )

    await operator.start()
    started = now()
    await kex.create_and_wait()
    assert [call[:2] for call in calls] == [("slow", 0), ("quick", 0), ("quick", 1), ("quick", 2), ("slow", 1)]
    assert [call[2] for call in calls] == pytest.approx([0, 0, 100, 200, 500], abs=1)


async def test_while_waiting_nothing_is_sent_to_the_api(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    kopf.on.create("kopfexamples", id="fn")(
        calls.noting(
            lambda **_: operator.cluster.counters.get(("patch", "kopfexamples", 200), 0),
            error=kopf.TemporaryError("later", delay=1000),
            times=3,
        )
    )

    await operator.start_and_handle(kex)
    assert calls == [0, 1, 2, 3]  # only the progress after each of the attempts
    delays = [float(record.getMessage().split()[2]) for record in logs.find("Sleeping for .* seconds for the .*")]
    assert len(delays) >= 3
    assert all(0 < delay <= 1000 for delay in delays)


async def test_the_last_error_is_kept_in_the_progress(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples", id="fn")
    async def fn(retry: int, **_: Any) -> None:
        calls.append(now())
        raise (
            kopf.TemporaryError(f"temporary {retry}", delay=10)
            if retry < 1
            else ValueError(f"arbitrary {retry}")
            if retry < 2
            else kopf.PermanentError("permanent")
        )

    @kopf.on.create("kopfexamples")
    async def holding(retry: int, **_: Any) -> None:
        if not retry:
            raise kopf.TemporaryError("hold", delay=1000)

    await operator.start_and_handle(kex)
    messages = [get_progress(obj).get("fn", {}).get("message") for obj in kex.get_history()]
    unique = list(dict.fromkeys(message for message in messages if message is not None))
    assert unique == ["temporary 0", "arbitrary 1", "permanent"]


async def test_errors_of_raw_events_are_logged_and_ignored(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    kopf.on.event("kopfexamples", id="bad")(
        calls.noting(lambda event, **_: ("bad", event["type"]), error=ValueError("boom"))
    )
    kopf.on.event("kopfexamples", id="temporary")(
        calls.noting(lambda event, **_: ("temporary", event["type"]), error=kopf.TemporaryError("not yet"))
    )
    await operator.start_and_create(kex)
    await kex.delete()
    await calls.wait_length(4)
    assert calls == [("bad", "ADDED"), ("temporary", "ADDED"), ("bad", "DELETED"), ("temporary", "DELETED")]
    assert len(logs.find("Handler 'bad' failed with an exception and will be ignored: ValueError: boom")) == 2
    assert all("annotations" not in obj["metadata"] and "status" not in obj for obj in kex.get_history())


async def test_permanent_errors_exclude_the_handler_from_one_change_only(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    kopf.on.update("kopfexamples", id="fn")(
        calls.noting(lambda spec, **_: spec["field"], error=kopf.PermanentError("never"))
    )
    await operator.start_and_handle(kex)
    for value in ("one", "two"):
        await kex.change_and_wait(field=value)
    assert calls == ["one", "two"]


async def test_handlers_exclude_themselves_forever_by_annotations(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    @kopf.on.update("kopfexamples", annotations={"never-again": kopf.ABSENT}, id="excluded")
    async def excluded(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        calls.append(("excluded", spec["field"]))
        patch.metadata.annotations["never-again"] = "yes"
        raise kopf.PermanentError("never again")

    kopf.on.update("kopfexamples", field="spec.field", id="regular")(
        calls.noting(lambda spec, **_: ("regular", spec["field"]))
    )
    await operator.start_and_handle(kex)
    await kex.change_and_wait(field="one")
    await kex.change_and_wait(field="two")
    await operator.restart()
    await kex.change_and_wait(field="three")
    assert sorted(calls) == [("excluded", "one"), ("regular", "one"), ("regular", "three"), ("regular", "two")]


class ApiException(Exception):
    """As in the official client, where it has the status, too."""

    status = 404


@pytest.mark.parametrize("decorator", [kopf.on.event, kopf.on.create, kopf.daemon])
async def test_errors_of_users_clients_are_shown_with_their_tracebacks(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    decorator: Decorator,
) -> None:
    errors = {
        "api": ApiException("not there"),
        "connection": ConnectionError("not there"),
        "task": asyncio.CancelledError("not there"),
    }

    def fail(error: BaseException) -> None:
        raise error

    @decorator("kopfexamples")
    async def handler_fn(name: str, patch: kopf.Patch, **_: Any) -> None:
        patch.fns.append(lambda body: fail(errors[name]))

    logs.expected.append("not there")
    await operator.start()
    for name, error in errors.items():
        await kex.create(name)
        await logs.wait(rf".*(could not be handled|a patch that cannot be applied).*{type(error).__name__}.*not there")
        found = logs.find(".*(could not be handled|a patch that cannot be applied).*not there")
        assert any(record.exc_info and record.exc_info[1] is error for record in found)


class TextlessError(Exception):
    def __str__(self) -> str:
        raise AttributeError("nosuch")


class TextlessTemporaryError(TextlessError, kopf.TemporaryError):
    def __init__(self) -> None:  # with no call of the inherited one
        pass


class TextlessPermanentError(TextlessError, kopf.PermanentError):
    pass


async def test_errors_with_broken_classes(operator: Operator, kex: Objects, logs: Logs, calls: Calls) -> None:
    """They are errors like any other, with their own consequences."""

    def fail(param: type[Exception] = TextlessError, retry: int = 0, **_: Any) -> bool:
        if not retry:
            raise param
        return True

    for id, error in {
        "arbitrary": TextlessError,
        "temporary": TextlessTemporaryError,
        "permanent": TextlessPermanentError,
    }.items():
        kopf.on.create("kopfexamples", id=id, param=error, retries=5, backoff=60)(fail)
    kopf.timer("kopfexamples", id="timer", param=TextlessError, backoff=5)(fail)
    kopf.on.create("kopfexamples", id="filtered", param=TextlessError, when=fail)(calls.noting("filtered"))
    logs.expected.append("of Handler 'filtered' has failed: TextlessError")
    await operator.start_and_handle(kex)
    await logs.wait("Timer 'timer' succeeded.")
    text = "<exception str\\(\\) failed>"
    for line in (
        f"Handler 'arbitrary' failed with an exception and will try again in 60 seconds: TextlessError: {text}",
        f"Handler 'temporary' failed temporarily: {text}",
        f"Handler 'permanent' failed permanently: {text}",
        "Handler 'arbitrary' succeeded.",
        "Handler 'temporary' succeeded.",
    ):
        assert len(logs.find(line)) == 1
    assert calls == []


async def test_errors_that_event_loops_take_for_something_else_are_arbitrary_ones_in_sync_handlers(
    operator: Operator,
    kex: Objects,
    logs: Logs,
) -> None:
    errors = {
        "stop": StopIteration(),
        "asyncio": asyncio.CancelledError(),
        "concurrent": concurrent.futures.CancelledError(),
        "panic": BaseException(),  # as by libraries in Rust
    }

    def fail(param: str, retry: int = 0, **_: Any) -> dict[str, str]:
        if not retry:
            raise errors[param]
        return {"passed": "well"}

    for id in errors:
        kopf.on.create("kopfexamples", id=f"create-{id}", param=id, backoff=5)(fail)
        kopf.on.event("kopfexamples", id=f"event-{id}", param=id)(fail)
        kopf.index("kopfexamples", id=f"index_{id}", param=id)(fail)
        kopf.daemon("kopfexamples", id=f"daemon-{id}", param=id, backoff=5)(fail)
        kopf.timer("kopfexamples", id=f"timer-{id}", param=id, interval=100, backoff=5)(fail)
        kopf.on.startup(id=f"startup-{id}", param=id, backoff=5)(fail)
        kopf.on.cleanup(id=f"cleanup-{id}", param=id, backoff=5)(fail)
    await operator.start_and_handle(kex)
    for id in errors:
        for name in (f"Handler 'create-{id}'", f"Daemon 'daemon-{id}'", f"Timer 'timer-{id}'"):
            await logs.wait(f"{name} succeeded.")
    await operator.stop()
    for id, error in errors.items():
        failure = f"RuntimeError: function raised {type(error).__name__}"
        for kind, prefix in {
            "create": "Handler",
            "daemon": "Daemon",
            "timer": "Timer",
            "startup": "Activity",
            "cleanup": "Activity",
        }.items():
            name = f"{prefix} '{kind}-{id}'"
            assert len(logs.find(f"{name} failed with an exception and will try again in 5 seconds: {failure}")) == 1
            assert len(logs.find(f"{name} succeeded.")) == 1
        for name in (f"Handler 'event-{id}'", f"Indexer 'index_{id}'"):
            assert logs.find(f"{name} failed with an exception and will be ignored: {failure}")


async def test_coroutines_that_wait_for_what_is_cancelled_by_others_have_failed(
    operator: Operator,
    kex: Objects,
    logs: Logs,
) -> None:
    async def wait_for_cancelled(retry: int, **_: Any) -> None:
        if not retry:
            task = asyncio.create_task(asyncio.sleep(100))
            asyncio.get_running_loop().call_soon(task.cancel)
            await task

    kopf.on.create("kopfexamples", id="create_fn", backoff=5)(wait_for_cancelled)
    kopf.daemon("kopfexamples", id="daemon_fn", backoff=5)(wait_for_cancelled)
    await operator.start_and_create(kex)
    for name in ("Handler 'create_fn'", "Daemon 'daemon_fn'"):
        await logs.wait(f"{name} succeeded.")
        failure = "RuntimeError: coroutine raised CancelledError"
        assert len(logs.find(f"{name} failed with an exception and will try again in 5 seconds: {failure}")) == 1


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.delete, kopf.on.event])
async def test_handlers_that_cancel_their_own_task_do_not_make_their_object_deaf(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    decorator: Decorator,
) -> None:
    @decorator("kopfexamples")
    async def fn(**_: Any) -> None:
        calls.append("fn")
        if len(calls) == 1:
            cast("asyncio.Task[Any]", asyncio.current_task()).cancel()
            await asyncio.sleep(100)

    logs.expected.append("cancelled its own task")
    await operator.start_and_create(kex)
    if decorator is not kopf.on.create:
        await kex.wait(lambda obj: decorator is kopf.on.event or obj["metadata"].get("finalizers"))
        await kex.delete()
    await calls.wait_length(2)
    await logs.wait(
        "(The object|The event) could not be handled.*: CancelledError: the handler has cancelled its own task"
    )
