"""What is shown of explorations while they run, and of failed tests in the end: what has failed, and nothing else."""

from __future__ import annotations

import os
import pathlib
import pty
import re
import subprocess
import sys

import pytest

from kopf._testing.exploring.exploration_progress import Budget, describe, display, watch
from kopf._testing.exploring.reports import Trial
from tests.patience import PATIENCE

TESTS = """
import asyncio
import kopf
from kopf.testing import explore

MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "labels": {"mine": ""}}}

@kopf.on.create("configmaps", labels={"mine": kopf.PRESENT})
def create_fn(**_):
    pass

@explore()
async def test_explored(simulation):
    await simulation.apply(MANIFEST)

def test_expectation(simulation):
    simulation.apply(MANIFEST)
    simulation.expect("configmap", "one", field="data.size", value="1", within=5)

async def test_assertion(simulation):
    await simulation.apply(MANIFEST)
    await simulation.settle()
    assert (await simulation.get("configmap", "one"))["metadata"]["name"] == "two"

async def test_own_mistake(simulation):
    await simulation.advance(seconds="many")
"""


@pytest.fixture
def command(tmp_path: pathlib.Path) -> list[str]:
    (tmp_path / "test_operator.py").write_text(TESTS)
    plugins = [part for name in ("cacheprovider", "xdist", "asyncio") for part in ("-p", f"no:{name}")]
    return [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(tmp_path), str(tmp_path)]


def run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout


def test_it_is_shown_at_a_terminal(command: list[str]) -> None:
    """Even where pytest hides what tests write."""
    main, other = pty.openpty()
    with subprocess.Popen([*command, "-k", "explored"], stdout=other, stderr=other) as process:
        os.close(other)
        shown = b""
        while True:
            try:
                shown += os.read(main, 10_000)
            except OSError:  # the end of terminals in Linux
                break
        assert process.wait(PATIENCE) == 0
    os.close(main)
    assert re.search(rb"\d+/\d+, 0 failed, ~\d+ s left", shown)
    assert b"1 passed" in shown


def test_it_is_quiet_elsewhere(command: list[str]) -> None:
    shown = run([*command, "-k", "explored"])
    assert "1 passed" in shown
    assert "s left" not in shown


@pytest.mark.parametrize(
    ("name", "line", "error"),
    [
        ("expectation", '>       simulation.expect("configmap"', "AssertionError: configmaps default/one is not as"),
        ("assertion", '>       assert (await simulation.get("configmap"', "AssertionError: assert 'one' == 'two'"),
    ],
)
def test_failures_begin_with_the_line_of_the_test(command: list[str], name: str, line: str, error: str) -> None:
    shown = run([*command, "-k", name])
    _, _, failure = shown.partition(f" test_{name} ")
    lines = [text for text in failure.splitlines() if text.startswith((">", "E"))]
    assert lines[0].startswith(line)
    assert error in lines[1]
    assert "virtual_time.py" not in failure
    assert "facade.py" not in failure
    assert "DEBUG " not in failure
    assert "INFO     kopf" in failure


def test_mistakes_of_calls_are_shown_to_the_last_frame(command: list[str]) -> None:
    assert "simulation_core.py" in run([*command, "-k", "own_mistake"])


def test_all_is_shown_if_wanted(command: list[str]) -> None:
    assert "facade.py" in run([*command, "-k", "expectation", "--full-trace"])
    assert "DEBUG " in run([*command, "-k", "expectation", "--log-level=DEBUG"])


def test_estimates() -> None:
    assert describe(37, 61, 2, elapsed=18.5) == "37/61, 2 failed, ~12 s left"
    assert describe(37, 61, 2, elapsed=18.5, limit=20.0) == "37/61, 2 failed, ~2 s left"
    assert describe(61, 61, 0, elapsed=30.0) == "61/61, 0 failed, ~0 s left"


def test_budgets_are_considered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kopf._testing.exploring.exploration_progress._PAUSE", 0)
    shown: list[str] = []
    token = display.set(shown.append)
    trials = [Trial(name="good", kind="crash"), Trial(name="bad", kind="crash", differences=["x"]), None]
    try:
        assert [*watch(iter(trials), 100, Budget(runs=5))] == trials
    finally:
        display.reset(token)
    assert [line.rpartition(",")[0] for line in shown] == ["1/5, 0 failed", "2/5, 1 failed", "3/5, 1 failed", ""]
