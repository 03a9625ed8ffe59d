"""A short soak, for every day; see ``make soak`` for the long one."""
from __future__ import annotations

import pathlib

import pytest

from tests.soak.soaking import Plan, soak


@pytest.mark.timeout(240)
async def test_soak(tmp_path: pathlib.Path) -> None:
    report = await soak(Plan(duration=20, objects=30, pace=1.0, seed=0), tmp_path)
    assert not report.failures, report.describe()
    # It was not a quiet time.
    assert report.count("the API is restarted") >= 1
    assert report.count("the token has expired") >= 3
    assert report.count("the watch-streams are silent") >= 1
    assert report.count("the senior operator is killed") >= 1
    assert report.count("the senior operator is stopped") >= 1
    assert report.changes >= 100
