"""What is shown of explorations while they run, and of failed tests in the end: what has failed, and nothing else."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import pytest

from kopf._testing.exploring.exploration_progress import Budget, describe, display, watch
from kopf._testing.exploring.reports import Trial
from tests.cli.processes import Process
from tests.forging import Forge

Run = Callable[..., str]

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
    return [*plugins, "--rootdir", str(tmp_path), str(tmp_path)]


@pytest.fixture
def run(pytests: Forge, command: list[str]) -> Run:
    return lambda *args: pytests.run(*command, *args).stdout


def test_it_is_shown_at_a_terminal(pytests: Forge, command: list[str], tmp_path: pathlib.Path) -> None:
    """Even where pytest hides what tests write."""
    args, log = [*command, "-k", "explored"], tmp_path / "log"
    with Process(*args, cwd=tmp_path, log=log, terminal=True, forge=pytests) as process:
        assert process.wait() == 0
    assert re.search(r"\d+/\d+, 0 failed, ~\d+ s left", process.output)
    assert "1 passed" in process.output


def test_it_is_quiet_elsewhere(run: Run) -> None:
    shown = run("-k", "explored")
    assert "1 passed" in shown
    assert "s left" not in shown


@pytest.mark.parametrize(
    ("name", "line", "error"),
    [
        ("expectation", '>       simulation.expect("configmap"', "AssertionError: configmaps default/one is not as"),
        ("assertion", '>       assert (await simulation.get("configmap"', "AssertionError: assert 'one' == 'two'"),
    ],
)
def test_failures_begin_with_the_line_of_the_test(run: Run, name: str, line: str, error: str) -> None:
    shown = run("-k", name)
    _, _, failure = shown.partition(f" test_{name} ")
    lines = [text for text in failure.splitlines() if text.startswith((">", "E"))]
    assert lines[0].startswith(line)
    assert error in lines[1]
    assert "virtual_time_loop.py" not in failure
    assert "facade.py" not in failure
    assert "DEBUG " not in failure
    assert "INFO     kopf" in failure


def test_mistakes_of_calls_are_shown_to_the_last_frame(run: Run) -> None:
    assert "simulation_core.py" in run("-k", "own_mistake")


def test_all_is_shown_if_wanted(run: Run) -> None:
    assert "facade.py" in run("-k", "expectation", "--full-trace")
    assert "DEBUG " in run("-k", "expectation", "--log-level=DEBUG")


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
