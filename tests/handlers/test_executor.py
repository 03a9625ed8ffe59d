from __future__ import annotations

import asyncio
import dataclasses
import datetime
import functools
import logging
from typing import Any

import pytest

import kopf
from kopf._handlers.causes import Cause
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.handler_errors import HandlerChildrenRetry
from kopf._handlers.handlers import Handler, IndexingHandler
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._settings.settings import ExecutionSettings
from kopf._values.ids import HandlerId
from kopf._values.reasons import Activity
from tests.handlers.builders import (
    logger,
    make_activity_handler,
    make_changing_handler,
    make_handler,
    make_watching_handler,
)

STARTED = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)


CAUSE = Cause(logger=logger, memo=None, indices={})
executor = HandlerExecutor(ExecutionSettings())


async def async_fn(**_: Any) -> None: ...


async def execute(handler: Handler, result: Any = None, *, retry: int = 0, runtime: float = 0) -> Outcome:
    """Try the handler once, with the given result or error of its function."""
    attempt = Attempt(retry=retry, started=STARTED, runtime=datetime.timedelta(seconds=runtime))

    async def fn(**_: Any) -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    return await executor.execute(dataclasses.replace(handler, fn=fn), CAUSE, attempt)


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@pytest.mark.parametrize("result", [None, 0, "", {"x": "y"}])
async def test_successes(caplog: pytest.LogCaptureFixture, result: Any) -> None:
    assert await execute(make_handler("create_fn"), result) == Outcome(final=True, result=result)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "Handler 'create_fn' is invoked."),
        ("INFO", "Handler 'create_fn' succeeded."),
    ]


async def test_activities_are_called_so_in_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    await execute(make_activity_handler("cfg"))
    assert caplog.messages == ["Activity 'cfg' is invoked.", "Activity 'cfg' succeeded."]


BOOM, NEVER = ValueError("boom"), kopf.PermanentError("never")
NOT_YET = {delay: kopf.TemporaryError("not yet", delay=delay) for delay in (None, 0, 5, 60)}
FAILED = "failed with an exception and will"


@pytest.mark.parametrize(("options", "error", "outcome", "message"), [
    *(({}, error, Outcome(final=False, delay=delay, exception=error), "failed temporarily: not yet")
      for delay, error in NOT_YET.items()),
    *(({"errors": mode}, NEVER, Outcome(final=True, exception=NEVER), "failed permanently: never")
      for mode in (None, *kopf.ErrorsMode)),
    *(({"errors": mode}, BOOM, Outcome(final=False, delay=60, exception=BOOM),
       f"{FAILED} try again in 60 seconds: ValueError: boom") for mode in (None, kopf.ErrorsMode.TEMPORARY)),
    ({"errors": kopf.ErrorsMode.PERMANENT}, BOOM, Outcome(final=True, exception=BOOM),
     f"{FAILED} stop now: ValueError: boom"),
    ({"errors": kopf.ErrorsMode.IGNORED}, BOOM, Outcome(final=True, ignored=BOOM),
     f"{FAILED} be ignored: ValueError: boom"),
    ({"retries": 100}, BOOM, Outcome(final=True, exception=BOOM),
     f"{FAILED} stop now (it would exceed 100 retries on the next attempt): ValueError: boom"),
])
async def test_errors(
    caplog: pytest.LogCaptureFixture, options: Any, error: Exception, outcome: Outcome, message: str
) -> None:
    assert await execute(make_handler(**options), error, retry=99) == outcome
    assert caplog.messages[-1] == f"Handler 'fn' {message}"
    assert caplog.records[-1].levelname == "ERROR"
    assert bool(caplog.records[-1].exc_info) is (error is BOOM)


@pytest.mark.parametrize("backoff", [0, 2, 1.5])
async def test_the_backoff_is_only_for_arbitrary_errors(backoff: float) -> None:
    handler = make_handler(backoff=backoff)
    assert (await execute(handler, ValueError("boom"))).delay == backoff
    assert (await execute(handler, kopf.TemporaryError("boom", delay=5))).delay == 5


@pytest.mark.parametrize("own", [None, *kopf.ErrorsMode])
@pytest.mark.parametrize(("make", "default"), [
    (make_changing_handler, kopf.ErrorsMode.TEMPORARY),
    (make_activity_handler, kopf.ErrorsMode.TEMPORARY),
    (make_watching_handler, kopf.ErrorsMode.IGNORED),
    (functools.partial(make_activity_handler, activity=Activity.PROBE), kopf.ErrorsMode.PERMANENT),
])
async def test_the_default_mode_is_for_handlers_without_their_own_one(own: Any, make: Any, default: Any) -> None:
    error = ValueError("boom")
    assert await execute(make(errors=own), error) == await execute(make(errors=own or default), error)


