from __future__ import annotations

import datetime
import functools
import logging
from typing import Any

import pytest

import kopf
from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.handler_errors import HandlerChildrenRetry, UnfitObjectError
from kopf._handlers.handlers import (
    ActivityHandler,
    ChangingHandler,
    DaemonHandler,
    Handler,
    IndexingHandler,
    TimerHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._handlers.retry_policy import Judgement, Retries, check_limits, get_errors_mode, judge
from kopf._values.bodies import StanzaError
from kopf._values.ids import HandlerId
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.reasons import Activity, Reason, WebhookType
from tests.handlers.builders import do_nothing, make_handler

STARTED = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
IGNORED, TEMPORARY, PERMANENT = kopf.ErrorsMode.IGNORED, kopf.ErrorsMode.TEMPORARY, kopf.ErrorsMode.PERMANENT


def make_attempt(retry: int = 0, runtime: float = 0, reentries: int = 0) -> Attempt:
    return Attempt(retry, STARTED, datetime.timedelta(seconds=runtime), reentries)


def judge_it(handler: Handler, error: Exception, **attempt: Any) -> Judgement:
    return judge(handler, make_attempt(**attempt), error, default_backoff=60)


# --- limits ---


@pytest.mark.parametrize(
    ("options", "attempt"),
    [
        ({}, {"retry": 10**6, "runtime": 10**6}),
        ({"retries": 3}, {"retry": 2}),
        ({"retries": 3}, {"retry": 4, "reentries": 2}),
        ({"timeout": 10}, {"runtime": 9.9}),
    ],
)
def test_limits_that_are_not_reached_before_the_attempt(options: Any, attempt: Any) -> None:
    check_limits(make_handler(**options), make_attempt(**attempt))


@pytest.mark.parametrize(
    ("options", "attempt", "expected", "text"),
    [
        ({"retries": 3}, {"retry": 3}, kopf.HandlerRetriesError, "has exceeded 3 retries"),
        ({"retries": 3}, {"retry": 4}, kopf.HandlerRetriesError, "has exceeded 4 retries"),
        ({"retries": 0}, {}, kopf.HandlerRetriesError, "has exceeded 0 retries"),
        ({"timeout": 10}, {"runtime": 10}, kopf.HandlerTimeoutError, "has timed out after 0:00:10"),
        ({"timeout": 10}, {"runtime": 11, "reentries": 1}, kopf.HandlerTimeoutError, "has timed out after 0:00:11"),
        ({"timeout": 0}, {}, kopf.HandlerTimeoutError, "has timed out after 0:00:00"),
        ({"timeout": 10, "retries": 3}, {"runtime": 10, "retry": 3}, kopf.HandlerTimeoutError, "has timed out"),
    ],
)
def test_limits_before_the_attempt(options: Any, attempt: Any, expected: type[Exception], text: str) -> None:
    with pytest.raises(expected, match=f"^Handler 'fn' {text}"):
        check_limits(make_handler(**options), make_attempt(**attempt))


@pytest.mark.parametrize(
    ("options", "attempt", "is_final"),
    [
        ({}, {"retry": 10**6, "runtime": 10**6}, False),
        ({"retries": 3}, {"retry": 1}, False),
        ({"retries": 3}, {"retry": 2}, True),
        ({"retries": 3}, {"retry": 3, "reentries": 1}, True),
        ({"retries": 3}, {"retry": 3, "reentries": 2}, False),
        ({"timeout": 10}, {"runtime": 4.9}, False),
        ({"timeout": 10}, {"runtime": 5}, True),
        ({"timeout": 10}, {"runtime": 15}, True),
    ],
)
@pytest.mark.parametrize("error", [ValueError("boom"), kopf.TemporaryError("boom", delay=5)])
def test_limits_of_the_next_attempt(options: Any, attempt: Any, is_final: bool, error: Exception) -> None:
    outcome = judge_it(make_handler(backoff=5, **options), error, **attempt).outcome
    assert outcome == Outcome(final=is_final, delay=None if is_final else 5, exception=error)


# --- delays ---


@pytest.mark.parametrize(
    ("error", "backoff", "delay"),
    [
        (ValueError(), None, 60),
        (ValueError(), 0, 0),
        (ValueError(), 7.5, 7.5),
        (kopf.TemporaryError(), 5, 60),
        (kopf.TemporaryError(delay=None), 5, None),
        (kopf.TemporaryError(delay=0), 5, 0),
        (kopf.TemporaryError(delay=1.5), 5, 1.5),
        (HandlerChildrenRetry(delay=3), 5, 3),
    ],
)
def test_delays(error: Exception, backoff: float | None, delay: float | None) -> None:
    assert judge_it(make_handler(backoff=backoff), error).outcome == Outcome(False, delay, None, error)


@pytest.mark.parametrize("is_default", [False, True])
@pytest.mark.parametrize(("attempt", "delay"), [({}, 1), ({"retry": 3}, 8), ({"retry": 5, "reentries": 4}, 2)])
def test_exponential_delays(is_default: bool, attempt: Any, delay: float) -> None:
    backoff = kopf.exponential(jitter=0)
    handler = make_handler(backoff=None if is_default else backoff)
    default = backoff if is_default else 60
    judgement = judge(handler, make_attempt(**attempt), ValueError(), default_backoff=default)
    assert judgement.outcome.delay == delay
    assert judgement.details[0] == f"try again in {delay:.1f} seconds"


def test_exponential_delays_differ_between_objects_and_handlers() -> None:
    handlers = [make_handler(id=name, backoff=kopf.exponential(initial=100)) for name in ["fn1", "fn2"]]
    delays = {
        judge(handler, make_attempt(), ValueError(), default_backoff=60, uid=uid).outcome.delay
        for handler in handlers
        for uid in ["uid1", "uid2"]
    }
    assert len(delays) == 4


def test_exponential_delays_count_for_the_timeout() -> None:
    handler = make_handler(backoff=kopf.exponential(initial=5, jitter=0), timeout=10)
    assert not judge_it(handler, ValueError(), retry=0, runtime=4).outcome.final
    assert judge_it(handler, ValueError(), retry=1, runtime=4).outcome.final


@pytest.mark.parametrize(
    ("limits", "plan"),
    [
        ({"retries": 1}, "exceed 1 retries"),
        ({"timeout": 10, "retries": 2}, "time out after 10 seconds"),
    ],
)
def test_temporary_errors_before_the_limits(limits: Any, plan: str) -> None:
    error = kopf.TemporaryError("later", delay=10)
    message = "%s failed temporarily but will %s: %s"
    assert judge_it(make_handler(**limits), error) == Judgement(
        Outcome(True, exception=error), logging.ERROR, message, (plan, "later")
    )


def test_no_delay_is_never_beyond_the_timeout() -> None:
    error = kopf.TemporaryError(delay=None)
    assert not judge_it(make_handler(timeout=10), error, runtime=9).outcome.final


# --- the modes of errors ---

make_activity = functools.partial(ActivityHandler, id=HandlerId("fn"), fn=do_nothing)


def make(kind: Any, **options: Any) -> Handler:
    handler: Handler = kind(id=HandlerId("fn"), fn=do_nothing, selector=None, **options)
    return handler


@pytest.mark.parametrize(
    ("handler", "mode"),
    [
        (make(ChangingHandler, reason=Reason.CREATE), TEMPORARY),
        (make(DaemonHandler), TEMPORARY),
        (make(TimerHandler), TEMPORARY),
        (make(WatchingHandler), IGNORED),
        (make(IndexingHandler), IGNORED),
        (make(WebhookHandler, type=WebhookType.VALIDATING), PERMANENT),
        (make_activity(activity=Activity.STARTUP), TEMPORARY),
        (make_activity(activity=Activity.CLEANUP), TEMPORARY),
        (make_activity(activity=Activity.AUTHENTICATION), TEMPORARY),
        (make_activity(activity=Activity.PROBE), PERMANENT),
    ],
)
def test_default_modes_of_errors(handler: Handler, mode: kopf.ErrorsMode) -> None:
    assert get_errors_mode(handler) is mode


@pytest.mark.parametrize("mode", [*kopf.ErrorsMode])
def test_declared_modes_of_errors(mode: kopf.ErrorsMode) -> None:
    for kind in (WatchingHandler, IndexingHandler, DaemonHandler):
        assert get_errors_mode(make(kind, errors=mode)) is mode
    assert get_errors_mode(make_activity(activity=Activity.PROBE, errors=mode)) is mode


BOOM = ValueError("boom")
OVER = {"retries": 1}


@pytest.mark.parametrize(
    ("mode", "limits", "outcome", "plan"),
    [
        (TEMPORARY, {}, Outcome(False, 60, None, BOOM), "try again in 60 seconds"),
        (TEMPORARY, OVER, Outcome(True, None, None, BOOM), "stop now (it would exceed 1 retries on the next attempt)"),
        (PERMANENT, {}, Outcome(True, None, None, BOOM), "stop now"),
        (PERMANENT, OVER, Outcome(True, None, None, BOOM), "stop now"),
        (IGNORED, {}, Outcome(True, ignored=BOOM), "be ignored"),
        (IGNORED, OVER, Outcome(True, ignored=BOOM), "be ignored"),
    ],
)
def test_arbitrary_errors(mode: kopf.ErrorsMode, limits: Any, outcome: Outcome, plan: str) -> None:
    message = "%s failed with an exception and will %s: %s"
    assert judge_it(make_handler(errors=mode, **limits), BOOM) == Judgement(
        outcome, logging.ERROR, message, (plan, "ValueError: boom"), has_traceback=True
    )


def test_our_own_errors_have_tracebacks_if_they_show_lines_of_users() -> None:
    error = kopf.OperatorError("it is explained")
    assert not judge_it(make_handler(), error).has_traceback
    with pytest.raises(kopf.OperatorError):
        raise error
    assert judge_it(make_handler(), error).has_traceback


@pytest.mark.parametrize("mode", [None, *kopf.ErrorsMode])
@pytest.mark.parametrize(
    ("error", "final", "level", "message", "details"),
    [
        (kopf.TemporaryError("later"), False, logging.ERROR, "%s failed temporarily: %s", ("later",)),
        (kopf.TemporaryError(), False, logging.ERROR, "%s failed temporarily: %s", ("TemporaryError",)),
        (kopf.PermanentError("never"), True, logging.ERROR, "%s failed permanently: %s", ("never",)),
        (kopf.PermanentError(), True, logging.ERROR, "%s failed permanently: %s", ("PermanentError",)),
        (kopf.AdmissionError("no"), True, logging.ERROR, "%s failed permanently: %s", ("no",)),
        (HandlerChildrenRetry(), False, logging.DEBUG, "%s has unfinished sub-handlers. Will retry soon.", ()),
    ],
)
def test_the_modes_are_only_for_arbitrary_errors(
    mode: Any, error: Exception, final: bool, level: int, message: str, details: Any
) -> None:
    judgement = judge_it(make_handler(errors=mode), error)
    assert judgement[1:] == (level, message, details, False)
    assert (judgement.outcome.final, judgement.outcome.exception) == (final, error)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Exception("boom"), "boom"),
        (Exception(), "Exception"),
        (KeyError("size"), "KeyError: 'size'"),
        (AssertionError(), "AssertionError"),
        (ValueError("boom"), "ValueError: boom"),
    ],
)
def test_arbitrary_errors_are_named_with_their_classes(error: Exception, text: str) -> None:
    assert judge_it(make_handler(), error).details == ("try again in 60 seconds", text)


