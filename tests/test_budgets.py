"""The comparison of what our own code takes to what it took: see `benchmarks/budgets.py`."""

from __future__ import annotations

import pathlib

import pytest
from benchmarks.budgets import HISTORY, Record, find_growths, get_limit, get_ratios, read_history, write_history
from benchmarks.cycle import CALIBRATION


def make_record(figure: str, ratio: float) -> Record:
    return {"figure": figure, "ratio": ratio, "micros": ratio * 20, "version": "2.0.0", "date": "2026-11-22"}


def test_ratios_do_not_depend_on_the_speed_of_the_machine() -> None:
    fast = {CALIBRATION: 20.0, "creation": 100.0}
    slow = {CALIBRATION: 60.0, "creation": 300.0}
    assert get_ratios(fast) == get_ratios(slow) == {"creation": 5.0}


@pytest.mark.parametrize(("ratio", "growths"), [(4.0, 0), (5.0, 0), (5.9, 0), (6.1, 1)])
def test_growths_of_more_than_a_fifth_are_found(ratio: float, growths: int) -> None:
    assert len(find_growths([make_record("creation", 5.0)], {"creation": ratio})) == growths


def test_the_latest_line_of_a_figure_counts() -> None:
    history = [make_record("creation", 5.0), make_record("echo", 1.0), make_record("creation", 3.0)]
    assert find_growths(history, {"creation": 3.5, "echo": 1.0}) == []
    assert find_growths(history, {"creation": 4.5, "echo": 1.0}) == ["creation: 4.50, it was 3.00"]


def test_new_figures_are_compared_to_nothing() -> None:
    assert find_growths([], {"creation": 100.0}) == []


def test_what_has_none_of_our_code_is_not_judged() -> None:
    assert find_growths([make_record("bare thread", 1.0)], {"bare thread": 100.0}) == []


def test_small_figures_have_a_grain() -> None:
    assert get_limit("echo", 0.2) == pytest.approx(0.3)
    assert get_limit("thread", 1.0) == pytest.approx(1.6)
    assert get_limit("thread", 10.0) == pytest.approx(12.0)


def test_history_has_a_line_for_every_figure(tmp_path: pathlib.Path) -> None:
    records = [make_record("creation", 5.0), make_record("echo", 0.2)]
    path = tmp_path / "history" / "3.11.json"
    write_history(path, records)
    assert len(path.read_text().splitlines()) == 4
    assert read_history(path) == records
    assert read_history(tmp_path / "nonexistent") == []


@pytest.mark.parametrize("path", sorted(HISTORY.glob("*.json")), ids=lambda path: path.name)
def test_the_recorded_history_can_be_read(path: pathlib.Path) -> None:
    records = read_history(path)
    assert {"creation", "update", "echo"} <= {record["figure"] for record in records}
    assert all(record["ratio"] > 0 for record in records)