@pytest.mark.parametrize("error", [ValueError(), kopf.TemporaryError(), kopf.PermanentError()])
async def test_errors_without_texts_are_named(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    await execute(make_handler(), error)
    assert caplog.messages[-1].endswith(f": {type(error).__name__}")


@pytest.mark.parametrize("mode", [None, *kopf.ErrorsMode])
async def test_waiting_for_subhandlers_is_neither_success_nor_failure(
    caplog: pytest.LogCaptureFixture, mode: Any
) -> None:
    error = HandlerChildrenRetry("waiting", delay=3)
    handler = make_handler(errors=mode, retries=1)
    assert await execute(handler, error) == Outcome(final=False, delay=3, exception=error)
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
async def test_exits_go_through(error: BaseException) -> None:
    with pytest.raises(type(error)):
        await execute(make_handler(errors=kopf.ErrorsMode.IGNORED), error)


async def test_cancellations_go_through_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fn(**_: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(100)

    handler = make_handler("fn", fn, errors=kopf.ErrorsMode.IGNORED)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(executor.execute(handler, CAUSE, Attempt.first(STARTED)))
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "Handler 'fn' is cancelled. Will escalate."
    ]


# --- the number of retries ---


@pytest.mark.parametrize(("retry", "is_final"), [(0, False), (1, False), (2, True)])
@pytest.mark.parametrize("error", [ValueError("boom"), kopf.TemporaryError("boom", delay=1)])
async def test_retries_are_the_number_of_all_attempts(retry: int, is_final: bool, error: Exception) -> None:
    outcome = await execute(make_handler(retries=3), error, retry=retry)
    assert outcome.final is is_final
    assert outcome.exception is error


async def test_the_last_retry_can_succeed() -> None:
    assert await execute(make_handler(retries=3), 123, retry=2) == Outcome(final=True, result=123)


@pytest.mark.parametrize("mode", [None, *kopf.ErrorsMode])
async def test_handlers_are_not_called_when_the_retries_are_exceeded(mode: Any) -> None:
    outcome = await execute(make_handler(retries=3, errors=mode), AssertionError("called"), retry=3)
    assert outcome.final
    assert isinstance(outcome.exception, kopf.HandlerRetriesError)
    assert str(outcome.exception) == "Handler 'fn' has exceeded 3 retries."


# --- timeouts ---


@pytest.mark.parametrize("runtime", [10, 11])
async def test_handlers_are_not_called_when_they_have_timed_out(runtime: float) -> None:
    outcome = await execute(make_handler(timeout=10), AssertionError("called"), runtime=runtime)
    assert outcome.final
    assert isinstance(outcome.exception, kopf.HandlerTimeoutError)


@pytest.mark.parametrize(("delay", "is_final"), [(1, False), (2, True), (3, True)])
@pytest.mark.parametrize("make_error", [lambda delay: ValueError(), lambda delay: kopf.TemporaryError(delay=delay)])
async def test_there_is_no_waiting_for_an_attempt_that_would_be_too_late(
    make_error: Any, delay: int, is_final: bool
) -> None:
    handler = make_handler(timeout=10, backoff=delay)
    assert (await execute(handler, make_error(delay), runtime=8)).final is is_final


@pytest.mark.fastforward
async def test_coroutines_are_interrupted_when_their_overall_time_is_over() -> None:
    async def fn(**_: Any) -> None:
        await asyncio.sleep(60)

    loop = asyncio.get_running_loop()
    start = loop.time()
    attempt = Attempt(retry=1, started=STARTED, runtime=datetime.timedelta(seconds=7))
    outcome = await executor.execute(make_handler(fn=fn, timeout=10), CAUSE, attempt)
    assert outcome.final
    assert isinstance(outcome.exception, kopf.HandlerTimeoutError)
    assert str(outcome.exception) == "Handler 'fn' has timed out after 10 seconds."
    assert loop.time() - start == pytest.approx(3, abs=0.1)


@pytest.mark.fastforward
async def test_regular_functions_are_not_interrupted() -> None:
    """Threads cannot be. It is called in place here, so that the clock can jump meanwhile."""
    async def sleep() -> int:
        await asyncio.sleep(60)
        return 123

    handler = IndexingHandler(id=HandlerId("fn"), fn=lambda **_: sleep(), selector=None, timeout=10)
    assert await executor.execute(handler, CAUSE, Attempt.first(STARTED)) == Outcome(final=True, result=123)


async def test_timeouts_inside_of_handlers_are_arbitrary_errors() -> None:
    error = TimeoutError("of something else")
    outcome = await execute(make_handler(fn=async_fn, timeout=10), error)
    assert outcome == Outcome(final=True, exception=error)
    outcome = await execute(make_handler(fn=async_fn, timeout=100), error)
    assert outcome == Outcome(final=False, delay=60, exception=error)