@pytest.mark.parametrize("mode", [None, *kopf.ErrorsMode])
def test_denials_are_what_admission_handlers_are_for(mode: Any) -> None:
    error = kopf.AdmissionError("no")
    judgement = judge_it(make(WebhookHandler, type=WebhookType.VALIDATING, errors=mode), error)
    assert judgement == Judgement(Outcome(True, exception=error), logging.INFO, "%s denied the change: %s", ("no",))


@pytest.mark.parametrize("mode", [None, *kopf.ErrorsMode])
def test_malformed_objects_are_not_the_fault_of_admission_handlers(mode: Any) -> None:
    handler = make(WebhookHandler, type=WebhookType.VALIDATING, errors=mode)
    judgement = judge_it(handler, StanzaError("The spec is not an object."))
    assert isinstance(judgement.outcome.exception, kopf.AdmissionError)
    assert (judgement.outcome.exception.code, judgement.outcome.final) == (400, True)
    assert judgement[1:] == (logging.INFO, "%s denied the change: %s", ("The spec is not an object.",), False)


def test_malformed_objects_are_arbitrary_errors_of_other_handlers() -> None:
    error = StanzaError("The spec is not an object.")
    assert judge_it(make_handler(), error).outcome == Outcome(False, 60, None, error)


def test_waiting_for_subhandlers_is_never_beyond_the_limits() -> None:
    handler = make_handler(retries=1, timeout=1)
    assert not judge_it(handler, HandlerChildrenRetry(delay=100), retry=5, runtime=5).outcome.final


