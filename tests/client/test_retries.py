from __future__ import annotations

import datetime
import email.utils

import pytest

from kopf._client.errors import APINetworkError, make_error
from kopf._client.http.retry_delays import MAX_FORCED_DELAY, MIN_FORCED_DELAY, add_jitter, get_delay, parse_retry_after


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("0", 0),
        ("120", 120),
        ("1.5", 1.5),
        ("-5", 0),
        ("nan", None),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", None),
        ("inf", None),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0),
    ],
)
def test_retry_after_in_seconds(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value) == seconds


def test_retry_after_as_a_date() -> None:
    date = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=100)
    seconds = parse_retry_after(email.utils.format_datetime(date, usegmt=True))
    assert seconds is not None
    assert 90 < seconds <= 100


@pytest.mark.parametrize(
    ("status", "retry_after", "backoff", "enforced", "delay"),
    [
        (500, None, 5, False, 5),
        (500, None, 5, True, 5),
        (500, None, None, False, None),
        (503, "3", 5, False, 5),
        (503, "8", 5, False, 8),
        (503, "3", 5, True, 3),
        (503, "8", 5, True, 8),
        (503, "8", None, True, None),
        (429, None, 5, False, 5),
        (429, None, None, False, None),
        (429, "8", 5, False, 8),
        (429, "8", None, False, 8),
        (429, "0", 5, True, 0),
        (429, "0", None, False, MIN_FORCED_DELAY),
        (429, "1e9", None, False, MAX_FORCED_DELAY),
        (503, "1e300", 5, False, MAX_FORCED_DELAY),
        (503, "Fri, 31 Dec 9999 23:59:59 GMT", 5, True, MAX_FORCED_DELAY),
        (503, "1e9", MAX_FORCED_DELAY * 2, False, MAX_FORCED_DELAY * 2),
    ],
)
def test_delays(status: int, retry_after: str | None, backoff: float, enforced: bool, delay: float | None) -> None:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    error = make_error(status=status, headers=headers)
    assert get_delay(error, backoff, enforce_retry_after=enforced) == delay


def test_network_errors_have_only_backoffs() -> None:
    assert get_delay(APINetworkError("x"), 5, enforce_retry_after=True) == 5
    assert get_delay(APINetworkError("x"), None, enforce_retry_after=True) is None


def test_jitter_makes_pauses_longer_but_slightly() -> None:
    delays = [add_jitter(10) for _ in range(100)]
    assert 10 <= min(delays) < max(delays) <= 11
    assert add_jitter(0) == 0
