from __future__ import annotations

import json

import pytest

from kopf._client import errors


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, errors.APIClientError),
        (401, errors.APIUnauthorizedError),
        (403, errors.APIForbiddenError),
        (404, errors.APINotFoundError),
        (409, errors.APIConflictError),
        (410, errors.APIGoneError),
        (413, errors.APIPayloadTooLargeError),
        (415, errors.APIUnsupportedMediaTypeError),
        (418, errors.APIClientError),
        (422, errors.APIUnprocessableError),
        (429, errors.APITooManyRequestsError),
        (500, errors.APIServerError),
        (503, errors.APIServerError),
        (599, errors.APIServerError),
    ],
)
def test_classes_by_statuses(status: int, cls: type[errors.APIError]) -> None:
    error = errors.make_error(status=status)
    assert type(error) is cls
    assert error.status == status


@pytest.mark.parametrize(
    ("message", "cls"),
    [
        ("failed to create typed patch object: .spec.x: field not declared in schema", errors.APIUnprocessableError),
        ("failed to create typed patch object (ns/x; apps/v1, Kind=X): errors:", errors.APIUnprocessableError),
        ("etcdserver: request is too large", errors.APIPayloadTooLargeError),
        (
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)",
            errors.APIPayloadTooLargeError,
        ),
        ("etcdserver: mvcc: database space exceeded", errors.APIServerError),
        ("rpc error: code = ResourceExhausted desc = etcdserver: too many requests", errors.APIServerError),
    ],
)
def test_wrong_requests_are_told_from_failures_of_the_server(message: str, cls: type[errors.APIError]) -> None:
    body = json.dumps({"kind": "Status", "message": message}).encode()
    error = errors.make_error(status=500, body=body)
    assert type(error) is cls
    assert error.status == 500
    assert error.is_unacceptable == (cls is not errors.APIServerError)


def test_fields_of_status_objects() -> None:
    body = {
        "kind": "Status",
        "code": 409,
        "reason": "AlreadyExists",
        "message": 'kexes "x" already exists',
        "details": {"name": "x"},
    }
    error = errors.make_error(
        status=409, method="POST", path="/apis/g/v1/kexes", headers={"X": "y"}, body=json.dumps(body).encode()
    )
    assert error.code == 409
    assert error.reason == "AlreadyExists"
    assert error.message == 'kexes "x" already exists'
    assert error.details == {"name": "x"}
    assert error.headers == {"X": "y"}
    assert str(error) == 'POST /apis/g/v1/kexes: 409 AlreadyExists: kexes "x" already exists'


def test_text_of_other_responses_is_quoted_and_shortened() -> None:
    error = errors.make_error(status=502, method="GET", path="/x", body=b"<html>\n  Bad\n gateway" + b"!" * 1000)
    assert error.reason is None
    assert error.details == {}
    assert str(error).startswith("GET /x: 502 Bad Gateway: <html> Bad gateway!!!")
    assert str(error).endswith("!…")
    assert "\n" not in str(error)
    assert len(str(error)) < 400


def test_json_that_is_not_a_status_is_quoted() -> None:
    assert str(errors.make_error(status=500, body=b'{"oops":1}')) == '500 Internal Server Error: {"oops":1}'


def test_nothing_is_known_but_the_status() -> None:
    assert str(errors.make_error(status=599)) == "599"
