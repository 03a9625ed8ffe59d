from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Any

import pytest

import kopf
from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.causes import Cause
from kopf._handlers.current_handler import SubhandlingContext, current_cause, current_subhandling
from kopf._handlers.executor import HandlerExecutor, Surroundings
from kopf._handlers.handler_errors import HandlerChildrenRetry
from kopf._handlers.handlers import Handler, IndexingHandler
from kopf._settings.settings import ExecutionSettings
from kopf._values.ids import HandlerId
from kopf._values.records import replace
from tests.handlers.builders import (
    logger,
    make_activity_handler,
    make_changing_cause,
    make_changing_handler,
    make_handler,
)

STARTED = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)


CAUSE = Cause(logger=logger, memo=None, indices={})
executor = HandlerExecutor(ExecutionSettings())


async def execute(handler: Handler, result: Any = None, *, retry: int = 0, runtime: float = 0) -> Outcome:
    """Try the handler once, with the given result or error of its function."""
    attempt = Attempt(retry=retry, started=STARTED, runtime=datetime.timedelta(seconds=runtime))

    async def fn(**_: Any) -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    return await executor.execute(replace(handler, fn=fn), CAUSE, attempt)


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
UNFINISHED = HandlerChildrenRetry("waiting", delay=3)
UNFINISHED_TEXT = "has unfinished sub-handlers. Will retry soon."
FAILED = "failed with an exception and will"


@pytest.mark.parametrize(
    ("options", "error", "outcome", "message"),
    [
        *(
            ({}, error, Outcome(final=False, delay=delay, exception=error), "failed temporarily: not yet")
            for delay, error in NOT_YET.items()
        ),
        *(
            ({"errors": mode}, NEVER, Outcome(final=True, exception=NEVER), "failed permanently: never")
            for mode in (None, *kopf.ErrorsMode)
        ),
        *(
            (
                {"errors": mode},
                BOOM,
                Outcome(final=False, delay=60, exception=BOOM),
                f"{FAILED} try again in 60 seconds: ValueError: boom",
            )
            for mode in (None, kopf.ErrorsMode.TEMPORARY)
        ),
        (
            {"errors": kopf.ErrorsMode.PERMANENT},
            BOOM,
            Outcome(final=True, exception=BOOM),
            f"{FAILED} stop now: ValueError: boom",
        ),
        (
            {"errors": kopf.ErrorsMode.IGNORED},
            BOOM,
            Outcome(final=True, ignored=BOOM),
            f"{FAILED} be ignored: ValueError: boom",
        ),
        (
            {"retries": 100},
            BOOM,
            Outcome(final=True, exception=BOOM),
            f"{FAILED} stop now (it would exceed 100 retries on the next attempt): ValueError: boom",
        ),
        ({"retries": 1}, UNFINISHED, Outcome(final=False, delay=3, exception=UNFINISHED), UNFINISHED_TEXT),
    ],
)
async def test_errors(
    caplog: pytest.LogCaptureFixture, options: Any, error: Exception, outcome: Outcome, message: str
) -> None:
    assert await execute(make_handler(**options), error, retry=99 if error is not UNFINISHED else 0) == outcome
    assert caplog.messages[-1] == f"Handler 'fn' {message}"
    assert caplog.records[-1].levelname == ("DEBUG" if error is UNFINISHED else "ERROR")
    assert bool(caplog.records[-1].exc_info) is (error is BOOM)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
async def test_exits_go_through(error: BaseException) -> None:
    with pytest.raises(type(error)):
        await execute(make_handler(errors=kopf.ErrorsMode.IGNORED), error)


async def test_other_exceptions_are_errors() -> None:
    """E.g. panics of libraries in Rust are no exits of the interpreter."""
    panic = BaseException("panic")
    outcome = await execute(make_handler(), panic)
    assert repr(outcome.exception) == "RuntimeError('function raised BaseException: panic')"
    assert outcome.exception is not None
    assert outcome.exception.__cause__ is panic
    assert not outcome.final


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


@pytest.mark.parametrize("error", [None, ValueError("boom")])
async def test_the_context_is_known_only_while_the_handler_is_executed(error: Exception | None) -> None:
    seen: list[Any] = []

    async def fn(**_: Any) -> None:
        seen.extend([current_cause.get(), current_subhandling.get()])
        if error is not None:
            raise error

    handler, cause = make_changing_handler(fn=fn), make_changing_cause({})
    context = SubhandlingContext(handler, cause, execute=pytest.fail)
    await executor.execute(handler, cause, Attempt.first(STARTED), Surroundings(subhandling=context))
    assert seen == [cause, context]
    assert current_cause.get(None) is None
    assert current_subhandling.get(None) is None


# --- limits; which ones, is up to the policy of retries ---


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        *(
            ({"retries": 3, "errors": mode}, kopf.HandlerRetriesError, "Handler 'fn' has exceeded 3 retries.")
            for mode in (None, *kopf.ErrorsMode)
        ),
        ({"timeout": 10}, kopf.HandlerTimeoutError, "Handler 'fn' has timed out after 0:00:10."),
    ],
)
async def test_handlers_are_not_called_when_their_limits_are_exceeded(options: Any, error: Any, text: str) -> None:
    outcome = await execute(make_handler(**options), AssertionError("called"), retry=3, runtime=10)
    assert outcome.final
    assert isinstance(outcome.exception, error)
    assert str(outcome.exception) == text


@pytest.mark.fastforward
async def test_regular_functions_are_not_interrupted() -> None:
    """Threads cannot be. It is called in place here, so that the clock can jump meanwhile."""

    async def sleep() -> int:
        await asyncio.sleep(60)
        return 123

    handler = IndexingHandler(id=HandlerId("fn"), fn=lambda **_: sleep(), selector=None, timeout=10)
    executor = HandlerExecutor(ExecutionSettings())  # its threads are of one event loop
    assert await executor.execute(handler, CAUSE, Attempt.first(STARTED)) == Outcome(final=True, result=123)
