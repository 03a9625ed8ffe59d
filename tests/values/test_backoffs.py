from __future__ import annotations

from typing import Any

import pytest

import kopf


def list_delays(count: int, seed: str = "fn uid1", **options: Any) -> list[float]:
    backoff = kopf.exponential(**options)
    return [backoff.get_delay(failures, seed) for failures in range(count)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]),
        ({"initial": 5, "factor": 1}, [5, 5, 5]),
        ({"initial": 0.5, "factor": 3, "maximum": 10}, [0.5, 1.5, 4.5, 10, 10]),
        ({"initial": 0}, [0, 0, 0]),
        ({"initial": 0, "maximum": 0}, [0, 0]),
    ],
)
def test_delays_grow_up_to_the_maximum(options: Any, expected: list[float]) -> None:
    assert list_delays(len(expected), jitter=0, **options) == expected


@pytest.mark.parametrize("failures", [1023, 1024, 10**6, 10**18])
def test_any_number_of_failures_is_bearable(failures: int) -> None:
    assert kopf.exponential(jitter=0).get_delay(failures, "") == 600


def test_the_jitter_shortens_each_delay_by_its_part_at_most() -> None:
    delays = [list_delays(10, seed=f"fn {number}")[9] for number in range(1000)]
    assert 512 * 0.9 <= min(delays) < 512 * 0.902
    assert 512 * 0.998 < max(delays) <= 512
    assert sum(delays) / 1000 == pytest.approx(512 * 0.95, rel=0.005)


def test_the_jitter_is_the_same_for_the_same_attempt_of_the_same_handler_and_object() -> None:
    assert list_delays(20) == list_delays(20)
    assert list_delays(1, jitter=0.1, seed="fn uid1") == [0.916]  # also in other processes, whatever their hash seed
    delays = [delay for seed in ["fn uid1", "fn uid2"] for delay in list_delays(100, seed, initial=600, factor=1)]
    assert len(set(delays)) > 190


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"initial": -1}, "0 <= initial <= maximum is needed, got initial=-1 and maximum=600"),
        ({"initial": 5, "maximum": 4}, "got initial=5 and maximum=4"),
        ({"initial": float("nan")}, "got initial=nan"),
        ({"factor": 0.9}, "The factor must be 1 or more, got 0.9"),
        ({"factor": float("nan")}, "The factor must be 1 or more, got nan"),
        ({"jitter": 1.1}, "The jitter must be between 0 and 1, got 1.1"),
        ({"jitter": -0.1}, "The jitter must be between 0 and 1, got -0.1"),
    ],
)
def test_what_makes_no_sense_is_refused(options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        kopf.exponential(**options)
