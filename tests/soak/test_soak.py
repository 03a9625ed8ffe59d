"""A short soak, for every day; see ``make soak`` for the long one."""

from __future__ import annotations

import pathlib

import pytest

from tests.soak.soaking import Plan, Report, check_growth, soak

TROUBLE = {
    "the API is restarted": 1,
    "the token has expired": 3,
    "the watch-streams are silent": 1,
    "the senior operator is killed": 1,
    "the senior operator is stopped": 1,
}
PLAN = Plan(duration=8, objects=30, pace=0.6, seed=0, changes=100, trouble=TROUBLE)


@pytest.mark.timeout(300)
async def test_soak(tmp_path: pathlib.Path) -> None:
    report = await soak(PLAN, tmp_path)
    assert not report.failures, report.describe()
    assert report.is_enough(PLAN)


@pytest.mark.parametrize(("creep", "peak", "is_failed"), [(1.9, 0, False), (3.0, 0, True), (1.0, 30, False)])
def test_the_judgement_of_the_memory(creep: float, peak: float, is_failed: bool) -> None:
    """What counts, is how the least of it grows between the second quarter and the last one; bursts do not."""
    report = Report(PLAN)
    for moment in range(4000):
        burst = peak if moment % 100 > 20 else 0
        report.memory.append(50 + creep * moment / 2000 + burst)  # from quarter to quarter, it is a half of the time
        report.files.append(10)
    check_growth(report, spare_memory=2.0)
    assert bool(report.failures) is is_failed
