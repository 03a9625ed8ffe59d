from __future__ import annotations

import datetime
import decimal

import pytest

import kopf


@pytest.mark.parametrize(
    ("error", "text", "delay"),
    [
        (kopf.TemporaryError("boom"), "boom", 60),
        (kopf.TemporaryError("boom", delay=5), "boom", 5),
        (kopf.TemporaryError("boom", 5), "boom", 5),
        (kopf.TemporaryError("boom", delay=0), "boom", 0),
        (kopf.TemporaryError("boom", delay=None), "boom", None),
        (kopf.TemporaryError(), "", 60),
        (kopf.TemporaryError(delay=1.5), "", 1.5),
        (kopf.TemporaryError(delay=decimal.Decimal("1.5")), "", 1.5),  # type: ignore[arg-type]
    ],
)
def test_temporary_errors_have_a_delay(error: kopf.TemporaryError, text: str, delay: float | None) -> None:
    assert str(error) == text
    assert error.delay == delay
    assert isinstance(error.delay, int | float | None)


def test_other_delays_are_refused_where_they_are_raised() -> None:
    with pytest.raises(TypeError, match="timedelta"):
        raise kopf.TemporaryError("boom", delay=datetime.timedelta(seconds=5))  # type: ignore[arg-type]


def test_errors_are_not_mixed_up() -> None:
    assert not issubclass(kopf.PermanentError, kopf.TemporaryError)
    assert not issubclass(kopf.TemporaryError, kopf.PermanentError)
