"""How the admission is denied."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

import kopf
from tests.admission.reviewing import Reviewer, make_object
from tests.behaviour.running import Decorator, Logs, Operator

pytestmark = pytest.mark.fastforward

ADMISSION = kopf.AdmissionError("admission", code=499)
PERMANENT = kopf.PermanentError("permanent")
TEMPORARY = kopf.TemporaryError("temporary", delay=5)
ARBITRARY = Exception("arbitrary")
HIDDEN = {"message": "Webhook 'fail' has failed; see the log of the operator.", "code": 500}


def declare(id: str, error: Exception, decorator: Decorator = kopf.on.validate, **options: Any) -> None:
    @decorator("kopfexamples", id=id, **options)
    def fail(**_: Any) -> None:
        raise error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (kopf.AdmissionError("no!", code=400), {"message": "no!", "code": 400}),
        (kopf.AdmissionError("no!"), {"message": "no!", "code": 500}),
        (kopf.AdmissionError("no!", None), {"message": "no!", "code": 500}),
        (kopf.AdmissionError(), {"message": "AdmissionError", "code": 500}),
        (kopf.AdmissionError(None, 403), {"message": "AdmissionError", "code": 403}),
        (PERMANENT, {"message": "permanent", "code": 500}),
        (TEMPORARY, {"message": "temporary", "code": 500}),
        (ARBITRARY, HIDDEN),
        (Exception(), HIDDEN),
        (ExceptionGroup("group", [ValueError()]), HIDDEN),
    ],
    ids=repr,
)
@pytest.mark.parametrize("decorator", [kopf.on.validate, kopf.on.mutate])
async def test_all_errors_deny(reviewer: Reviewer, error: Exception, status: Any, decorator: Any) -> None:
    declare("fail", error, decorator)
    assert await reviewer.review(webhook="fail") == {"allowed": False, "status": status}


@pytest.mark.parametrize("field", ["spec", "status"])
@pytest.mark.parametrize(("value", "type"), [(5, "int"), ("x", "str"), ([1], "list"), (True, "bool")])
@pytest.mark.parametrize("place", ["handler", "filter"])
async def test_stanzas_that_are_no_objects_are_the_fault_of_who_sent_them(
    reviewer: Reviewer,
    logs: Logs,
    field: str,
    value: Any,
    type: str,
    place: str,
) -> None:
    def look(**kwargs: Any) -> bool:
        return kwargs[field].get("x") is None

    kopf.on.validate(
        "kopfexamples",
        id="check",
        when=look if place == "filter" else None,
    )(look if place == "handler" else lambda **_: None)
    response = await reviewer.review(new={**make_object(), field: value})
    assert response == {
        "allowed": False,
        "status": {"message": f"The {field} must be a JSON object, not {type}.", "code": 400},
    }
    assert not [record for record in logs.records if record.exc_info]


async def test_stanzas_that_are_no_objects_do_not_matter_to_those_who_do_not_look(reviewer: Reviewer) -> None:
    @kopf.on.validate("kopfexamples")
    def check(body: kopf.Body, **_: Any) -> None:
        assert body["spec"] == 5

    assert await reviewer.review(new={**make_object(), "spec": 5}) == {"allowed": True}


async def test_arbitrary_errors_are_shown_on_demand(operator: Operator, reviewer: Reviewer) -> None:
    def configure(settings: kopf.OperatorSettings) -> None:
        reviewer.configure(settings)
        settings.admission.show_errors = True

    operator.configure = configure
    declare("fail", ARBITRARY)
    assert (await reviewer.review())["status"]["message"] == "arbitrary"


@pytest.mark.parametrize("order", [1, -1], ids=["straight", "reversed"])
@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ([ADMISSION, PERMANENT, TEMPORARY, ARBITRARY], "admission"),
        ([PERMANENT, TEMPORARY, ARBITRARY], "permanent"),
        ([TEMPORARY, ARBITRARY], "temporary"),
        ([ARBITRARY], "Webhook 'fail0' has failed; see the log of the operator."),
    ],
    ids=lambda arg: arg if isinstance(arg, str) else "",
)
async def test_priorities(reviewer: Reviewer, errors: list[Exception], message: str, order: int) -> None:
    for index, error in enumerate(errors[::order]):
        declare(f"fail{index}", error)
    response = await reviewer.review()
    assert response["status"]["message"] == message


async def test_of_equal_errors_the_first_one_is_reported(reviewer: Reviewer) -> None:
    for name in ("b", "a", "c"):
        declare(name, kopf.AdmissionError(name))
    assert (await reviewer.review())["status"]["message"] == "b"


async def test_denied_changes_are_not_patched(reviewer: Reviewer) -> None:
    @kopf.on.mutate("kopfexamples")
    def fill(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["x"] = 1

    declare("fail", ADMISSION)
    assert await reviewer.review() == {"allowed": False, "status": {"message": "admission", "code": 499}}


@pytest.mark.parametrize("error", [ADMISSION, PERMANENT, TEMPORARY, ARBITRARY], ids=repr)
async def test_ignored_failures(reviewer: Reviewer, error: Exception) -> None:
    declare("fail", error, ignore_failures=True)
    text = "see the log of the operator." if error is ARBITRARY else str(error)
    warning = f"Webhook 'fail' has failed, which is ignored: {text}"
    assert await reviewer.review(webhook="fail") == {"allowed": True, "warnings": [warning]}


async def test_only_the_own_failures_are_ignored(reviewer: Reviewer) -> None:
    declare("ignored", ADMISSION, ignore_failures=True)
    declare("other", ARBITRARY)
    response = await reviewer.review()
    assert not response["allowed"]
    assert response["status"]["message"] == "Webhook 'other' has failed; see the log of the operator."


@pytest.mark.parametrize("option", ["labels", "annotations", "when", "value"])
async def test_failing_filters_deny(reviewer: Reviewer, logs: Logs, option: str) -> None:
    def fail(*_: Any, **__: Any) -> bool:
        raise ValueError("the filter is broken")

    filters = {
        "labels": {"labels": {"l": fail}},
        "annotations": {"annotations": {"a": fail}},
        "when": {"when": fail},
        "value": {"field": "spec.field", "value": fail},
    }
    options: Any = filters[option]
    kopf.on.validate("kopfexamples", id="check", **options)(lambda **_: None)
    response = await reviewer.review()
    message = response["status"].pop("message")
    assert re.fullmatch(r"Webhook 'check.*' has failed; see the log of the operator\.", message)
    assert response == {"allowed": False, "status": {"code": 500}}
    assert len(logs.find("Webhook 'check.*' cannot be filtered: .*the filter is broken")) == 1


async def test_arbitrary_errors_are_logged_with_tracebacks(reviewer: Reviewer, logs: Logs) -> None:
    declare("fail", ARBITRARY)
    await reviewer.review()
    (record,) = logs.find("Webhook 'fail' failed with an exception and will stop now: arbitrary")
    assert record.exc_info


def test_admission_errors_are_permanent_errors() -> None:
    error = kopf.AdmissionError("no!", code=499)
    assert isinstance(error, kopf.PermanentError)
    assert (str(error), error.code) == ("no!", 499)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.code) == ("no!", 499)