# --- the attempts in memory ---


def test_attempts_are_counted_since_the_first_one() -> None:
    retries = Retries()
    for number in range(3):
        runtime = datetime.timedelta(seconds=number * 10)
        assert retries.begin(STARTED + runtime) == Attempt(number, STARTED, runtime)
        retries.note(Outcome(final=False, delay=10))


def test_what_comes_after_the_last_attempt_is_the_first_one() -> None:
    retries = Retries()
    retries.begin(STARTED)
    retries.note(Outcome(final=False))
    retries.begin(STARTED)
    retries.note(Outcome(final=True))
    later = STARTED + datetime.timedelta(seconds=5)
    assert retries.begin(later) == Attempt.first(later)


# --- objects that do not fit their models ---

UNFIT = UnfitObjectError(ModelMismatchError("Widget", "spec.size", "it is not a number"))
UNFIT_TEXT = "The object does not fit Widget: spec.size: it is not a number"


def test_handlers_wait_for_the_change_of_an_unfit_object() -> None:
    judgement = judge_it(make_handler(retries=0, timeout=0), UNFIT)
    assert judgement.outcome == Outcome(final=False, exception=UNFIT, is_unfit=True)
    assert (judgement.level, judgement.message, judgement.details) == (
        logging.WARNING,
        "%s is not called: %s",
        (UNFIT_TEXT,),
    )
    assert not judgement.has_traceback


def test_admission_handlers_deny_unfit_objects() -> None:
    handler = WebhookHandler(id=HandlerId("fn"), fn=do_nothing, selector=None, type=WebhookType.VALIDATING)
    judgement = judge_it(handler, UNFIT)
    denial = judgement.outcome.exception
    assert isinstance(denial, kopf.AdmissionError)
    assert (str(denial), denial.code) == (UNFIT_TEXT, 422)
    assert (judgement.level, judgement.message) == (logging.INFO, "%s denied the change: %s")
    assert judgement.outcome.final
    assert not judgement.has_traceback
