from __future__ import annotations

import datetime

import pytest

from kopf_cluster.kinds.schedules import Schedule

# It is a Wednesday.
NOW = datetime.datetime(2025, 1, 15, 10, 20, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", "2025-01-15 10:21"),
        ("*/15 * * * *", "2025-01-15 10:30"),
        ("20 10 * * *", "2025-01-16 10:20"),
        ("0 0 1 1 *", "2026-01-01 00:00"),
        ("@hourly", "2025-01-15 11:00"),
        ("@weekly", "2025-01-19 00:00"),
        ("30 8 * * mon-fri", "2025-01-16 08:30"),
        ("0 12 * feb sun", "2025-02-02 12:00"),
        ("0 0 31 * *", "2025-01-31 00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("0 0 20 * 5", "2025-01-17 00:00"),  # either of the days is enough
        ("5,10-12/2 10 15 1 ?", "2026-01-15 10:05"),
        ("0 0 * * 7", "2025-01-19 00:00"),
    ],
)
def test_the_next_moment(text: str, expected: str) -> None:
    moment = Schedule(text).after(NOW)
    assert moment is not None
    assert moment.strftime("%Y-%m-%d %H:%M") == expected


def test_schedules_that_never_come() -> None:
    assert Schedule("0 0 30 2 *").after(NOW) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("never", r"^expected exactly 5 fields, found 1: \[never\]$"),
        ("* * * *", r"^expected exactly 5 fields, found 4: \[\* \* \* \*\]$"),
        ("60 * * * *", "60"),
        ("* 24 * * *", "24"),
        ("* * 0 * *", "0"),
        ("* * * 13 *", "13"),
        ("* * * * 8", "8"),
        ("*/0 * * * *", r"\*/0"),
        ("5-1 * * * *", "5-1"),
        ("x * * * *", "x"),
        ("1- * * * *", "."),
        (", * * * *", "."),
    ],
)
def test_wrong_schedules(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(text)
